"""What a write of many processes declares at its begin: who waits for it then, and that its tasks are held to it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Opening, PartialUpdate, Table
from crdt_mor.errors import EarlierWritePendingError
from crdt_mor.parts import WriteJob
from tests.inside import tail_of
from tests.simulated import Simulated

SCHEMA: Final = pa.schema([("id", pa.string()), ("land", pa.string()), ("price", pa.int64()), ("note", pa.string())])
NOW: Final = timedelta(0)
EXPIRY: Final = timedelta(hours=1)


@pytest.fixture
def world() -> Simulated:
    return Simulated()


def rows(*given: tuple[str, str, int, str]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in given], SCHEMA)


def make(world: Simulated, **settings: Any) -> Table:
    table = world.create(
        SCHEMA,
        **{"key": "id", "buckets": 1, "partition_by": ["land"], "opening": Opening(writer_expiry=EXPIRY), **settings},
    )
    table.upsert(rows(("a", "DE", 1, "x"), ("b", "FR", 2, "y")))
    return table


def again(world: Simulated) -> Table:
    """The table as another process has it open."""
    return Table("simulated", opening=Opening(store=world.store, environment=world.environment, writer_expiry=EXPIRY))


def shown(table: Table) -> list[tuple[Any, ...]]:
    return table.scan(columns=["id", "price", "note"]).to_polars().sort("id").rows()


def for_hours(world: Simulated, job: WriteJob, given: pa.Table, happens: Any) -> Any:
    """A task that reads its rows for six hours, and what happens in each of them; its receipt."""

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(6):
            world.environment.sleep(3_600)
            happens()
        yield from given.to_batches()

    reader = pa.RecordBatchReader.from_batches(given.schema, batches())
    return job.stage(reader, task=0, environment=world.environment)


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["upsert", "overwrite"])
def test_updates_of_other_partitions_do_not_wait_for_a_backfill_of_six_hours(world: Simulated, operation: Any) -> None:
    table, other = make(world), again(world)
    job = table.jobs.plan(operation, SCHEMA, partitions=["DE"])

    def happens() -> None:
        other.update({"price": "price + 1"}, "land = 'FR'", wait=NOW)
        with pytest.raises(EarlierWritePendingError, match=r"declare other partitions= or columns="):
            other.update({"price": "price + 1"}, "land = 'DE'", wait=NOW)

    receipt = for_hours(world, job, rows(("a", "DE", 10, "late")), happens)
    table.jobs.complete(job, [receipt])
    other.update({"price": "price + 1"}, wait=NOW)
    assert shown(table) == [("a", 11, "late"), ("b", 9, "y")]


@pytest.mark.slow
def test_updates_of_other_columns_do_not_wait_for_a_backfill_of_six_hours(world: Simulated) -> None:
    table, other = make(world, merge=PartialUpdate()), again(world)
    given = pa.table({"id": ["a"], "land": ["DE"], "note": ["late"]})
    job = table.jobs.plan("upsert", given.schema, columns=["note"])

    def happens() -> None:
        other.update({"price": "price + 1"}, "price > 0", wait=NOW)
        with pytest.raises(EarlierWritePendingError):
            other.update({"price": "price + 1"}, "note = 'x'", wait=NOW)

    table.jobs.complete(job, [for_hours(world, job, given, happens)])
    assert shown(table) == [("a", 7, "late"), ("b", 8, "y")]


ELSEWHERE: Final = rows(("a", "DE", 1, "new"), ("b", "FR", 1, "new"))
OUTSIDE: Final[dict[str, tuple[Any, pa.Table, str]]] = {
    "rows": ("upsert", ELSEWHERE, r"partitions=\['land=FR'\] declared=\['land=DE'\]"),
    "new rows": ("append", ELSEWHERE, r"partitions=\['land=FR'\]"),
    "deletes": ("delete", ELSEWHERE.select(["id", "land"]), r"partitions=\['land=FR'\] declared=\['land=DE'\]"),
    "an overwrite": ("overwrite", ELSEWHERE, r"not_named=\['land=FR'\] named=\['land=DE'\]"),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_a_task_that_has_rows_of_another_partition_is_refused_and_nothing_is_left(world: Simulated, case: str) -> None:
    table = make(world, merge=PartialUpdate())
    before = shown(table)
    operation, given, said = OUTSIDE[case]
    job = table.jobs.plan(operation, given.schema, partitions=["DE"])
    job.stage(given.slice(0, 1), task=0, environment=world.environment)
    with pytest.raises(InvalidInputError, match=said):
        job.stage(given, task=1, environment=world.environment)
    table.jobs.abandon(job)
    assert (shown(table), tail_of(table).pending) == (before, ())
    assert not world.store.list(".hoodie/.crdt_mor/staged")


def test_a_task_that_sets_another_column_is_refused_under_the_name_that_people_see(world: Simulated) -> None:
    table = make(world, merge=PartialUpdate())
    table.alter(rename={"price": "Total Price", "note": "What for"})
    given = pa.table({"id": ["a"], "land": ["DE"], "What for": ["new"]})
    job = table.jobs.plan("upsert", given.schema, partitions=["DE"], columns=["What for"])
    more = given.append_column("Total Price", pa.array([5]))
    with pytest.raises(InvalidInputError, match=r"columns=\['Total Price'\] declared=\['What for'\]"):
        job.stage(more, task=1, environment=world.environment)
    table.jobs.complete(job, [job.stage(given, task=0, environment=world.environment)])
    assert table.scan(filter="id = 'a'").to_arrow()["What for"].to_pylist() == ["new"]


@pytest.mark.parametrize(
    ("operation", "schema", "declared", "said"),
    [
        ("upsert", SCHEMA, {"columns": ["note"]}, r"columns=\['price'\]"),
        ("delete", SCHEMA, {"columns": ["note"]}, "a delete touches all"),
        ("overwrite", SCHEMA, {"columns": ["note"]}, "an overwrite replaces whole rows"),
        ("upsert", SCHEMA, {"columns": "note"}, "a list of names"),
        ("upsert", SCHEMA, {"partitions": [f"p{n}" for n in range(65)]}, "at most 64 partitions"),
        ("delete", SCHEMA, {"partitions": "dynamic"}, "only for an overwrite"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_anything_begins(
    world: Simulated, operation: Any, schema: pa.Schema, declared: Any, said: str
) -> None:
    table = make(world, merge=PartialUpdate())
    version = table.version
    with pytest.raises(InvalidInputError, match=said):
        table.jobs.plan(operation, schema, **declared)
    assert table.version == version


def test_what_a_write_under_way_has_declared_is_shown(world: Simulated) -> None:
    table = make(world, merge=PartialUpdate())
    table.alter(rename={"note": "What for"})
    table.upsert(pa.table({"id": ["a"], "land": ["DE"], "price": [1]}))
    job = table.jobs.plan("upsert", SCHEMA.remove(2).set(2, pa.field("What for", pa.string())), columns=["What for"])
    overwrite = table.jobs.plan("overwrite", table.schema, partitions=["DE", "FR"])
    for one in (job, overwrite):
        one.stage(table.schema.empty_table().select(["id", "land", "What for"]), task=0, environment=world.environment)
    with again(world).transaction():
        shown = again(world).inspect.pending().select(["partitions", "columns"]).to_pylist()
    assert [tuple(row.values()) for row in shown] == [
        (None, ["What for"]), (["land=DE", "land=FR"], None), (None, None),
    ]  # fmt: skip


def test_an_overwrite_of_more_partitions_than_are_declared_says_nothing(world: Simulated) -> None:
    table = make(world)
    job = table.jobs.plan("overwrite", SCHEMA, partitions=[f"p{n}" for n in range(65)])
    receipt = job.stage(rows(("n", "p1", 1, "")), task=0, environment=world.environment)
    with pytest.raises(EarlierWritePendingError):
        again(world).update({"price": 0}, "land = 'FR'", wait=NOW)
    table.jobs.complete(job, [receipt])
    assert [row[0] for row in shown(table)] == ["a", "b", "n"]

"""A write staged by many processes is the write that one process would have made, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Opening, PartialUpdate, Table
from crdt_mor.errors import SchemaMismatchError, TokenOrderError, WriterExpiredError
from crdt_mor.events import rollback
from crdt_mor.events.session import Session
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.parts import Receipt, WriteJob
from crdt_mor.payloads import Counter, MVRegister, ORSet
from crdt_mor.store.local import LocalStore
from crdt_mor.testing.faults import InterruptedStore, ProcessDied
from crdt_mor.write import job as distributed
from crdt_mor.write import job_files
from tests.inside import run_sweep, session_of, tail_of
from tests.simulated import Simulated
from tests.table.helpers import SCHEMA, Make, Place, Places, data_files, files, frame, rows, sent
from tests.table.staging import PARTS, STAGED, TABLES, leftovers, staged
from tests.tiers import only, slow


@pytest.mark.costly
@pytest.mark.parametrize("joined_rows_min", [0, job_files.JOINED_ROWS_MIN], ids=["joined", "folded"])
@pytest.mark.parametrize("settings", only(["partitioned", "payloads"], TABLES))
def test_staged_in_parts_it_is_what_one_writer_writes(
    places: Places, settings: str, joined_rows_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_files, "JOINED_ROWS_MIN", joined_rows_min)
    one, many = (places(name).create(schema=SCHEMA, key="id", **TABLES[settings]) for name in ("one", "many"))
    for operation, parts in (("upsert", PARTS), ("upsert", PARTS[:2]), ("delete", [PARTS[1].slice(1), PARTS[0]])):
        getattr(one, operation)(pa.concat_tables(parts))
        job = many.jobs.plan(operation, SCHEMA)  # type: ignore[arg-type]
        done = many.jobs.complete(job, staged(job, parts))
        assert rows(many) == rows(one)
        assert done.rows == one.inspect.timeline().to_pylist()[-1]["rows"]
        assert leftovers(places("many")) == []
    names = [name.rpartition("_")[0] for name in data_files(places("many"))]
    assert len(set(names)) == len(names), "one log file for each file group and commit"
    one.maintenance.compact()
    many.maintenance.compact()
    assert rows(many) == rows(one)


def test_blocks_of_tasks_stay_as_they_are_where_no_key_is_in_two_of_them(make: Make, place: Place) -> None:
    """What the driver puts is what the tasks staged, byte for byte; where one key is in two tasks, it is not."""

    def part(first: int, n: int) -> pa.Table:
        return frame(*((f"k{i:05d}", "eu", n, None) for i in range(first, first + job_files.JOINED_ROWS_MIN)))

    table, step = make(buckets=1), job_files.JOINED_ROWS_MIN
    for starts, kept in (((step, 0), True), ((step, 0, 2 * step - 1), False)):
        before = data_files(place)
        job = table.jobs.plan("upsert", SCHEMA)
        receipts = sorted(
            staged(job, [part(first, n) for n, first in enumerate(starts)]), key=lambda receipt: receipt.task
        )
        contents = [place.store.read(file.path) for receipt in receipts for file in receipt.files]
        table.jobs.complete(job, receipts)
        (path,) = data_files(place) - before
        assert (place.store.read(path) == b"".join(filter(None, contents))) is kept
    found = {row[0]: row[2] for row in rows(table)}
    assert found == {f"k{i:05d}": 1 if i < step else 0 if i < 2 * step - 1 else 2 for i in range(3 * step - 1)}
    assert [file["rows"] for file in table.inspect.files().to_pylist()] == [2 * step, 3 * step - 1]


@pytest.mark.slow
def test_columns_that_sets_and_partial_updates_are_written_in_survive_the_fold(places: Places) -> None:
    seen = ("seen", pa.list_(pa.int64()))
    schema = pa.schema([("id", pa.string()), ("tags", pa.list_(pa.string())), seen, ("n", pa.int64())])
    merge = PartialUpdate(columns={"tags": ORSet(), "seen": MVRegister()})
    one, many = (places(n).create(schema=schema, key="id", merge=merge, buckets=1) for n in ("one", "many"))
    add = pa.struct({"add": pa.list_(pa.string())})
    written = pa.schema([("id", pa.string()), ("tags", add), ("seen", pa.int64())])
    parts = [
        pa.table({"id": ["a", "b"], "tags": [{"add": ["x"]}, {"add": ["y"]}], "seen": [1, 2]}, written),
        pa.table({"id": ["a", "a"], "tags": [{"add": ["z"]}, {"add": ["x"]}], "seen": [3, 4]}, written),
    ]
    for _ in range(2):
        one.upsert(pa.concat_tables(parts))
        job = many.jobs.plan("upsert", written)
        many.jobs.complete(job, staged(job, parts))
    assert rows(many) == rows(one)
    assert rows(many)[0][1:3] == (["x", "z"], [4])


def test_more_rows_of_sets_than_can_be_told_apart_are_refused_where_tasks_share_a_group(
    make: Make, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crdt_mor.write.statements.PLACES_PER_TASK", 2)
    schema = pa.schema([("id", pa.string()), ("tags", pa.list_(pa.string()))])
    written = pa.schema([("id", pa.string()), ("tags", pa.struct({"add": pa.list_(pa.string())}))])
    rows_of = [[{"id": key, "tags": {"add": [tag]}} for key in keys] for keys, tag in (("ab", "x"), ("cde", "y"))]
    parts = [pa.Table.from_pylist(some, written) for some in rows_of]
    table = make(schema=schema, merge={"tags": ORSet()}, buckets=1)
    job = table.jobs.plan("upsert", written)
    with pytest.raises(InvalidInputError, match=r"the rows of each file group together.*task=1 rows=3"):
        table.jobs.complete(job, staged(job, parts))
    assert (rows(table), leftovers(place), data_files(place)) == ([], [], set())
    job = table.jobs.plan("upsert", written)
    table.jobs.complete(job, staged(job, [pa.concat_tables(parts)]))  # as many in one task are no trouble
    assert [row[0] for row in rows(table)] == list("abcde")


def test_nothing_begins_before_the_first_task_nor_shows_before_the_end(make: Make, place: Place) -> None:
    table = make()
    job = table.jobs.plan("upsert", SCHEMA)
    assert not tail_of(table).pending
    receipts = staged(job, PARTS)
    assert len(tail_of(table).pending) == 1, "four processes, one write"
    assert data_files(place) == set()
    assert rows(table) == []
    table.jobs.complete(job, receipts)
    assert len(rows(table)) == 44


def test_what_failed_late_and_repeated_tasks_stage_leaves_nothing(make: Make, place: Place) -> None:
    table = make()
    job = table.jobs.plan("upsert", SCHEMA)
    receipts = staged(job, PARTS)
    job.stage(frame(("a", "eu", 99)), task=0)  # another attempt, which Spark does not count
    table.jobs.complete(job, receipts)
    before = rows(table)
    assert ("a", "eu", 99, None) not in before
    assert leftovers(place) == []

    begun = tail_of(table)
    store = place.store  # an attempt that was frozen just before it put its file
    store.put(f"{STAGED}{table.inspect.timeline().to_pylist()[-1]['requested_at']}-{'0' * 32}", b"rows")
    run_sweep(table, begun)
    assert leftovers(place) == []
    assert rows(table) == before


def test_an_empty_frame_is_a_commit_without_rows_as_it_is_for_one_writer(make: Make) -> None:
    table = make()
    stages: list[Callable[[WriteJob], list[Receipt]]] = [lambda job: [], lambda job: staged(job, [frame(), frame()])]
    for receipts in stages:
        job = table.jobs.plan("upsert", SCHEMA)
        assert table.jobs.complete(job, receipts(job)).rows == 0
    assert table.upsert(frame()).rows == 0


def test_a_key_that_stands_in_two_parts_of_an_append_is_an_error(make: Make, place: Place) -> None:
    table = make()
    job = table.jobs.plan("append", SCHEMA)
    receipts = staged(job, [frame(("a", "eu", 1)), frame(("a", "eu", 2))])
    with pytest.raises(InvalidInputError, match="occurs twice in an append"):
        table.jobs.complete(job, receipts)
    assert (rows(table), data_files(place), leftovers(place)) == ([], set(), [])
    assert not tail_of(table).pending


@pytest.mark.parametrize(
    ("operation", "schema", "settings", "says"),
    [
        ("upsert", SCHEMA.remove(0), {}, "give every column"),
        ("upsert", SCHEMA.append(pa.field("new", pa.int64())), {}, "no such columns"),
        ("upsert", SCHEMA.set(2, pa.field("n", pa.string())), {}, "n"),
        ("delete", SCHEMA.remove(0), {}, "a delete needs the columns"),
        ("delete", pa.schema([("id", pa.string())]), {"ordering": "n"}, "plain=True"),
        ("update", SCHEMA, {}, "append, upsert, delete"),
    ],
)
def test_what_is_wrong_about_the_columns_is_said_before_anything_runs(
    make: Make, place: Place, operation: str, schema: pa.Schema, settings: dict[str, object], says: str
) -> None:
    table = make(**settings)
    before = files(place)
    with pytest.raises((InvalidInputError, SchemaMismatchError), match=says):
        table.jobs.plan(operation, schema)  # type: ignore[arg-type]
    assert files(place) == before


def test_the_schema_grows_before_anything_runs(make: Make) -> None:
    table = make()
    wider = SCHEMA.append(pa.field("new", pa.int64()))
    job = table.jobs.plan("upsert", wider, schema_mode="merge")
    assert table.schema.names == wider.names
    table.upsert(pa.table({"id": ["z"], "other": [1]}).join(frame(("z", "eu", 1)), "id").select(
        [*SCHEMA.names, "other"]).append_column("new", pa.array([None], pa.int64())), schema_mode="merge")  # fmt: skip
    part = pa.Table.from_pylist([{"id": "a", "new": 5}], wider)
    table.jobs.complete(job, staged(job, [part]))  # the column that another has added meanwhile is not asked for
    assert rows(table, "id", "new", "other") == [("a", 5, None), ("z", None, 1)]


def test_a_token_counts_once(make: Make) -> None:
    table = make(merge={"n": Counter()})
    part = [frame(("a", "eu", 1))]
    first = table.jobs.plan("upsert", SCHEMA, token=("load", 3))
    twin = table.jobs.plan("upsert", SCHEMA, token=("load", 3))
    receipts, others = staged(first, part), staged(twin, part)
    done = table.jobs.complete(first, receipts)
    assert not done.repeated
    again = table.jobs.complete(twin, others)
    assert (again.repeated, again.version) == (True, done.version)
    assert table.jobs.complete(first, receipts).version == done.version  # the reply was lost
    known = table.jobs.plan("upsert", SCHEMA, token=("load", 3))
    assert staged(known, part)[0].files == ()  # known from the start: nothing is staged
    assert table.jobs.complete(known, staged(known, part)).repeated
    with pytest.raises(TokenOrderError):
        table.jobs.plan("upsert", SCHEMA, token=("load", 2))
    late = table.jobs.plan("upsert", SCHEMA)
    with pytest.raises(TokenOrderError):
        table.jobs.complete(late, staged(late, part), token=("load", 2))
    assert rows(table) == [("a", "eu", 1, None)]
    assert (leftovers(table.uri), tail_of(table).pending) == ([], ())


def test_the_receipts_of_two_attempts_are_refused(make: Make, place: Place) -> None:
    table = make()
    job = table.jobs.plan("upsert", SCHEMA)
    with pytest.raises(InvalidInputError, match="two receipts of the same task"):
        table.jobs.complete(job, [*staged(job, PARTS), job.stage(PARTS[0], task=0)])
    assert (rows(table), leftovers(place)) == ([], [])


def test_abandoned_it_leaves_nothing_and_its_tasks_find_out(make: Make, place: Place) -> None:
    table = make()
    job = table.jobs.plan("upsert", SCHEMA)
    table.jobs.abandon(job)  # nothing has begun
    receipts = staged(job, PARTS)
    table.jobs.abandon(job)
    table.jobs.abandon(job)
    assert (leftovers(place), data_files(place), tail_of(table).pending) == ([], set(), ())
    with pytest.raises(WriterExpiredError):
        job.stage(PARTS[0], task=0)
    with pytest.raises(WriterExpiredError):
        table.jobs.complete(job, receipts)
    assert rows(table) == []


def give_up_pending(table: Table) -> None:
    session = session_of(table)
    for pending in session.tail().pending:
        session.run(rollback.give_up(session.publisher, session.tail(), pending.requested, None))


def test_a_driver_that_was_given_up_publishes_nothing(make: Make, place: Place) -> None:
    table = make()
    job = table.jobs.plan("upsert", SCHEMA)
    receipts = staged(job, PARTS)
    give_up_pending(place.open())
    assert leftovers(place) == []
    with pytest.raises(WriterExpiredError):
        table.jobs.complete(job, receipts)
    assert (rows(table), data_files(place), leftovers(place)) == ([], set(), [])


@pytest.mark.parametrize("committed", [False, True], ids=["given up", "committed"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_task_leaves_nothing_at_whatever_moment_its_write_ends(fast_path: Path, after: bool, committed: bool) -> None:
    """As where another task has failed, or another attempt of this one was faster, and this one still ran."""
    number, came = 0, True
    while came:
        number += 1
        path = fast_path / f"{number}"
        table = Table.create(path, SCHEMA, key="id", partition_by="region")
        job = table.jobs.plan("upsert", SCHEMA)
        receipts = staged(job, PARTS[:2])
        store = InterruptedStore(LocalStore(path))
        session = Session(store, SystemEnvironment(), session_of(table).config, 600_000)

        def end(table: Table = table, job: WriteJob = job, receipts: list[Receipt] = receipts) -> None:
            if committed:
                table.jobs.complete(job, receipts)
            else:
                table.jobs.abandon(job)

        store.arm(number, end, after=after)
        try:
            distributed.stage(session, job.job, lambda _: PARTS[1], 1)
            ended = False
        except WriterExpiredError:
            ended = True
            assert len(rows(table)) == (4 if committed else 0)
            assert data_files(path) == {file["path"] for file in table.inspect.files().to_pylist()}
            assert leftovers(path) == []
        came = store.count >= number
        assert ended == came
    assert number > 2


@pytest.mark.slow
@pytest.mark.parametrize("every", [7, slow(1)])
def test_at_every_moment_of_the_end_a_driver_can_die_or_be_given_up(fast_path: Path, every: int) -> None:
    def run(number: int, interrupt: Callable[[InterruptedStore, Table], None] | None) -> bool:
        """Whether the interruption came; the table then has all rows or none, and after a sweep no other file."""
        path = fast_path / f"{interrupt.__name__ if interrupt else ''}{number}"
        table = Table.create(path, SCHEMA, key="id", partition_by="region")
        job = table.jobs.plan("upsert", SCHEMA)
        receipts = staged(job, PARTS)
        store = InterruptedStore(LocalStore(path))
        driver = Table._of(Session(store, SystemEnvironment(), session_of(table).config, 600_000), str(path))
        assert interrupt is not None
        store.arm(number, lambda: interrupt(store, table))
        try:
            driver.jobs.complete(job, receipts)
            done: bool | None = True
        except WriterExpiredError:
            done = False
        except ProcessDied:
            done = None
        came = store.count >= number
        give_up_pending(table)
        for _ in range(2):
            run_sweep(table)
        found = rows(table)
        assert len(found) in (0, 44)
        if done is not None:
            assert bool(found) is done
        named = {file["path"] for file in table.inspect.files().to_pylist()}
        assert data_files(path) == named
        assert leftovers(path) == []
        return came

    def die(store: InterruptedStore, table: Table) -> None:
        store.die()

    def lose(store: InterruptedStore, table: Table) -> None:
        give_up_pending(table)

    for interrupt in (die, lose):
        number = 1
        while run(number, interrupt):
            number += every
        assert number > 10


def test_tasks_keep_the_write_alive_although_each_is_short(simulated: Simulated) -> None:
    table = simulated.create(SCHEMA, key="id", opening=Opening(writer_expiry=timedelta(milliseconds=400)))
    job = table.jobs.plan("upsert", SCHEMA)
    receipts = []
    for task in range(6):
        rows_of_task = partial(lambda row, _: frame(row), (f"k{task}", "eu", task))
        receipts.append(distributed.stage(session_of(table), job.job, rows_of_task, task))
        simulated.environment.sleep(0.15)
        table.upsert(frame((f"x{task}", "eu", 0)))  # a writer that begins gives up those that are silent
    table.jobs.complete(job, receipts)
    assert len(rows(table)) == 12


def test_file_groups_are_those_that_rows_are_written_to(make: Make, place: Place) -> None:
    table = make(partition_by="region")
    data = pa.concat_tables(PARTS)
    groups = table.jobs.file_groups(data.select(["region", "id"]))
    found = {(row["partition"], row["bucket"]) for row in groups.to_pylist()}
    for partition, bucket in sorted(found):
        mask = pa.array([(r["partition"], r["bucket"]) == (partition, bucket) for r in groups.to_pylist()])
        before = data_files(place)
        table.upsert(data.filter(mask))
        (written,) = data_files(place) - before
        assert written.startswith(f"{partition}/.{bucket:08d}-")
    with pytest.raises(InvalidInputError, match="key and partition columns"):
        table.jobs.file_groups(data.select(["id"]))


def test_only_a_whole_compaction_can_be_completed(make: Make) -> None:
    table = make()
    table.upsert(pa.concat_tables(PARTS))
    before = rows(table)
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    parts = [sent(part) for part in plan.parts()]
    assert len(parts) > 1
    done = [table.maintenance.plans.execute(part) for part in (*parts, parts[0])]
    for some in ([], done[0], [*done[0], *done[-1]]):
        with pytest.raises(InvalidInputError, match="all the plan's file groups"):
            table.maintenance.plans.complete(plan, some)
    compacted = table.maintenance.plans.complete(plan, [file for found in done[:-1] for file in found])
    assert compacted is not None
    assert compacted.file_groups == len(parts)
    assert table.maintenance.plans.open() == []
    assert rows(table) == before == rows(table, consistency="read_optimized")

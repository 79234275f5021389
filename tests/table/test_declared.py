"""What a write declares at its begin that it will touch: who waits for it then, and that it is held to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import (
    EarlierWritePendingError,
    InvalidInputError,
    MemoryStore,
    MergeInto,
    PartDone,
    SchemaMismatchError,
    Table,
    UpdatePart,
)
from crdt_mor.api import lone_transaction
from crdt_mor.model.invariants import BrokenInvariantError, require_invariants
from crdt_mor.payloads import Counter, ORSet, PartialUpdate
from crdt_mor.testing.clock import SimulatedEnvironment
from crdt_mor.write.open_write import OpenWrite
from tests.inside import session_of, store_of

SCHEMA: Final = pa.schema(
    [("id", pa.string()), ("land", pa.string()), ("price", pa.int64()), ("note", pa.string()), ("seen", pa.int64())]
)
NOW: Final = timedelta(0)
PROCESSES: Final = count()


def rows(*given: tuple[str, str, int | None, str | None]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": i, "land": land, "price": price, "note": note, "seen": 0} for i, land, price, note in given], SCHEMA
    )


def make(**settings: Any) -> Table:
    kind = {"store": MemoryStore(), "key": "id", "buckets": 2, "partition_by": ["land"], **settings}
    table = Table.create("memory", SCHEMA, **kind)
    table.upsert(rows(("a", "DE", 1, "x"), ("b", "FR", 2, "y"), ("c", "IT", 3, None)))
    return table


def again(table: Table) -> Table:
    """The table as another process has it open, in which nobody sleeps for real."""
    return Table.open("memory", store=store_of(table), environment=SimulatedEnvironment(stem=f"p{next(PROCESSES)}"))


def prices(table: Table) -> dict[str, int | None]:
    return dict(table.scan(columns=["id", "price"]).to_polars().sort("id").rows())


@contextmanager
def backfill(table: Table, **declared: Any) -> Iterator[Any]:
    """A long write that began before all that is done in the block, and ends after it."""
    with again(table).transaction(commit_info={"application": "backfill"}, **declared) as tx:
        yield tx


def all_of(parts: Sequence[UpdatePart]) -> list[PartDone]:
    """What becomes of all parts, done here."""
    return [part.execute() for part in parts]


Work = Callable[[Table], object]

WAITING: Final[dict[str, tuple[Work, bool, bool]]] = {
    "update of that partition": (lambda t: t.update({"price": 0}, "land = 'DE'", wait=NOW), True, True),
    "update of another one": (lambda t: t.update({"price": 0}, "land = 'FR'", wait=NOW), False, True),
    "update of all others": (lambda t: t.update({"price": 0}, "land <> 'DE' AND price > 1", wait=NOW), False, False),
    "update of all": (lambda t: t.update({"price": 0}, wait=NOW), True, True),
    "update of a price": (lambda t: t.update({"price": "price + 1"}, "price > 0", wait=NOW), True, False),
    "update of a null": (lambda t: t.update({"price": 7}, "price IS NULL", wait=NOW), True, True),
    "update by note": (lambda t: t.update({"price": 7}, "note = 'x'", wait=NOW), True, True),
    "update of a note": (lambda t: t.update({"note": "'z'"}, "price > 0", wait=NOW), True, True),
    "update in parts of another one": (
        lambda t: t.update_in_parts({"price": 0}, "land = 'FR'", execute_parts=all_of, wait=NOW),
        False,
        True,
    ),
    "delete in parts": (
        lambda t: t.delete_in_parts("price > 1", execute_parts=all_of, wait=NOW),
        True,
        False,
    ),
    "delete of a price": (lambda t: t.delete(where="price > 2", wait=NOW), True, False),
    "delete of others": (lambda t: t.delete(where="land IN ('FR', 'IT')", wait=NOW), False, True),
    "delete by key": (lambda t: t.delete(pl.DataFrame({"id": ["a"], "land": ["DE"]})), False, False),
    "upsert": (lambda t: t.upsert(rows(("a", "DE", 5, "w"))), False, False),
    "merge": (
        lambda t: t.merge(rows(("b", "FR", 9, "w")), wait=NOW).when_matched_update({"price": 9}).execute(),
        True,
        True,
    ),
    "merge of a partition": (
        lambda t: (
            t.merge(rows(("b", "FR", 9, "w")), on=["id", "land"], wait=NOW).when_matched_update({"price": 9}).execute()
        ),
        False,
        True,
    ),
    "block that reads that partition": (lambda t: read(t, filter="land = 'DE'"), True, True),
    "block that reads another one": (lambda t: read(t, filter="land = 'FR'"), False, True),
    "block that reads prices": (lambda t: read(t, columns=["id", "price"], filter="price > 1"), True, False),
    "block that reads all prices": (lambda t: read(t, columns=["id", "price"]), True, True),
    "block that reads times": (lambda t: read(t, columns=["price"], filter="price > 1", meta=True), True, True),
}
"""What is done meanwhile, and whether it waits for a write of a partition, or of the column note."""


def read(table: Table, **what: Any) -> None:
    with table.transaction(isolation="serializable", wait=NOW) as tx:
        tx.scan(**what).to_arrow()


@pytest.mark.costly
@pytest.mark.parametrize("declared", [{"partitions": ["DE"]}, {"columns": ["note"]}], ids=str)
@pytest.mark.parametrize("work", [*WAITING])
def test_who_waits_for_a_write_that_says_what_it_touches(work: str, declared: dict[str, Any]) -> None:
    table = make(merge=PartialUpdate())
    do, for_partition, for_columns = WAITING[work]
    with backfill(table, **declared) as tx:
        tx.upsert(pa.table({"id": ["a"], "land": ["DE"], "note": ["late"]}))
        if for_partition if "partitions" in declared else for_columns:
            scope = rf"by=backfill .*{next(iter(declared))}=\['.*{next(iter(declared.values()))[0]}'\] writes=1"
            with pytest.raises(EarlierWritePendingError, match=scope):
                do(again(table))
        else:
            do(again(table))


def test_a_write_that_says_nothing_is_waited_for() -> None:
    table = make()
    with backfill(table), pytest.raises(EarlierWritePendingError, match=r"declare other partitions= or columns="):
        again(table).update({"price": 0}, "land = 'FR'", wait=NOW)


IN_DE: Final = ({"price": 10}, "land = 'DE'")
IN_FR: Final = ({"price": 20}, "land = 'FR'")
DISJOINT: Final[dict[str, tuple[dict[str, Any], Any, Any, list[Any]]]] = {
    "partitions": ({}, IN_DE, IN_FR, [(10, "x"), (20, "y"), (3, None)]),
    "conditions": (
        {}, ({"price": 10}, "land IN ('DE', 'IT')"), ({"price": 20}, "land <> 'DE' AND land <> 'IT'"),
        [(10, "x"), (20, "y"), (10, None)],
    ),
    "columns": ({"merge": PartialUpdate()}, ({"note": "'n'"}, None), IN_FR, [(1, "n"), (20, "n"), (3, "n")]),
    "columns, by a condition": (
        {"merge": PartialUpdate()}, ({"note": "'n'"}, None), ({"price": "price * 10"}, "price = 2"),
        [(1, "n"), (20, "n"), (3, "n")],
    ),
}  # fmt: skip
"""Two updates that touch different things: the settings of the table, the two, and what they make of price and note."""


@pytest.mark.parametrize("name", [*DISJOINT])
def test_updates_that_touch_different_things_do_not_wait_for_each_other(name: str) -> None:
    settings, first, second, expected = DISJOINT[name]
    table = make(**settings)

    def happens() -> None:
        again(table).update(*second, wait=NOW)

    with in_the_middle(happens):
        again(table).update(*first)
    found = table.scan().to_polars().sort("id").select("price", "note").rows()
    assert found == expected


@contextmanager
def in_the_middle(happens: Callable[[], None]) -> Iterator[None]:
    """The first write that begins from now on finds that something happens before it reads."""
    settle, happened = OpenWrite.settle, list[int]()

    def first(write: OpenWrite, *rest: Any) -> Any:
        if not happened:
            happened.append(1)
            happens()
        return settle(write, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenWrite, "settle", first)
        patch.setattr(lone_transaction, "_tried", lambda *_: None)
        yield
    assert happened


def test_a_merge_says_which_partitions_it_touches() -> None:
    table = make()
    seen = list[object]()

    def happens() -> None:
        seen.extend(pending.declared.partitions for pending in session_of(table).tail().pending)

    source = rows(("a", "DE", 5, "m"), ("n", "FR", 6, "m"))

    def by_place() -> MergeInto:
        return table.merge(source, on=["id", "land"])

    for plan in (
        by_place().when_matched_update_all().when_not_matched_insert_all(),
        by_place().when_matched_update({"land": "source.land", "price": 7}),
        by_place().when_not_matched_insert({"id": "source.id", "land": "'IT'"}),
        by_place().when_matched_delete().when_not_matched_by_source_update({"price": 0}),
        table.merge(source, on="id").when_matched_delete(),
        by_place().when_matched_update({"land": pl.lit("IT")}),
        by_place().when_matched_update({"land": None}),
    ):
        with in_the_middle(happens):
            plan.execute()
    both = ("land=DE", "land=FR")
    assert seen == [both, both, None, None, None, None, None]


OUTSIDE: Final[dict[str, tuple[dict[str, Any], Callable[[Any], object], str]]] = {
    "rows": ({"partitions": ["DE"]}, lambda tx: tx.upsert(rows(("a", "FR", 1, "x"))), r"partitions=\['land=FR'\]"),
    "deletes": (
        {"partitions": ["DE"]},
        lambda tx: tx.delete(pl.DataFrame({"id": ["b"], "land": ["FR"]})),
        r"partitions=\['land=FR'\] declared=\['land=DE'\]",
    ),
    "rows of a filter": (
        {"partitions": ["DE"]},
        lambda tx: tx.delete(where="price > 1"),
        r"partitions=\['land=FR', 'land=IT'\]",
    ),
    "columns": (
        {"columns": ["note"]},
        lambda tx: tx.upsert(pa.table({"id": ["a"], "land": ["DE"], "price": [1]})),
        r"columns=\['price'\]",
    ),
    "a new column": (
        {"columns": ["note"]},
        lambda tx: tx.upsert(pa.table({"id": ["a"], "land": ["DE"], "new": [1]}), schema_mode="merge"),
        r"columns=\['new'\]",
    ),
    "any delete": ({"columns": ["note"]}, lambda tx: tx.delete(where="price > 1"), "a delete touches all"),
    "an overwrite of all": (
        {"partitions": ["DE"]},
        lambda tx: tx.overwrite(rows(("a", "DE", 1, "x"))),
        "replaces more",
    ),
    "an overwrite": (
        {"partitions": ["DE"]},
        lambda tx: tx.overwrite(rows(("a", "FR", 1, "x")), partitions=["FR"]),
        r"partitions=\['land=FR'\]",
    ),
    "partitions": ({"partitions": ["DE"]}, lambda tx: tx.delete_partitions(["DE", "IT"]), r"partitions=\['land=IT'\]"),
    "everything": ({"partitions": ["DE"]}, lambda tx: tx.truncate(), "replaces more"),
}


@pytest.mark.parametrize("name", [*OUTSIDE])
def test_a_write_is_held_to_what_it_has_declared(name: str) -> None:
    table = make(merge=PartialUpdate())
    declared, do, said = OUTSIDE[name]
    before = table.scan().to_polars().sort("id").rows()
    with pytest.raises(InvalidInputError, match=said), again(table).transaction(**declared) as tx:
        do(tx)
    assert table.scan().to_polars().sort("id").rows() == before
    assert table.schema.names == SCHEMA.names
    assert table.inspect.pending().num_rows == 0


def test_what_is_declared_may_be_written() -> None:
    table = make(merge=PartialUpdate())
    with table.transaction(partitions=["DE", {"land": "IT"}], columns=["id", "note"]) as tx:
        tx.upsert(pa.table({"id": ["a", "c"], "land": ["DE", "IT"], "note": ["p", "q"]}))
    with table.transaction(partitions=["FR"]) as tx:
        tx.overwrite(rows(("z", "FR", 9, None)), partitions=["FR"])
    found = table.scan(columns=["id", "price", "note"]).to_polars().sort("id").rows()
    assert found == [("a", 1, "p"), ("c", 3, "q"), ("z", 9, None)]


@pytest.mark.parametrize(
    ("settings", "declared", "said"),
    [
        ({}, {"columns": ["note"]}, "contain whole rows"),
        ({"merge": PartialUpdate()}, {"columns": "note"}, "a list of names"),
        ({"merge": PartialUpdate()}, {"columns": [f"c{n}" for n in range(65)]}, "at most 64 columns"),
        ({}, {"partitions": "DE"}, "pass partitions as a list"),
        ({"partition_by": []}, {"partitions": ["DE"]}, "has no partitions"),
        ({}, {"partitions": [f"p{n}" for n in range(65)]}, "at most 64 partitions"),
    ],
    ids=str,
)
def test_what_cannot_be_declared_is_refused_and_nothing_begins(
    settings: dict[str, Any], declared: dict[str, Any], said: str
) -> None:
    table = make(**settings)
    version = table.version
    with pytest.raises(InvalidInputError, match=said), table.transaction(**declared):
        pass
    assert table.version == version


def test_a_write_that_declares_nothing_has_the_same_bytes() -> None:
    table = make(merge=PartialUpdate())
    with table.transaction(), again(table).transaction(partitions=["DE"], columns=["note"]):
        document = json.loads(session_of(table).tail().encode())
        plain, declared = document["pending"]
    assert len(plain) == 5
    assert declared[5:] == [{"partitions": ["land=DE"], "columns": ["note"]}]


def test_no_version_completes_a_write_outside_of_its_declaration() -> None:
    table = make()
    with again(table).transaction(partitions=["DE"]) as tx:
        tx.upsert(rows(("a", "DE", 1, "x")))
        before = session_of(table).tail()
        (pending,) = before.pending
        completion = next(c for c in before.completions if any(f.partition == "land=FR" for f in c.files))
        wrong = before.complete("nonce", 0, pending.requested, "UPSERT", completion.files)
        with pytest.raises(BrokenInvariantError, match="a_write_keeps_to_what_it_has_declared"):
            require_invariants(before, wrong)


def test_where_payloads_ask_what_was_seen_all_is_waited_for() -> None:
    schema = pa.schema([("id", pa.string()), ("land", pa.string()), ("tags", pa.list_(pa.string()))])
    table = Table.create(
        "memory", schema, store=MemoryStore(), key="id", partition_by=["land"], merge={"tags": ORSet()}
    )
    table.upsert(pa.table({"id": ["a"], "land": ["FR"], "tags": [["x"]]}, schema=schema))
    with backfill(table, partitions=["DE"]), pytest.raises(EarlierWritePendingError):
        again(table).update({"tags": pl.lit([], dtype=pl.List(pl.String))}, "land = 'FR'", wait=NOW)


def test_a_row_that_comes_may_meet_a_condition_on_a_payload() -> None:
    """A counter that was never written may show more than null."""
    schema = pa.schema([("id", pa.string()), ("n", pa.int64()), ("note", pa.string())])
    table = Table.create("memory", schema, store=MemoryStore(), key="id", merge=PartialUpdate(columns={"n": Counter()}))
    with backfill(table, columns=["note"]), pytest.raises(EarlierWritePendingError):
        again(table).update({"n": 1}, "n > 0", wait=NOW)


def test_a_block_takes_the_columns_that_others_have_added_between_its_statements() -> None:
    table = make()
    straggler = again(table).transaction(partitions=["FR"])
    straggler.__enter__()
    with again(table).transaction(isolation="serializable") as tx:
        tx.upsert(rows(("a", "DE", 10, "x")))
        more = rows(("b", "FR", 20, "y")).append_column("new", pa.array([5]))
        straggler.upsert(more, schema_mode="merge")
        straggler.__exit__(None, None, None)
        tx.update({"price": "price + 1"}, "land = 'FR'")
        with pytest.raises(SchemaMismatchError, match="newer"):
            tx.upsert(rows(("d", "DE", 1, "x")).append_column("newer", pa.array([5])))
    found = table.scan(columns=["id", "price", "new"]).to_polars().sort("id").rows()
    assert found == [("a", 10, None), ("b", 21, 5), ("c", 3, None)]

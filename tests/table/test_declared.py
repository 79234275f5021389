"""What a write declares at its begin that it will touch: who waits for it then, and that it is held to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, MergeInto, Opening, Table
from crdt_mor.api import commit
from crdt_mor.errors import EarlierWritePendingError, SchemaMismatchError
from crdt_mor.model import timeline_json
from crdt_mor.model.declared import KEYS_MAX, Declared, declared_json, declared_of, key_name
from crdt_mor.model.invariants import BrokenInvariantError, require_invariants
from crdt_mor.parts import PartDone, UpdatePart
from crdt_mor.payloads import Counter, ORSet, PartialUpdate
from crdt_mor.planners.way import CLOSED
from crdt_mor.store import MemoryStore
from crdt_mor.testing.clock import SimulatedEnvironment
from crdt_mor.write.declaring import begin
from crdt_mor.write.open_write import OpenWrite
from crdt_mor.write.statements import RowsStatement, Statements
from tests.inside import session_of, store_of

SCHEMA: Final = pa.schema(
    [("id", pa.string()), ("land", pa.string()), ("price", pa.int64()), ("note", pa.string()), ("seen", pa.int64())]
)
NOW: Final = timedelta(0)
PROCESSES: Final = count()
KEYS: Final = [f"k{n}" for n in range(KEYS_MAX)]


def rows(*given: tuple[str, str, int | None, str | None]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": i, "land": land, "price": price, "note": note, "seen": 0} for i, land, price, note in given], SCHEMA
    )


def make(**settings: Any) -> Table:
    kind = {"opening": Opening(store=MemoryStore()), "key": "id", "buckets": 2, "partition_by": ["land"], **settings}
    table = Table.create("memory", SCHEMA, **kind)
    table.upsert(rows(("a", "DE", 1, "x"), ("b", "FR", 2, "y"), ("c", "IT", 3, None)))
    return table


def again(table: Table) -> Table:
    """The table as another process has it open, in which nobody sleeps for real."""
    return Table(
        "memory", opening=Opening(store=store_of(table), environment=SimulatedEnvironment(stem=f"p{next(PROCESSES)}"))
    )


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
        lambda t: t.update({"price": 0}, "land = 'FR'", execute_parts=all_of, wait=NOW),
        False,
        True,
    ),
    "delete in parts": (
        lambda t: t.delete(where="price > 1", execute_parts=all_of, wait=NOW),
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
            kind, (name,) = next(iter(declared.items()))
            scope = rf"'backfill' began the write \d+ s ago, and it may write only {kind} (land=)?{name}\..* writes=1"
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
    "keys": (
        {}, ({"price": 10}, "id = 'a'"), ({"price": 20}, "id IN ('b', 'c')"), [(10, "x"), (20, "y"), (20, None)]
    ),
    "keys and more": (
        {}, ({"price": 10}, "id = 'a' AND price > 0"), ({"price": 20}, "note = 'y' AND id = 'b'"),
        [(10, "x"), (20, "y"), (3, None)],
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
        patch.setattr(commit, "_in_one_event", lambda *_: CLOSED)
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


def declared_while(table: Table, work: Work) -> Declared:
    """Return the declaration with which a statement has begun."""
    seen = list[Declared]()
    with in_the_middle(lambda: seen.extend(p.declared for p in session_of(table).tail().pending)):
        work(table)
    (declared,) = seen
    return declared


OF_KEYS: Final[dict[str, tuple[Work, list[str] | None]]] = {
    "update by key": (lambda t: t.update({"price": 0}, "id = 'a'"), ["a"]),
    "update by keys": (lambda t: t.update({"price": 0}, "id IN ('b', 'a') AND price > 1"), ["a", "b"]),
    "update by two conditions": (lambda t: t.update({"price": 0}, "id = 'a' OR id = 'c'"), ["a", "c"]),
    "update by no key": (lambda t: t.update({"price": 0}, "id = 'a' AND id = 'b'"), []),
    "update by another column": (lambda t: t.update({"price": 0}, "id = 'a' OR price = 1"), None),
    "update by a part of keys": (lambda t: t.update({"price": 0}, "id > 'a'"), None),
    "update of all": (lambda t: t.update({"price": 0}), None),
    "update by 100 keys": (lambda t: t.update({"price": 0}, pl.col("id").is_in(KEYS)), KEYS),
    "update by 101 keys": (lambda t: t.update({"price": 0}, pl.col("id").is_in([*KEYS, "a"])), None),
    "delete": (lambda t: t.delete(where="id = 'b' AND price = 2"), ["b"]),
    "merge": (lambda t: met(t).when_matched_update_all().when_not_matched_insert_all().execute(), ["a", "n"]),
    "merge of given values": (
        lambda t: met(t).when_not_matched_insert({"id": "source.id", "land": "'IT'"}).execute(), ["a", "n"]
    ),
    "merge of new keys": (
        lambda t: met(t).when_not_matched_insert({"id": "'z' || source.id", "land": "'IT'"}).execute(), None
    ),
    "merge by another column": (lambda t: met(t, on="note").when_matched_update({"price": 1}).execute(), None),
    "merge of all others": (
        lambda t: met(t).when_matched_delete().when_not_matched_by_source_update({"price": 0}).execute(), None
    ),
    "move": (lambda t: t.move(["c"], partition={"land": "DE"}), ["c"]),
}  # fmt: skip
"""A statement, and the record keys that it may touch; None: any."""


def met(table: Table, on: str = "id") -> MergeInto:
    return table.merge(rows(("a", "DE", 5, "m"), ("n", "FR", 6, "m")), on=on)


@pytest.mark.parametrize("name", [*OF_KEYS])
def test_a_statement_whose_condition_names_keys_declares_them(name: str) -> None:
    work, keys = OF_KEYS[name]
    expected = None if keys is None else tuple(sorted(map(key_name, keys)))
    assert declared_while(make(), work).keys == expected


def test_a_key_of_several_columns_is_declared_whole() -> None:
    table = make(key=["id", "land"])
    by_both = declared_while(table, lambda t: t.update({"price": 0}, "id = 'a' AND land = 'DE'"))
    by_one = declared_while(table, lambda t: t.update({"price": 0}, "id = 'a'"))
    assert by_both.keys == (key_name("id:a,land:DE"),)
    assert by_one.keys is None


@pytest.mark.parametrize("name", ["update", "merge", "move"])
def test_a_renamed_key_column_is_declared_by_its_keys(name: str) -> None:
    table = make()
    table.alter(rename={"id": "key"})
    source = pa.table({"key": ["a"], "land": ["DE"], "price": [5]})
    work: dict[str, Work] = {
        "update": lambda t: t.update({"price": 0}, "key = 'a'"),
        "merge": lambda t: t.merge(source).when_matched_update({"price": "source.price"}).execute(),
        "move": lambda t: t.move(["a"], partition={"land": "FR"}),
    }
    assert declared_while(table, work[name]).keys == (key_name("a"),)


def test_parts_of_an_update_of_keys_are_held_to_them() -> None:
    table = make()
    declared: list[Declared] = []

    def noted(parts: Sequence[UpdatePart]) -> list[PartDone]:
        declared.extend(pending.declared for pending in session_of(table).tail().pending)
        return all_of(parts)

    table.update({"price": 0}, "id = 'a'", execute_parts=noted)
    assert declared == [declared_of(None, None, False, ["a"])]
    assert prices(table) == {"a": 0, "b": 2, "c": 3}


@contextmanager
def of_key(table: Table, key: str) -> Iterator[OpenWrite]:
    """An update of one key, which has begun and has written nothing yet."""
    write = begin(session_of(again(table)), None, (), lambda _: declared_of(None, None, False, [key]))
    yield write
    write.abandon()


BESIDE_A: Final[dict[str, tuple[Work, bool]]] = {
    "update of the key": (lambda t: t.update({"price": 0}, "id = 'a'", wait=NOW), True),
    "update of another key": (lambda t: t.update({"price": 0}, "id = 'b'", wait=NOW), False),
    "update of that and another key": (lambda t: t.update({"price": 0}, "id IN ('a', 'b')", wait=NOW), True),
    "update by price": (lambda t: t.update({"price": 0}, "price = 2", wait=NOW), True),
    "delete of another key": (lambda t: t.delete(where="id = 'b'", wait=NOW), False),
    "delete of the key": (lambda t: t.delete(where="id = 'a'", wait=NOW), True),
    "merge of the key": (
        lambda t: t.merge(rows(("a", "DE", 5, "m")), wait=NOW).when_matched_update_all().execute(), True
    ),
    "merge of another key": (
        lambda t: t.merge(rows(("b", "FR", 5, "m")), wait=NOW).when_matched_update_all().execute(), False
    ),
    "move of the key": (lambda t: t.move(["a"], partition={"land": "FR"}, wait=NOW), True),
    "move of another key": (lambda t: t.move(["b"], partition={"land": "DE"}, wait=NOW), False),
    "block that reads the key": (lambda t: read(t, filter="id = 'a'"), True),
    "block that reads another key": (lambda t: read(t, filter="id = 'b'"), False),
    "block that reads all": (read, True),
    "upsert of the key": (lambda t: t.upsert(rows(("a", "DE", 5, "w"))), False),
}  # fmt: skip
"""A statement beside an update of the key a, and whether the statement waits."""


@pytest.mark.parametrize("name", [*BESIDE_A])
def test_a_statement_waits_for_an_update_of_keys_only_if_it_reads_one_of_them(name: str) -> None:
    table = make()
    do, waits = BESIDE_A[name]
    with of_key(table, "a"):
        assert table.inspect.pending()["keys"].to_pylist() == [1]
        if waits:
            with pytest.raises(EarlierWritePendingError, match=r"may write only rows of 1 key\..* writes=1"):
                do(again(table))
        else:
            do(again(table))


def test_after_a_version_of_a_release_that_does_not_know_keys_all_updates_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make()
    with of_key(table, "a"):
        again(table).update({"price": 0}, "id = 'b'", wait=NOW)
        with monkeypatch.context() as older:
            older.setattr(timeline_json, "declared_json", without_keys)
            again(table).upsert(rows(("c", "IT", 7, None)))
        assert table.inspect.pending()["keys"].to_pylist() == [None]
        with pytest.raises(EarlierWritePendingError, match=r"may write any row\."):
            again(table).update({"price": 0}, "id = 'b'", wait=NOW)
    assert table.verify().findings == ()


def without_keys(declared: Declared) -> dict[str, object]:
    return declared_json(replace(declared, keys=None))


OUT_OF_KEYS: Final[dict[str, Callable[[Statements], None]]] = {
    "rows": lambda statements: statements.add(RowsStatement("UPSERT", rows(("a", "DE", 1, "x"), ("b", "FR", 1, "x")))),
    "deletes": lambda statements: statements.add(RowsStatement("DELETE", rows(("b", "FR", 1, "x")))),
}


@pytest.mark.parametrize("name", [*OUT_OF_KEYS])
def test_a_write_of_declared_keys_is_held_to_them(name: str) -> None:
    with of_key(make(), "a") as write:
        with pytest.raises(InvalidInputError, match=r"other keys than its condition allows.* keys=\['b'\] declared=1"):
            OUT_OF_KEYS[name](write.statements)
        assert not write.statements.collected


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
        "memory", schema, opening=Opening(store=MemoryStore()), key="id", partition_by=["land"], merge={"tags": ORSet()}
    )
    table.upsert(pa.table({"id": ["a"], "land": ["FR"], "tags": [["x"]]}, schema=schema))
    with backfill(table, partitions=["DE"]), pytest.raises(EarlierWritePendingError):
        again(table).update({"tags": pl.lit([], dtype=pl.List(pl.String))}, "land = 'FR'", wait=NOW)


def test_a_row_that_comes_may_meet_a_condition_on_a_payload() -> None:
    """A counter that was never written may show more than null."""
    schema = pa.schema([("id", pa.string()), ("n", pa.int64()), ("note", pa.string())])
    table = Table.create(
        "memory", schema, opening=Opening(store=MemoryStore()), key="id", merge=PartialUpdate(columns={"n": Counter()})
    )
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

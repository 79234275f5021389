"""Single cells set to null in a table in which upserted nulls leave values, `PartialUpdate(nulls="keep")`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor import InvalidInputError, Opening, Table
from crdt_mor.merge.blocks import DataBlock
from crdt_mor.parts import MergePart, MergeSpread, PartDone, UpdatePart
from crdt_mor.payloads import Counter, PartialUpdate
from crdt_mor.read.open_slice import open_slice
from crdt_mor.store import MemoryStore
from crdt_mor.testing.clock import SimulatedEnvironment
from tests.inside import session_of
from tests.posting import in_a_crowd, post
from tests.tiers import one_in

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.string()), ("n", pa.int64())])


def made(**given: Any) -> Table:
    settings: dict[str, Any] = {"merge": PartialUpdate(nulls="keep", columns={"n": Counter()})}
    settings["opening"] = Opening(store=MemoryStore(), memory_limit=given.pop("memory_limit", None))
    schema = given.pop("schema", SCHEMA)
    return Table.create("memory://t", schema, key="id", buckets=1, **settings | given)


def row(**values: Any) -> pa.Table:
    values = {"id": 1} | values
    return pa.Table.from_pylist([values], pa.schema([SCHEMA.field(name) for name in values]))


def shown(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(found.values()) for found in table.to_arrow().to_pylist())


WRITES: dict[str, tuple[Callable[[Any], None], dict[str, Any]]] = {
    "null": (lambda to: to.upsert(row(a=None), nulls={"a"}), {"a": None}),
    "left": (lambda to: to.upsert(row(a=None, b="left")), {"b": "left"}),
    "text": (lambda to: to.upsert(row(a="text")), {"a": "text"}),
}
"""Writes, with the values that each sets."""


@pytest.mark.parametrize(("begins", "ends"), one_in(12, product(permutations(WRITES), permutations(WRITES))))
def test_in_any_order_the_last_begun_write_of_a_column_counts(begins: tuple[str, ...], ends: tuple[str, ...]) -> None:
    for moment in range(-1, 4):
        table = made()
        table.upsert(row(a="x", b="y", n=1))
        expected: dict[str, Any] = {"id": 1, "a": "x", "b": "y", "n": 1}
        blocks = {name: table.transaction().__enter__() for name in begins}
        for name in begins:
            WRITES[name][0](blocks[name])
            expected |= WRITES[name][1]
        for number, name in enumerate(ends):
            if number == moment:
                table.maintenance.compact()
            blocks[name].__exit__(None, None, None)
        if moment == len(ends):
            table.maintenance.compact()
        assert table.to_arrow().to_pylist() == [expected]
        assert table.verify(deep=True).findings == ()
        table.maintenance.compact()
        assert table.to_arrow().to_pylist() == [expected]


def test_a_key_that_is_written_several_times_in_a_block_is_folded_in_order() -> None:
    table = made()
    table.upsert(row(a="x", b="y"))
    with table.transaction() as tx:
        tx.upsert(row(a=None, b=None), nulls="a")
        tx.upsert(row(b=None), nulls={"b"})
        tx.upsert(row(b="new"))
    assert shown(table) == [(1, None, "new", None)]


def test_only_rows_with_a_set_null_are_in_marked_blocks() -> None:
    table = made()
    rows = pa.Table.from_pylist([{"id": i, "a": None if i % 2 else "x", "b": None} for i in range(4)], SCHEMA)
    table.upsert(rows, nulls={"b", "a"})
    table.upsert(row(a="x"), nulls={"a"})
    with table.transaction() as tx:
        tx.upsert(row(id=7, a=None), nulls="a")
        tx.upsert(row(id=8, a=None))
    session = session_of(table)
    (opened,) = [open_slice(session.store, s, session.config) for s in table.scan()._snapshot.slices]
    marks = [block.nulls for block in opened.blocks if isinstance(block, DataBlock)]
    assert sorted(marks) == [(), (), ("a",), ("a", "b")]


def test_a_large_write_keeps_the_marks_of_its_parts() -> None:
    table = made(memory_limit=1)
    table.upsert(pa.table({"id": range(9), "a": ["x"] * 9, "b": ["y"] * 9}))
    nulls = pa.table(
        {"id": range(9), "a": pa.array([None, "z"] * 4 + [None], pa.string()), "b": pa.nulls(9, pa.string())}
    )
    table.upsert(pa.RecordBatchReader.from_batches(nulls.schema, nulls.to_batches(2)), nulls={"a"})
    assert shown(table) == [(i, "z" if i % 2 else None, "y", None) for i in range(9)]


def test_a_posted_write_keeps_its_marks() -> None:
    clock = SimulatedEnvironment()
    table = made(opening=Opening(store=MemoryStore(clock.now_ms), environment=clock))
    table.upsert(pa.table({"id": [1, 2], "a": ["x", "x"], "b": ["y", "y"]}))
    post(table, row(a=None, b=None), nulls=("a",))
    in_a_crowd(table).upsert(row(id=2, a=None, b=None), nulls="b")
    assert shown(table) == [(1, None, "y", None), (2, "x", None, None)]


def test_an_update_in_parts_sets_null() -> None:
    table = made()
    table.upsert(row(a="x", b="y"))

    def execute(parts: Sequence[UpdatePart]) -> list[PartDone]:
        return [part.execute() for part in parts]

    table.update({"a": mor.NULL}, execute_parts=execute)
    assert shown(table) == [(1, None, "y", None)]


def merged(table: Table, source: pa.Table) -> mor.MergeInto:
    return table.merge(source, on="id")


def in_parts(table: Table, source: pa.Table) -> None:
    def execute(parts: Sequence[MergePart], spread: MergeSpread) -> list[PartDone]:
        return [part.execute(source) for part in parts]

    merge = table.merge(source.schema.empty_table(), on="id", execute_parts=execute, parts=1)
    merge.when_not_matched_insert({"id": "source.id", "lsn": "source.lsn", "a": mor.NULL}).execute()


def inserted(table: Table, source: pa.Table, null: object) -> None:
    values = {"id": "source.id", "lsn": "source.lsn", "a": null}
    merged(table, source).when_not_matched_insert(values).execute()


SETS_NULL: dict[str, tuple[bool, Callable[[Table, pa.Table], object]]] = {
    "update": (True, lambda table, _: table.update({"a": mor.NULL}, where="id = 1")),
    "merge, update": (True, lambda table, source: merged(table, source).when_matched_update({"a": "NULL"}).execute()),
    "upsert": (False, lambda table, source: table.upsert(source, nulls={"a"})),
    "merge, insert": (False, lambda table, source: inserted(table, source, mor.NULL)),
    "merge, insert None": (False, lambda table, source: inserted(table, source, None)),
    "merge, insert SQL": (False, lambda table, source: inserted(table, source, "NULL")),
    "merge, insert all": (False, lambda table, source: merged(table, source).when_not_matched_insert_all().execute()),
    "merge, insert in parts": (False, in_parts),
}
"""Whether the row is there before, and a way to set `a` to null."""


@pytest.mark.parametrize("way", [*SETS_NULL])
def test_under_an_ordering_column_a_set_null_wins_and_a_column_left_out_is_open(way: str) -> None:
    is_there, set_null = SETS_NULL[way]
    table = made(merge=PartialUpdate(nulls="keep"), schema=pa.schema([*SCHEMA, ("lsn", pa.int64())]), ordering="lsn")
    if is_there:
        table.upsert(pa.table({"id": [1], "a": ["x"], "lsn": [5]}))
    set_null(table, pa.table({"id": [1], "a": pa.nulls(1, pa.string()), "lsn": [5]}))
    for compacted in (False, True):
        table.upsert(pa.table({"id": [1], "a": ["late"], "b": ["late"], "lsn": [3]}))
        assert shown(table) == [(1, None, "late", None, 5)]
        assert table.verify(deep=True).findings == ()
        if not compacted:
            table.maintenance.compact()


@pytest.mark.parametrize("nulls", ["keep", "value"])
def test_a_column_that_only_another_insert_clause_gives_is_left(nulls: Any) -> None:
    table = made(merge=PartialUpdate(nulls=nulls), schema=pa.schema([*SCHEMA, ("lsn", pa.int64())]), ordering="lsn")
    merge = merged(table, pa.table({"id": [1, 2], "lsn": [5, 5]}))
    key = {"id": "source.id", "lsn": "source.lsn"}
    merge = merge.when_not_matched_insert(key | {"a": "NULL"}, "source.id = 1")
    done = merge.when_not_matched_insert(key | {"b": "NULL"}).execute()
    assert (done.inserted, done.clauses) == (2, (1, 1))
    table.upsert(pa.table({"id": [1, 2], "a": ["late"] * 2, "b": ["late"] * 2, "lsn": [3, 3]}))
    assert shown(table) == [(1, None, "late", None, 5), (2, "late", None, None, 5)]


def test_readers_of_all_kinds_see_the_null(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), SCHEMA, key="id", merge=PartialUpdate(nulls="keep"))
    first = table.upsert(row(a="x", b="y"))
    commit = table.update({"a": "NULL"}, where="id = 1")
    assert table.changes(first).to_arrow().to_pylist()[0]["a"] is None
    assert table.scan(filter="a IS NULL").to_arrow()["b"].to_pylist() == ["y"]
    assert table.scan(as_of=first).to_arrow()["a"].to_pylist() == ["x"]
    (line,) = table.why(1).to_pylist()[1:]
    assert line["because"] == "id, a: the value of the last requested commit, except nulls in other columns than a"
    assert (line["changed"], line["result"]["a"]) == (["a"], None)
    table.copy(str(tmp_path / "copy"))
    table.maintenance.migrate(str(tmp_path / "moved"), buckets=2)
    for place in ("copy", "moved"):
        assert Table(str(tmp_path / place)).to_arrow()["a"].to_pylist() == [None]
    assert commit.rows == 1


@pytest.mark.parametrize("same", [True, False], ids=["tasks share a key", "tasks have keys of their own"])
def test_a_job_sets_the_nulls_that_its_plan_names(same: bool) -> None:
    table = made()
    table.upsert(pa.table({"id": [1, 2], "a": ["x", "x"], "b": ["y", "y"]}))
    job = table.jobs.plan("upsert", SCHEMA.remove(3), nulls={"a"})
    second = row(id=1 if same else 2, a="new" if same else None, b=None)
    receipts = [job.stage(part, task=n) for n, part in enumerate([row(a=None), second])]
    table.jobs.complete(job, receipts)
    expected = [(1, "new", "y", None), (2, "x", "y", None)] if same else [(1, None, "y", None), (2, None, "y", None)]
    assert shown(table) == expected
    table.maintenance.compact()
    assert shown(table) == expected


def test_a_job_refuses_nulls_before_a_task_runs() -> None:
    table = made()
    with pytest.raises(InvalidInputError, match=r"pass nulls only with the operation upsert\. operation=append"):
        table.jobs.plan("append", SCHEMA, nulls={"a"})
    with pytest.raises(InvalidInputError, match=r"nulls must name columns of the rows\. unknown=\['c'\]"):
        table.jobs.plan("upsert", SCHEMA, nulls="c")
    with pytest.raises(InvalidInputError, match=r"counter/1 merges all values"):
        table.jobs.plan("upsert", SCHEMA, nulls={"n"})


def test_a_column_of_a_payload_or_none_of_the_rows_is_refused() -> None:
    table = made()
    with pytest.raises(InvalidInputError, match=r"counter/1 merges all values .* leave the column out of nulls"):
        table.upsert(row(n=None), nulls={"n"})
    with pytest.raises(InvalidInputError, match=r"nulls must name columns of the rows\. unknown=\['c'\] known="):
        table.upsert(row(a=None), nulls={"c"})
    assert table.count() == 0

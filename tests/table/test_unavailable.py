"""Markers of values that are not given, `PartialUpdate(unavailable=...)`: each way to write, against a dict per key."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crdt_mor as mor
from crdt_mor import InvalidInputError, Opening, Rules, Table
from crdt_mor.errors import ConstraintViolationError
from crdt_mor.payloads import Counter, Last, LatestBy, PartialUpdate
from crdt_mor.store import MemoryStore
from crdt_mor.testing.clock import SimulatedEnvironment
from tests.posting import in_a_crowd, post
from tests.tiers import one_in, slow

MARK = "__debezium_unavailable_value"
SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.binary()), ("n", pa.int64())])
Row = dict[str, Any]
Nulls = Literal["value", "keep"]
NULLS: tuple[Nulls, ...] = ("value", "keep")
VALUES: dict[str, list[Any]] = {
    "a": [MARK, None, "x", "y"],
    "b": [MARK.encode(), None, b"x", b"y"],
    "n": [None, 1, 2],
}
"""The third column has no marker."""


def rows(*given: Row, schema: pa.Schema = SCHEMA) -> pa.Table:
    """Rows with the columns of the first one."""
    return pa.Table.from_pylist(list(given), pa.schema([schema.field(name) for name in given[0]]))


def made(nulls: Nulls = "value", schema: pa.Schema = SCHEMA, **given: Any) -> Table:
    clock = SimulatedEnvironment()
    opening = Opening(store=MemoryStore(clock.now_ms), environment=clock, memory_limit=given.pop("memory_limit", None))
    merge = PartialUpdate(nulls, unavailable=given.pop("unavailable", MARK), columns=given.pop("columns", {}))
    return Table.create("memory://t", schema, key="id", buckets=2, merge=merge, opening=opening, **given)


def shown(table: Table) -> list[Row]:
    found: list[Row] = table.to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def merged(state: dict[int, Row], row: Row, nulls: Nulls) -> None:
    """What an upserted row does to the rows by key."""
    before = state.setdefault(row["id"], dict.fromkeys(SCHEMA.names))
    for name, value in row.items():
        if value not in (MARK, MARK.encode()) and (value is not None or nulls == "value"):
            before[name] = value


BATCHES = st.lists(
    st.tuples(
        st.sets(st.sampled_from(["a", "b", "n"])),
        st.lists(
            st.fixed_dictionaries(
                {"id": st.integers(0, 2)} | {name: st.sampled_from(values) for name, values in VALUES.items()}
            ),
            min_size=1,
            max_size=4,
        ),
    ),
    min_size=1,
    max_size=3,
)
"""Upserts of a write: each gives some columns, and may repeat a key."""
HISTORIES = st.lists(st.sampled_from(["compact", "fold"]) | st.integers(0, 2) | BATCHES, min_size=1, max_size=6)
"""Compactions, deletes of a key and writes."""


@pytest.mark.parametrize("examples", [8, slow(200)])
def test_a_history_is_the_fold_of_its_rows(examples: int) -> None:
    settings(max_examples=examples, deadline=None)(given(HISTORIES, st.sampled_from(NULLS))(is_the_fold))()


def is_the_fold(history: list[Any], nulls: Nulls) -> None:
    table, state = made(nulls), dict[int, Row]()
    for event in history:
        if isinstance(event, int):
            table.delete(keys=[event])
            state.pop(event, None)
        elif isinstance(event, str):
            table.maintenance.compact(logs_only=event == "fold")
        else:
            with table.transaction() as tx:
                for columns, batch in event:
                    some = [{name: row[name] for name in ("id", *sorted(columns))} for row in batch]
                    tx.upsert(rows(*some))
                    for row in some:
                        merged(state, row, nulls)
        assert shown(table) == [state[key] for key in sorted(state)]


EVENTS: list[Row] = [
    {"id": 1, "a": "first", "b": b"first", "n": 1},
    {"id": 1, "a": "second", "b": MARK.encode(), "n": 2},
    {"id": 1, "a": MARK, "b": MARK.encode(), "n": 3},
]
ORDERS = itertools.product(itertools.permutations(range(3)), itertools.permutations(range(3)))


@pytest.mark.parametrize(("begins", "ends"), one_in(18, ORDERS))
@pytest.mark.parametrize("nulls", NULLS)
def test_in_any_order_each_column_has_its_last_begun_value(
    nulls: Nulls, begins: Sequence[int], ends: Sequence[int]
) -> None:
    for moment in range(-1, 4):
        table, state = made(nulls), dict[int, Row]()
        blocks = {number: table.transaction().__enter__() for number in begins}
        for number in begins:
            blocks[number].upsert(rows(EVENTS[number]))
            merged(state, EVENTS[number], nulls)
        for place, number in enumerate(ends):
            if place == moment:
                table.maintenance.compact()
            blocks[number].__exit__(None, None, None)
        if moment == len(ends):
            table.maintenance.compact()
        assert shown(table) == [state[1]]
        assert table.verify(deep=True).findings == ()


FED = [
    {"id": 1, "a": "first", "b": b"first", "n": 1},
    {"id": 1, "a": "second", "b": MARK.encode(), "n": 2},
    {"id": 1, "a": MARK, "b": b"third", "n": 3},
    {"id": 1, "a": "last", "b": MARK.encode(), "n": 4},
]


@pytest.mark.parametrize("order", one_in(12, map(list, itertools.permutations(range(4)))))
@pytest.mark.parametrize("nulls", NULLS)
def test_under_an_ordering_column_events_come_in_any_order(nulls: Nulls, order: Sequence[int]) -> None:
    for moment in range(5):
        table = made(nulls, ordering="n")
        table.upsert(rows(*(FED[number] for number in order[:moment])) if moment else rows(FED[0]).slice(1))
        table.maintenance.compact()
        for number in order[moment:]:
            table.upsert(rows(FED[number]))
        assert shown(table) == [{"id": 1, "a": "last", "b": b"third", "n": 4}]


# --- each way to write ------------------------------------------------------------------------------------------------


def by_post(table: Table, data: pa.Table) -> None:
    post(table, data.slice(1))
    in_a_crowd(table).upsert(data.slice(0, 1))


def by_merge(table: Table, data: pa.Table) -> None:
    table.merge(data, on="id").when_matched_update_all().when_not_matched_insert_all().execute()


def in_batches(table: Table, data: pa.Table) -> None:
    table.upsert(pa.RecordBatchReader.from_batches(data.schema, data.to_batches(1)))


WAYS: dict[str, Callable[[Table, pa.Table], Any]] = {
    "upsert": lambda table, data: table.upsert(data),
    "append": lambda table, data: table.append(data),
    "merge": by_merge,
    "post": by_post,
    "stream": in_batches,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("nulls", NULLS)
def test_each_way_to_write_leaves_marked_cells(nulls: Nulls, way: str) -> None:
    table = made(nulls, memory_limit=1 if way == "stream" else None)
    table.upsert(rows({"id": 1, "a": "x", "b": b"x", "n": 1}, {"id": 2, "a": "y", "b": b"y", "n": 2}))
    data = rows(
        {"id": 1, "a": MARK, "b": b"new", "n": 5},
        {"id": 2, "a": "new", "b": MARK.encode(), "n": None},
        {"id": 3, "a": MARK, "b": b"new", "n": 3},
    )
    WAYS[way](table, data)
    is_left = nulls == "keep" and way != "merge"  # which sets exactly the values that it computes
    expected = [
        {"id": 1, "a": "x", "b": b"new", "n": 5},
        {"id": 2, "a": "new", "b": b"y", "n": 2 if is_left else None},
        {"id": 3, "a": None, "b": b"new", "n": 3},
    ]
    assert shown(table) == expected
    table.maintenance.compact()
    assert shown(table) == expected


def test_a_job_of_several_tasks_leaves_marked_cells(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, key="id", merge=PartialUpdate(unavailable=MARK), buckets=1)
    table.upsert(rows({"id": 1, "a": "x", "n": 1}))
    parts = [{"id": 1, "a": MARK, "n": 2}, {"id": 2, "a": MARK, "n": None}, {"id": 1, "a": MARK, "n": 3}]
    job = table.jobs.plan("upsert", rows(*parts).schema)
    table.jobs.complete(job, [job.stage(rows(part), task=task) for task, part in enumerate(parts)])
    assert [(row["a"], row["n"]) for row in shown(table)] == [("x", 3), (None, None)]


def test_a_replaced_or_new_table_has_null_in_marked_cells(tmp_path: Path) -> None:
    data = rows({"id": 1, "a": MARK, "b": b"x", "n": 1}, {"id": 2, "a": "x", "b": MARK.encode(), "n": 2})
    expected = [{"id": 1, "a": None, "b": b"x", "n": 1}, {"id": 2, "a": "x", "b": None, "n": 2}]
    table = made()
    table.overwrite(data)
    assert shown(table) == expected
    merge = PartialUpdate(unavailable=MARK)
    assert shown(Table.create_from(tmp_path / "new", data, key="id", merge=merge)) == expected


def test_an_update_that_sets_the_marker_leaves_the_column() -> None:
    table = made()
    table.upsert(rows({"id": 1, "a": "x", "n": 1}))
    table.update({"a": f"'{MARK}'", "n": "n + 1"})
    assert shown(table) == [{"id": 1, "a": "x", "b": None, "n": 2}]


def test_nulls_named_beside_markers_are_written() -> None:
    table = made("keep")
    table.upsert(rows({"id": 1, "a": "x", "n": 1}, {"id": 2, "a": "y", "n": 2}))
    table.upsert(rows({"id": 1, "a": None, "n": None}, {"id": 2, "a": MARK, "n": None}), nulls={"a"})
    assert [(row["a"], row["n"]) for row in shown(table)] == [(None, 1), ("y", 2)]


# --- which values -----------------------------------------------------------------------------------------------------

TYPES = pa.schema(
    [
        ("id", pa.int64()), ("t", pa.string()), ("u", pa.string()), ("x", pa.binary()), ("i", pa.int16()),
        ("f", pa.float64()), ("d", pa.decimal128(6, 2)), ("l", pa.list_(pa.string())),
    ]
)  # fmt: skip
OLD: Row = {"t": "t", "u": "u", "x": b"x", "i": 7, "f": 0.5, "d": 3, "l": ["l"]}


@pytest.mark.parametrize(
    ("unavailable", "new", "left"),
    [
        ("?", {"t": "?", "u": "?", "x": b"?", "i": 1, "f": 1.0, "d": 1, "l": ["?"]}, "tux"),
        (b"?", {"t": "?", "x": b"?"}, "x"),
        (-1, {"t": "-1", "i": -1, "f": -1.0, "d": -1}, "ifd"),
        (70_000, {"i": 1, "f": 70_000.0, "d": 1}, "f"),
        (1.5, {"i": 1, "f": 1.5, "d": 1}, "f"),
        ({"t": "?", "i": -1}, {"t": "?", "u": "?", "i": -1, "f": -1.0}, "ti"),
    ],
)
def test_a_marker_is_a_value_of_the_columns_type(unavailable: Any, new: Row, left: str) -> None:
    table = made(schema=TYPES, unavailable=unavailable)
    table.upsert(rows({"id": 1} | OLD, schema=TYPES))
    table.upsert(rows({"id": 1} | new, schema=TYPES))
    expected = {"id": 1} | OLD | {name: value for name, value in new.items() if name not in left}
    assert shown(table) == [expected]


@pytest.mark.parametrize(
    ("unavailable", "said"),
    [
        (True, "unavailable must be a text, bytes or a number"),
        (float("nan"), "unavailable must be a text, bytes or a number"),
        (["?"], "unavailable must be a text, bytes or a number"),
        ({"t": None}, "unavailable must be a text, bytes or a number"),
        ({"no": "?"}, "a column in unavailable does not exist. column='no'"),
        ({"id": -1}, "key, partition and ordering columns cannot be unavailable. column='id'"),
        ({"i": "?"}, "no value of the column equals its marker.* column='i' type=int32 unavailable='[?]'"),
        ({"l": "?"}, "no value of the column equals its marker.* column='l'"),
    ],
)
def test_markers_that_no_value_equals_are_refused(unavailable: Any, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        made(schema=TYPES, unavailable=unavailable)


def test_keys_are_never_compared_with_the_marker() -> None:
    schema = pa.schema([("id", pa.string()), ("a", pa.string())])
    table = made(schema=schema)
    table.upsert(rows({"id": MARK, "a": "x"}, schema=schema))
    table.upsert(rows({"id": MARK, "a": MARK}, schema=schema))
    assert shown(table) == [{"id": MARK, "a": "x"}]


def test_a_marker_follows_its_column_under_another_name(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, key="id", merge=PartialUpdate(unavailable={"a": "?"}))
    table.upsert(rows({"id": 1, "a": "x"}))
    table.alter(rename={"a": "Text of it"})
    renamed = pa.table({"id": [1], "Text of it": ["?"], "n": [3]})
    Table(tmp_path / "t").upsert(renamed)
    assert shown(table) == [{"id": 1, "Text of it": "x", "b": None, "n": 3}]
    assert "Text of it: unavailable is '?'" in str(Table(tmp_path / "t").config.merge)


# --- payloads and rules -----------------------------------------------------------------------------------------------


def test_payloads_merge_nothing_from_a_marked_cell() -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("n", pa.int64()), ("t", pa.string()), ("a", pa.string()), ("at", pa.int64())]
    )
    columns = {"n": Counter(), "t": Last("skip"), ("a", "at"): LatestBy("at")}
    table = made(schema=schema, unavailable={"n": -1, "t": "?", "a": "?"}, columns=columns)
    for row in (
        {"id": 1, "n": 3, "t": "t", "a": "a", "at": 1},
        {"id": 1, "n": -1, "t": "?", "a": "?", "at": 9},
        {"id": 1, "n": 2, "t": "?", "a": "b", "at": 2},
    ):
        table.upsert(rows(row, schema=schema))
    assert shown(table) == [{"id": 1, "n": 5, "t": "t", "a": "b", "at": 2}]


def test_a_row_with_some_columns_of_a_payload_is_refused() -> None:
    columns = {("a", "b", "n"): LatestBy("n")}
    table = made(columns=columns)
    table.upsert(rows({"id": 1, "a": "x", "b": b"x", "n": 1}))
    table.upsert(rows({"id": 1, "a": MARK, "b": MARK.encode(), "n": 2}))
    assert shown(table) == [{"id": 1, "a": "x", "b": b"x", "n": 1}]
    some = rows({"id": 2, "a": "y", "b": b"y", "n": 1}, {"id": 1, "a": "y", "b": MARK.encode(), "n": 3})
    with pytest.raises(InvalidInputError, match=r"latest_by/1 merges these columns together, .* row=1"):
        table.upsert(some)
    assert table.count() == 1


def test_rules_see_the_given_cells_only() -> None:
    table = made(rules=Rules(not_null=["a"], check={"short": "LENGTH(a) < 9"}))
    table.upsert(rows({"id": 1, "a": "x", "n": 1}))
    table.upsert(rows({"id": 1, "a": MARK, "n": 2}))
    assert shown(table) == [{"id": 1, "a": "x", "b": None, "n": 2}]
    for row in ({"id": 1, "a": None, "n": 3}, {"id": 1, "a": "much too long", "n": 3}):
        with pytest.raises(ConstraintViolationError):
            table.upsert(rows({"id": 1, "a": MARK, "n": 2}, row))
    with pytest.raises(ConstraintViolationError):
        table.append(rows({"id": 2, "a": MARK, "n": 2}))


def test_the_same_table_is_opened_only_with_the_same_markers(tmp_path: Path) -> None:
    def create(**given: Any) -> Table:
        return Table.create(tmp_path / "t", SCHEMA, key="id", merge=PartialUpdate(**given), exist_ok=True)

    create(unavailable={"b": b"\0?", "a": "?"})
    create(unavailable={"a": "?", "b": b"\0?"})
    for other in ({}, {"unavailable": "?"}, {"unavailable": {"a": "?"}}):
        with pytest.raises(mor.errors.TableExistsError, match="merge"):
            create(**other)

"""Maps with other keys than text, and structs without fields: files contain lists of entries, and a field `_empty`."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor.cli import render
from crdt_mor.cli.python_values import records
from crdt_mor.columns.types import join_types
from crdt_mor.errors import SchemaMismatchError
from crdt_mor.store import MemoryStore

DAY, NOON = dt.date(2026, 1, 31), dt.datetime.fromisoformat("2026-01-31T12:00:00")
NOTHING = pa.struct([])

VALUES: dict[pa.DataType, list[Any]] = {
    pa.map_(pa.int32(), pa.string()): [[(1, "a"), (-2, None)], [], None],
    pa.map_(pa.date32(), pa.int8()): [[(DAY, 1)], [], None],
    pa.map_(pa.binary(), pa.list_(pa.time64("us"))): [[(b"\0\xff", [dt.time(1), None])], [], None],
    pa.map_(pa.timestamp("ms"), pa.struct([("odd name", pa.int8())])): [
        [(NOON, {"odd name": 3}), (NOON + dt.timedelta(1), None)], [], None,
    ],
    pa.map_(pa.string(), pa.map_(pa.int64(), pa.int16())): [[("a", [(1, 2)]), ("b", None), ("c", [])], [], None],
    pa.map_(pa.duration("s"), pa.map_(pa.bool_(), pa.string())): [[(dt.timedelta(1), [(True, "x")])], [], None],
    pa.list_(pa.map_(pa.int32(), pa.int32()), 2): [[[(1, 2)], None], [[], []], None],
    pa.large_list(NOTHING): [[{}, None], [], None],
    NOTHING: [{}, None, {}],
    pa.struct([("e", NOTHING), ("m", pa.map_(pa.decimal128(5, 2), pa.int32()))]): [
        {"e": {}, "m": [(Decimal("1.50"), 1)]}, {"e": None, "m": None}, None,
    ],
}  # fmt: skip


def made(*kinds: pa.DataType, **settings: Any) -> mor.Table:
    columns = [(f"c{number}", kind) for number, kind in enumerate(kinds)]
    schema = pa.schema([("id", pa.int64()), *columns])
    return mor.Table.create("t", schema, key="id", buckets=1, opening=mor.Opening(store=MemoryStore()), **settings)


def rows(*values: Any, kind: pa.DataType) -> pa.Table:
    return pa.table({"id": range(len(values)), "c0": pa.array(values, kind)})


def seen(table: mor.Table, **scan: Any) -> list[Any]:
    found = table.scan(**scan).to_arrow().sort_by("id")
    found.validate(full=True)
    return list(found["c0"].to_pylist())


@pytest.fixture(scope="module")
def every() -> mor.Table:
    """A column of each type, a row for each value, in a log each."""
    table = made(*VALUES)
    for number in range(3):
        columns = {f"c{c}": pa.array([values[number]], kind) for c, (kind, values) in enumerate(VALUES.items())}
        table.upsert(pa.table({"id": [number], **columns}))
    return table


def test_every_door_returns_the_values(every: mor.Table) -> None:
    expected = list(VALUES.values())
    for step in ("logs", "base", "written by polars", "written by Arrow"):
        rows = every.to_arrow().sort_by("id")
        rows.validate(full=True)
        assert [rows[f"c{c}"].to_pylist() for c in range(len(VALUES))] == expected, step
        frame = every.to_polars().sort("id")
        assert all(frame[f"c{c}"].is_null()[2] for c in range(len(VALUES) - 2)), step
        assert every.scan(filter="c0 IS NOT NULL AND c8 IS NOT NULL").count() == 1
        if step == "logs":
            every.maintenance.compact()
        else:
            every.upsert(frame if step == "base" else rows)
    assert every.verify().findings == ()


def test_changes_and_earlier_moments_have_the_declared_types() -> None:
    kind = pa.map_(pa.int32(), NOTHING)
    table = made(kind)
    table.upsert(rows([(1, {})], None, kind=kind))
    before = table.version
    table.upsert(rows([(2, None)], kind=kind))
    images = table.changes(since=before, images=True).to_arrow()
    assert {row["_change_type"]: row["c0"] for row in images.to_pylist()} == {
        "update_preimage": [(1, {})], "update_postimage": [(2, None)]
    }  # fmt: skip
    assert seen(table, as_of=before) == [[(1, {})], None]


def test_maps_are_printed_and_read_as_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind = pa.map_(pa.date32(), pa.map_(pa.string(), pa.int64()))
    table = made(kind)
    table.upsert(rows([(DAY, [("a", 1)])], [], kind=kind))
    render.lines(records(table.to_arrow().sort_by("id"), maps_as_dicts=True))
    printed = capsys.readouterr().out
    assert json.loads(printed.splitlines()[0]) == {"id": 0, "c0": [["2026-01-31", {"a": 1}]]}
    (tmp_path / "rows.jsonl").write_text(printed)
    table.upsert(mor.read_files(tmp_path / "rows.jsonl", schema=table.schema))
    (tmp_path / "rows.jsonl").write_text('{"id": 2, "c0": {"2026-01-31": {"b": 2}}}\n')
    table.upsert(mor.read_files(tmp_path / "rows.jsonl", schema=table.schema))
    assert seen(table) == [[(DAY, [("a", 1)])], [], [(DAY, [("b", 2)])]]
    numbers = made(pa.map_(pa.int8(), pa.int64()))
    (tmp_path / "rows.jsonl").write_text('{"id": 1, "c0": [[7, 1]]}\n')
    numbers.upsert(mor.read_files(tmp_path / "rows.jsonl", schema=numbers.schema))
    assert seen(numbers) == [[(7, 1)]]
    (tmp_path / "rows.jsonl").write_text('{"id": 1, "c0": {"7": 1}}\n')
    with pytest.raises(mor.InvalidInputError, match="other keys than text is a list of pairs"):
        numbers.upsert(mor.read_files(tmp_path / "rows.jsonl", schema=numbers.schema))


def test_keys_that_no_reader_keeps_are_refused() -> None:
    kind = pa.map_(pa.int8(), pa.int8())
    table = made(kind)
    twice = pa.MapArray.from_arrays([0, 2], pa.array([1, 1], pa.int8()), pa.array([1, 2], pa.int8()))
    with pytest.raises(SchemaMismatchError, match=r"one key twice.*column=c0"):
        table.upsert(pa.table({"id": [1], "c0": twice}))
    with pytest.raises(SchemaMismatchError, match=r"unchanged.*column=c0\.key row=1"):
        table.upsert(rows([(1, 1)], [(300, 1)], kind=pa.map_(pa.int64(), pa.int8())), schema_mode="merge")
    table.upsert(rows([(100, 1)], kind=pa.map_(pa.int64(), pa.int8())))
    assert seen(table) == [[(100, 1)]]
    with pytest.raises(SchemaMismatchError, match="another type than the column"):
        table.upsert(rows([("a", 1)], kind=pa.map_(pa.string(), pa.int8())))
    with pytest.raises(SchemaMismatchError, match="the keys of a map keep their type"):
        join_types(kind, pa.map_(pa.int32(), pa.int8()), "c0")
    with pytest.raises(SchemaMismatchError, match=r"key has no inner types: use a list of structs. column=c0"):
        made(pa.map_(pa.list_(pa.int8()), pa.int8()))


def test_values_of_maps_widen_and_structs_inside_grow() -> None:
    narrow, wide = pa.struct([("x", pa.int8())]), pa.struct([("x", pa.int64()), ("y", pa.string())])
    table = made(pa.map_(pa.int32(), narrow))
    table.upsert(rows([(1, {"x": 1})], kind=pa.map_(pa.int32(), narrow)))
    table.maintenance.compact()
    more = pa.table({"id": [1], "c0": pa.array([[(2, {"x": 2**40, "y": "b"})]], pa.map_(pa.int32(), wide))})
    table.upsert(more, schema_mode="merge")
    for _ in range(2):
        assert seen(table) == [[(1, {"x": 1, "y": None})], [(2, {"x": 2**40, "y": "b"})]]
        table.maintenance.compact()


def test_structs_without_fields_are_new_columns_and_come_with_other_new_ones(tmp_path: Path) -> None:
    table = made(NOTHING, pa.list_(NOTHING))
    given = pa.table({"id": [1], "c0": pa.array([{}], NOTHING), "c1": pa.array([[{}]], pa.list_(NOTHING))})
    new = pa.array([{"e": {}}], pa.struct([("e", NOTHING)]))
    table.upsert(given.append_column("c2", new).append_column("c3", given["c0"]), schema_mode="merge")
    assert table.to_arrow().to_pylist() == [{"id": 1, "c0": {}, "c1": [{}], "c2": {"e": {}}, "c3": {}}]
    moved = table.maintenance.migrate(str(tmp_path / "moved"), buckets=2)
    assert moved is not None
    assert mor.Table(tmp_path / "moved").to_arrow() == table.to_arrow()


def test_struct_without_fields_never_grows_and_fills_no_other() -> None:
    table = made(NOTHING, pa.struct([("x", pa.int8())]))
    table.upsert(pa.table({"id": [1], "c0": pa.array([{}], NOTHING), "c1": pa.array([{}], NOTHING)}))
    assert table.to_arrow().to_pylist() == [{"id": 1, "c0": {}, "c1": {"x": None}}]
    grown = pa.array([{"a": 1}])
    with pytest.raises(SchemaMismatchError, match="no such fields"):
        table.upsert(pa.table({"id": [1], "c0": grown, "c1": pa.nulls(1)}))
    with pytest.raises(SchemaMismatchError, match="a struct without fields never gets any: add another column"):
        table.upsert(pa.table({"id": [1], "c0": grown, "c1": pa.nulls(1)}), schema_mode="merge")


def test_updates_and_filters_of_polars_see_the_map() -> None:
    kind = pa.map_(pa.int32(), pa.int64())
    table = made(kind)
    table.upsert(rows([(1, 10)], [(2, 20)], kind=kind))
    assert table.scan(filter=pl.col("c0").is_not_null()).count() == 2
    table.update({"c0": pl.lit(None)}, where="id = 1")
    assert seen(table) == [[(1, 10)], None]

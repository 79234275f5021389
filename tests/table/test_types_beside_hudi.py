"""Hudi's writers know the types of files alone. After a commit of theirs, each column shows our values and Hudi's."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from crdt_mor import Table
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import FormatError, UnsupportedFeatureError
from crdt_mor.model.instant import from_ms, to_ms
from crdt_mor.testing.simulation.hudi_writer import hudi_commits
from tests.inside import look_for_hudi, session_of
from tests.interop.shapes import every_type

ID = pa.field("id", pa.string())
TIME = pa.time64("us")


def hudi_writes(table: Table, data: pa.Table, declared: pa.Schema) -> None:
    """Upsert as Hudi does: its commits contain the columns with their types in files."""
    ms = to_ms(session_of(table).tail().clock)
    hudi_commits(table, data, from_ms(ms + 2), from_ms(ms + 4), schema=TableSchema.of(declared).avro("t"))
    look_for_hudi(table)


def test_hudi_writes_a_column_of_each_type_every_value_is_shown(fast_path: Path) -> None:
    data = every_type()
    table = Table.create(fast_path / "t", data.schema, key="id", buckets=1)
    table.append(data.slice(0, 2))
    hudi_writes(table, data.slice(1), data.schema)
    shown = table.to_arrow().sort_by("id")
    assert {name: shown[name].to_pylist() for name in shown.schema.names} == data.to_pydict()
    table.upsert(data)
    table.maintenance.compact()
    assert table.to_arrow().sort_by("id").to_pydict() == shown.to_pydict()


@pytest.mark.parametrize(
    ("declared", "after"),
    [
        (pa.timestamp("ms"), pa.timestamp("us")),
        (pa.time32("s"), TIME),
        (pa.duration("s"), pa.duration("us")),
        (pa.dictionary(pa.int32(), pa.timestamp("s")), pa.timestamp("us")),
        (pa.int8(), pa.int32()),
        (pa.list_(pa.timestamp("ms")), pa.list_(pa.timestamp("us"))),
        (pa.map_(pa.int16(), pa.int8()), pa.map_(pa.int16(), pa.int32())),
        (pa.struct([]), pa.struct([])),
        (
            pa.struct([("Größe", pa.map_(TIME, pa.struct([])))]),
            pa.struct([("Größe", pa.map_(TIME, pa.struct([])))]),
        ),
    ],
    ids=str,
)
def test_hudi_writes_the_column_has_the_least_type_for_all_values_in_files(
    declared: pa.DataType, after: pa.DataType
) -> None:
    schema = TableSchema.of(pa.schema([ID, ("c", declared)]))
    assert schema.join_hudi(schema.avro("t")).declared.field("c").type == after


def test_hudi_adds_fields_and_columns_they_have_the_types_of_files() -> None:
    schema = TableSchema.of(pa.schema([ID, ("c", pa.map_(pa.int16(), pa.struct([("a", TIME)])))]))
    entry = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    hudis = TableSchema.of(
        pa.schema([ID, ("c", pa.list_(pa.struct([("key", pa.int32()), ("value", entry)]))), ("d", pa.int64())])
    )
    item = pa.struct([("a", TIME), ("b", pa.int64())])
    expected = pa.schema([ID, ("c", pa.map_(pa.int16(), item)), ("d", pa.int64())])
    assert schema.join_hudi(hudis.avro("t")).declared == expected


def test_hudi_changes_the_type_of_a_column_the_error_names_its_commit(fast_path: Path) -> None:
    declared = pa.schema([ID, ("c", TIME)])
    table = Table.create(fast_path / "t", declared, key="id", buckets=1)
    table.append(pa.table({"id": ["a"], "c": pa.array([1], TIME)}))
    text = declared.set(1, pa.field("c", pa.string()))
    with pytest.raises(UnsupportedFeatureError, match=r"rollback_to_instant.*instant=\d{17} cause=.*column=c"):
        hudi_writes(table, pa.table({"id": ["b"], "c": pa.array([2], TIME)}), text)


@pytest.mark.parametrize(
    ("declared", "stored"),
    [
        (TIME, -1),
        (pa.time32("s"), 86_400_000_000),
        (pa.list_(TIME), [-1]),
        (pa.struct([("a", TIME)]), {"a": -1}),
        (pa.dictionary(pa.int32(), TIME), -1),
        (pa.map_(pa.int16(), pa.string()), [{"key": 70_000, "value": "x"}]),
        (pa.map_(pa.int16(), pa.string()), [{"key": None, "value": "x"}]),
    ],
    ids=str,
)
def test_hudi_writes_a_number_that_is_no_value_of_the_column_the_read_is_refused(
    declared: pa.DataType, stored: object
) -> None:
    schema = TableSchema.of(pa.schema([("c", declared)]))
    data = pa.table({"c": pa.array([stored], schema.stored.field("c").type)})
    with pytest.raises(FormatError, match=r"delete the row by its key\. column=c"):
        schema.restore(data)

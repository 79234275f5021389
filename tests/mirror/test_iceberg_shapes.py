"""Iceberg mirrors of tables with odd partitions, changed columns and all types."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import Table
from tests.mirror.iceberg_reading import by_duckdb, by_polars, by_pyiceberg, metadata_of, mirrored
from tests.mirror.shapes import SCHEMA, rows, scanned

PARTITIONED = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.int64())])


def placed(ids: list[int], parts: list[Any], n: int, kind: pa.DataType | None = None) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("part", kind or pa.string()), ("n", pa.int64())])
    return pa.table({"id": ids, "part": parts, "n": [n] * len(ids)}, schema=schema)


def logged(path: Path, kind: pa.DataType, parts: list[Any], **options: Any) -> Table:
    """A table with a base file and a log in each of these partitions."""
    schema = pa.schema([("id", pa.int64()), ("part", kind), ("n", pa.int64())])
    table = Table.create(str(path), schema, key="id", partition_by="part", **options)
    ids = list(range(2 * len(parts)))
    table.upsert(placed(ids, parts * 2, 1, kind))
    table.maintenance.compact()
    table.upsert(placed(ids[: len(parts)], parts, 2, kind))
    return table


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        (pa.string(), ["ü p+1", "a=b", "100%", "x y", "ß&c", "[b]", "'q'"]),
        (pa.int64(), [-1, 0, 2**62, None]),
        (pa.int16(), [-1, 7]),
        (pa.date32(), [dt.date(1969, 1, 1), dt.date(2026, 12, 31), None]),
        (pa.string(), ["", None, "a"]),
    ],
)
def test_mirror_of_partitions_equals_the_scan(tmp_path: Path, kind: pa.DataType, parts: list[Any]) -> None:
    table = logged(tmp_path, kind, parts)

    mirrored(table)

    assert by_pyiceberg(table) == by_polars(table) == scanned(table)


def test_mirror_prunes_partitions_by_their_values(tmp_path: Path) -> None:
    table = logged(tmp_path, pa.date32(), [dt.date(2026, 1, 1), dt.date(2026, 1, 2)])

    mirrored(table)

    spec = metadata_of(table)["partition-specs"][-1]
    assert [(one["name"], one["transform"]) for one in spec["fields"]] == [("part", "identity")]
    assert by_pyiceberg(table, row_filter="part = '2026-01-02'") == scanned(table, filter="part = '2026-01-02'")


def test_mirror_after_a_partition_column_is_renamed_equals_the_scan(tmp_path: Path) -> None:
    table = logged(tmp_path, pa.string(), ["a", "b"])
    mirrored(table)

    table.alter(rename={"part": "region"})
    table.upsert(pa.table({"id": [50], "region": ["c"], "n": [5], "more": ["new"]}), schema_mode="merge")
    table.alter(rename={"more": "part"})
    mirrored(table)

    assert by_pyiceberg(table) == by_polars(table) == scanned(table)
    assert by_pyiceberg(table, row_filter="region = 'c'") == scanned(table, filter="region = 'c'")


def test_mirror_after_columns_change_equals_the_scan(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path), SCHEMA, key="id", buckets=1)
    table.upsert(rows(range(6), 1))
    table.maintenance.compact()
    mirrored(table)
    first = metadata_of(table)["current-snapshot-id"]
    before = scanned(table)

    table.alter(rename={"text": "caption"})
    table.upsert(pa.table({"id": [1], "n": [2], "caption": ["b"], "more": ["again"]}), schema_mode="merge")
    table.alter(rename={"more": "text"})
    mirrored(table)
    assert by_pyiceberg(table) == by_polars(table) == scanned(table)

    table.alter(drop=["n"])
    mirrored(table)
    assert by_pyiceberg(table) == by_polars(table) == scanned(table)
    assert by_pyiceberg(table, snapshot_id=first) == before

    table.upsert(pa.table({"id": [2], "caption": ["c"], "text": ["d"], "n2": [3.5]}), schema_mode="merge")
    table.alter(rename={"n2": "n"})  # the name of a dropped column
    mirrored(table)
    assert by_pyiceberg(table) == by_polars(table) == scanned(table)
    assert by_pyiceberg(table, snapshot_id=first) == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.int32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.int16(), pa.float64()),
        (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64()), ("b", pa.string())])),
        (pa.list_(pa.int8()), pa.list_(pa.float64())),
        (pa.decimal128(6, 2), pa.decimal128(12, 2)),
        (pa.decimal128(6, 2), pa.decimal128(6, 3)),
        (pa.int32(), pa.decimal128(12, 2)),
        (pa.int64(), pa.decimal128(21, 2)),
        (pa.list_(pa.decimal128(6, 2)), pa.list_(pa.decimal128(12, 2))),
        (pa.list_(pa.int32()), pa.list_(pa.decimal128(12, 2))),
    ],
)
def test_mirror_after_a_type_is_widened_equals_the_scan(tmp_path: Path, old: pa.DataType, new: pa.DataType) -> None:
    def value(kind: pa.DataType, number: int) -> Any:
        if pa.types.is_struct(kind):
            return {field.name: str(number) if field.name == "b" else number for field in kind}
        return [number, None] if pa.types.is_list(kind) else number

    def row(kind: pa.DataType, id_: int) -> pa.Table:
        return pa.table({"id": [id_], "v": pa.array([value(kind, id_)], kind)})

    table = Table.create(str(tmp_path), pa.schema([("id", pa.int64()), ("v", old)]), key="id", buckets=1)
    table.upsert(pa.concat_tables([row(old, id_) for id_ in (1, 2, 3)]))
    table.maintenance.compact()
    mirrored(table)

    table.upsert(row(new, 2), schema_mode="merge")
    mirrored(table)

    assert by_pyiceberg(table) == by_polars(table) == scanned(table)


@pytest.mark.slow
def test_mirror_of_odd_partitions_and_changed_columns_in_duckdb_equals_the_scan(tmp_path: Path) -> None:
    table = logged(tmp_path, pa.string(), ["ü p+1", "a=b", None, ""])
    table.alter(rename={"n": "count"})
    table.upsert(pa.table({"id": [1], "part": ["a=b"], "count": [9], "more": ["x"]}), schema_mode="merge")

    mirrored(table)

    assert by_duckdb(table) == scanned(table)

"""Iceberg mirrors over base files of other writers: of earlier releases without field ids, of Hudi, in a bucket."""

from __future__ import annotations

import tarfile
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Table
from crdt_mor.format import base_file
from tests.mirror.iceberg_reading import (
    by_duckdb,
    by_polars,
    by_pyiceberg,
    metadata_of,
    metadata_uri,
    mirrored,
    require_pyiceberg,
)
from tests.mirror.shapes import SCHEMA, in_order, rows, scanned, written_over
from tests.servers import s3

HUDI_TABLES = Path(__file__).parent.parent / "interop" / "hudi_tables"

NESTED = pa.schema([
    ("id", pa.int64()),
    ("a b", pa.string()),
    ("l", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())]))),
    ("m", pa.map_(pa.string(), pa.struct([("z", pa.list_(pa.int64()))]))),
    ("gone", pa.string()),
])  # fmt: skip


def nested(ids: list[int], n: int) -> pa.Table:
    values = {"l": [{"x": n, "y": "y"}, None], "m": [("k", {"z": [n, None]})], "a b": f"a{n}", "gone": "x"}
    return pa.Table.from_pylist([{"id": id_, **values} for id_ in ids], schema=NESTED)


def without_ids(path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table whose base file has no field ids, with a dropped and a renamed column."""
    monkeypatch.setattr(base_file, "with_field_ids", lambda columns, ids: columns)
    table = Table.create(str(path), NESTED, key="id", buckets=1)
    table.upsert(nested([1, 2, 3], 1))
    table.maintenance.compact()
    return table


def test_mirror_of_files_without_field_ids_equals_the_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = without_ids(tmp_path, monkeypatch)
    mirrored(table)
    first, before = metadata_of(table)["current-snapshot-id"], scanned(table)

    table.upsert(nested([2], 2))
    table.alter(rename={"a b": "c.d"}, drop=["gone"])
    mirrored(table)

    assert by_pyiceberg(table) == by_polars(table) == scanned(table)
    assert by_pyiceberg(table, first) == before  # with the dropped column


def test_first_mirror_after_a_nested_column_was_dropped_equals_the_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = without_ids(tmp_path, monkeypatch)
    table.alter(drop=["l", "m"])
    mirrored(table)
    assert by_pyiceberg(table) == by_polars(table) == scanned(table)


def test_mirror_after_a_nested_column_grew_and_was_dropped_equals_the_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_file, "with_field_ids", lambda columns, _: columns)
    table = Table.create(str(tmp_path), {"id": pl.Int64, "st": pl.Struct({"x": pl.Int32})}, key="id", buckets=1)
    table.upsert(pl.DataFrame({"id": [1], "st": [{"x": 1}]}, {"id": pl.Int64, "st": pl.Struct({"x": pl.Int32})}))
    table.maintenance.compact()
    mirrored(table)
    grown = pl.DataFrame(
        {"id": [2], "st": [{"x": 1, "y": 2}]}, {"id": pl.Int64, "st": pl.Struct({"x": pl.Int32, "y": pl.Int32})}
    )
    table.upsert(grown, schema_mode="merge")
    table.maintenance.compact()
    table.upsert(grown)
    table.alter(drop=["st"])
    mirrored(table)
    assert by_pyiceberg(table) == by_polars(table) == scanned(table)


@pytest.mark.slow
def test_mirror_of_files_without_field_ids_in_duckdb_equals_the_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = without_ids(tmp_path, monkeypatch)
    table.upsert(nested([2], 2))
    table.alter(rename={"a b": "c.d"}, drop=["gone"])

    mirrored(table)

    assert by_duckdb(table) == scanned(table)


@pytest.mark.parametrize("name", ["v8_trips", "v9_complex", "v9_nonpart", "v9_simple"])
def test_mirror_of_a_table_that_hudi_wrote_equals_the_scan(tmp_path: Path, name: str) -> None:
    with tarfile.open(HUDI_TABLES / f"{name}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    (root,) = (path.parent for path in tmp_path.glob("*/.hoodie"))
    table = Table(str(root))

    mirrored(table)

    assert by_pyiceberg(table) == by_polars(table) == scanned(table)


@pytest.mark.slow
def test_mirror_in_a_bucket_equals_the_scan() -> None:
    require_pyiceberg()
    from pyiceberg.table import StaticTable

    options = s3().options
    table = Table.create("s3://lake/mirrors/a t", SCHEMA, key="id", buckets=2, storage_options=dict(options))
    written_over(table)
    properties = {
        "s3.endpoint": options["aws_endpoint_url"], "s3.access-key-id": options["aws_access_key_id"],
        "s3.secret-access-key": options["aws_secret_access_key"], "s3.region": "us-east-1",
    }  # fmt: skip

    for step in range(2):
        table.upsert(rows([5], step))
        mirrored(table)
        opened = StaticTable.from_metadata(metadata_uri(table), properties)
        assert opened.metadata.location == "s3://lake/mirrors/a t"
        assert in_order(opened.scan().to_arrow().to_pylist()) == scanned(table)


def test_mirror_by_the_door_of_tables_names_its_metadata_file(tmp_path: Path) -> None:
    table = written_over(Table.create(str(tmp_path), SCHEMA, key="id", buckets=2))

    done = table.mirror("iceberg")

    assert (done.uri, done.version) == (metadata_uri(table, 1), table.scan().version)
    assert by_pyiceberg(table) == scanned(table)

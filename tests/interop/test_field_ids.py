"""Hudi's readers read base files whose columns have ids, beside logs without, whatever the table was altered to."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crdt_mor import Table
from crdt_mor.model.field_ids import ids_in_file
from tests.interop.readers import HudiSpark, Rows, hudi_rs, ours
from tests.interop.shapes import Maker

PLACE = pa.struct([("city", pa.string()), ("zip", pa.int64())])
WIDER = pa.struct([*PLACE, ("land", pa.string())])
COLUMNS = pa.schema(
    [("id", pa.string()), ("place", PLACE), ("tags", pa.list_(pa.string())), ("at", pa.map_(pa.string(), PLACE)),
     ("n", pa.int64())]
)  # fmt: skip


def rows(columns: pa.Schema, *ids: str) -> pa.Table:
    place = {"city": "x", "zip": 1, "land": "y"}
    row = {"place": place, "tags": ["t"], "at": [("k", place)], "n": 1, "m": 2, "more": [3]}
    return pa.Table.from_pylist([{"id": id_, **row} for id_ in ids], columns)


def altered(make: Maker, look: Callable[[], Rows]) -> None:
    """Alter a table in every way, and look at each step that has ids in base files and rows in logs above them."""
    table = Table.create(make.root, COLUMNS, key="id", buckets=2)
    table.upsert(rows(COLUMNS, "a", "b", "c"))
    table.maintenance.compact()
    table.upsert(rows(COLUMNS, "b", "d"))
    assert look() == ours(table)
    renamed = pa.schema([*[*COLUMNS][:4], ("m", pa.int64())])
    table.alter(rename={"n": "m"})
    table.upsert(rows(renamed, "e", "a"))
    assert look() == ours(table)
    table.alter(drop=["m"])
    grown = pa.schema(
        [("id", pa.string()), ("place", WIDER), ("tags", pa.list_(pa.string())), ("at", pa.map_(pa.string(), WIDER)),
         ("n", pa.string()), ("more", pa.list_(pa.int64()))]
    )  # fmt: skip
    new = rows(grown.remove(4), "f", "b").append_column("n", pa.array(["text", "text"]))
    table.upsert(new, schema_mode="merge")
    table.maintenance.compact()
    table.upsert(new.slice(1))
    assert look() == ours(table)
    newest = max(make.root.glob("*.parquet"), key=lambda path: path.name.rpartition("_")[2])
    assert {("place", "land"), ("more", "element"), ("at", "value", "land")} <= ids_in_file(
        pq.read_schema(newest)
    ).keys()


@pytest.mark.slow
def test_hudi_rs_reads_files_with_ids_after_each_alteration(make: Maker) -> None:
    altered(make, lambda: hudi_rs(make.root))


@pytest.mark.spark
def test_spark_reads_files_with_ids_after_each_alteration(make: Maker, spark: HudiSpark) -> None:
    altered(make, lambda: spark.read(make.root))

"""Frames that Spark's own Parquet reader reads show the rows of the embedded reader, and read what they need."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from crdt_mor import Table
from crdt_mor.readers.spark import native, read
from tests.mirror.shapes import rows
from tests.spark.helpers import listed
from tests.spark.queried import SCHEMA, TABLES, frame, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def plan(rows: DataFrame) -> str:
    return str(rows._jdf.queryExecution().executedPlan().toString())


@pytest.mark.parametrize("name", TABLES)
def test_frames_show_the_rows_of_every_merge_before_and_after_a_compaction(
    spark: SparkSession, fast_path: Path, name: str
) -> None:
    table = written(fast_path, name)
    for as_of in (4, None):
        found, wanted = read(spark, table.uri, as_of=as_of), table.scan(as_of=as_of)
        assert found.columns == wanted.schema.names
        assert listed(found) == listed(wanted)
        assert found.count() == wanted.count()
    before, kept = listed(table.scan()), read(spark, table.uri)
    table.maintenance.compact()
    assert listed(read(spark, table.uri)) == before
    table.delete(where="id < 'k06'")
    assert listed(read(spark, table.uri)) == listed(table.scan())
    assert listed(kept) == before


def test_columns_and_conditions_of_a_query_reach_the_files(spark: SparkSession, fast_path: Path) -> None:
    table = Table.create(fast_path / "t", SCHEMA, key="id", buckets=2)
    table.upsert(frame(range(40), 0))
    table.maintenance.compact()
    query = read(spark, table.uri).where("n > 20").select("id")
    assert re.search(r"PushedFilters: \[.*GreaterThan\(n,20\)", plan(query))
    assert "ReadSchema: struct<id:string,n:bigint>" in plan(query)
    assert "MapInArrow" not in plan(query)  # nothing of it runs in Python
    assert listed(query) == listed(table.scan(filter="n > 20").narrowed(columns=["id"]))
    table.upsert(frame(range(5), 30))
    logged = read(spark, table.uri)
    uses = [logged.where("n > 20").select("id"), logged.where("price is null"), logged]
    assert re.search(r"PushedFilters: \[.*GreaterThan\(n,20\)", plan(uses[0]))
    wanted = [table.scan(filter="n > 20").narrowed(columns=["id"]), table.scan(filter="price is null"), table.scan()]
    assert [*map(listed, uses)] == [*map(listed, wanted)]


@pytest.mark.parametrize(
    "where", ["x > 5", "x = 'NaN'", "x >= 'Infinity'", "f > 5", "s.x > 5", "x = 0", "x < 0", "z = 0"]
)
def test_conditions_find_nan_and_negative_zero(spark: SparkSession, fast_path: Path, where: str) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("x", pa.float64()),
            ("f", pa.float32()),
            ("z", pa.float64()),
            ("s", pa.struct([("x", pa.float64())])),
        ]
    )
    table = Table.create(fast_path / "t", schema, key="id", buckets=1)
    values = [1.0, float("nan"), 3.0, -0.0, None]
    table.upsert(
        pa.Table.from_pylist(
            [{"id": n, "x": x, "f": x, "z": -0.0 if n % 2 else 5.0, "s": {"x": x}} for n, x in enumerate(values * 8)],
            schema,
        )
    )
    table.maintenance.compact()
    of_format = spark.read.format("crdt_mor").load(table.uri)
    assert repr(listed(read(spark, table.uri).where(where))) == repr(listed(of_format.where(where)))


def test_frames_have_every_type_that_both_readers_read_alike(spark: SparkSession, fast_path: Path) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()), ("b", pa.bool_()), ("i32", pa.int32()), ("Upper", pa.string()),
            ("f", pa.float32()), ("x", pa.float64()), ("bytes", pa.binary()), ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")), ("small", pa.decimal128(5, 2)),
            ("large", pa.decimal128(38, 10)), ("list", pa.list_(pa.struct([("a", pa.int32())]))),
            ("map", pa.map_(pa.string(), pa.list_(pa.int64()))),
        ]
    )  # fmt: skip
    table = Table.create(fast_path / "t", schema, key="id", buckets=1)
    full: dict[str, Any] = {
        "id": 1, "b": True, "i32": -70_000, "Upper": "U", "f": 0.5, "x": float("inf"), "bytes": b"\0\xff",
        "day": date(1200, 2, 28), "at": datetime(1500, 1, 1, tzinfo=UTC),
        "small": Decimal("-1.25"), "large": Decimal("12345678901234567890.0123456789"), "list": [{"a": 1}, None],
        "map": [("k", [1, None])],
    }  # fmt: skip
    table.upsert(pa.Table.from_pylist([full, {"id": 2}, {**full, "id": 3, "list": []}], schema))
    table.maintenance.compact()
    assert "MapInArrow" not in plan(read(spark, table.uri))
    assert listed(read(spark, table.uri)) == listed(table.scan())
    table.upsert(pa.Table.from_pylist([{**full, "id": 2}], schema))
    assert listed(read(spark, table.uri)) == listed(table.scan())


@pytest.mark.parametrize(("key", "files"), [("id", 7), ("_hoodie", 7), ("dot.ted", 0), ("with`tick", 0), ("Groß", 0)])
def test_keys_have_any_name_and_partitions_any_text(spark: SparkSession, fast_path: Path, key: str, files: int) -> None:
    """Files have other names for columns that engines cannot read. Hadoop takes some texts for patterns."""
    schema = pa.schema([(key, pa.string()), ("n", pa.int64())])
    table = Table.create(fast_path / "a b", schema, key=key, partition_by=key, buckets=1)
    texts = ["a b", "% x", "{x,y}", "[z]", "*?", "plain", "ü"]
    for n in range(3):
        table.upsert(pa.table({key: texts[n:], "n": [n] * len(texts[n:])}))
        if n < 2:
            table.maintenance.compact()
    assert len(table.scan().split().files) == files
    assert listed(read(spark, table.uri)) == listed(table.scan())


def test_small_and_unsigned_integers_and_times_are_those_of_the_format(spark: SparkSession, fast_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("i8", pa.int8()), ("u64", pa.uint64()), ("t", pa.timestamp("us"))])
    table = Table.create(fast_path / "t", schema, key="id", buckets=1)
    full = {"id": 1, "i8": -1, "u64": 2**64 - 1, "t": datetime(9999, 12, 31)}  # noqa: DTZ001
    table.upsert(pa.Table.from_pylist([full], schema))
    table.maintenance.compact()
    of_format = spark.read.format("crdt_mor").load(table.uri)
    assert read(spark, table.uri).schema == of_format.schema
    assert listed(read(spark, table.uri)) == listed(of_format)


def test_places_may_be_relative_or_have_a_scheme(
    spark: SparkSession, fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table.create(fast_path / "t", rows([], 0).schema, key="id", buckets=1)
    table.upsert(rows(range(3), 1))
    table.maintenance.compact()
    monkeypatch.chdir(fast_path)
    for place in ("t", f"file://{fast_path}/t"):
        assert "FileScan" in plan(read(spark, place))
        assert listed(read(spark, place)) == listed(table.scan())


def test_missing_files_and_errors_of_tasks_are_told(spark: SparkSession, fast_path: Path) -> None:
    table = Table.create(fast_path / "t", rows([], 0).schema, key="id", buckets=1)
    table.upsert(rows(range(3), 1))
    whole = read(spark, table.uri)
    table.maintenance.compact()
    based = read(spark, table.uri)
    for file in (fast_path / "t").glob("*.parquet"):
        file.unlink()
    for log in (fast_path / "t").glob(".*.log.*"):
        log.unlink()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(Exception, match="FILE_NOT_EXIST"):
            based.collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
    with pytest.raises(Exception, match=r"crdt_mor\.errors\.\w+: ") as told:
        whole.collect()
    assert "Traceback" not in str(told.value).splitlines()[0]


def test_frames_of_grown_structs_are_whole(spark: SparkSession, fast_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int64())]))])
    table = Table.create(fast_path / "t", schema, key="id", buckets=1)
    table.upsert(pa.Table.from_pylist([{"id": 1, "s": {"a": 1}}, {"id": 2, "s": None}], schema))
    table.maintenance.compact()
    assert table.scan().split().files
    table.alter(widen={"s": pa.struct([("a", pa.int64()), ("b", pa.int64())])})
    assert not table.scan().split().files
    assert listed(read(spark, table.uri).where("s is not null").select("id", "s.b")) == [(1, None)]


def test_frames_of_empty_renamed_and_widened_tables(spark: SparkSession, fast_path: Path) -> None:
    table = Table.create(fast_path / "t", rows([], 0).schema, key="id", buckets=2)
    assert read(spark, table.uri).collect() == []
    table.upsert(rows(range(6), 1))
    table.maintenance.compact()
    table.delete(keys=[*range(6)], plain=True)
    assert read(spark, table.uri).count() == 0
    table.upsert(rows(range(3), 2))
    table.add_columns({"more": pa.int32()})
    table.maintenance.compact()
    assert listed(read(spark, table.uri)) == listed(table.scan())
    table.alter(rename={"n": "m"}, widen={"more": pa.int64()})
    assert listed(read(spark, table.uri)) == listed(table.scan())


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("/lake/t/a=[x]/f.parquet", r"file:/lake/t/a=\[x\]/f.parquet"),
        ("s3://lake/t/f.parquet", "s3a://lake/t/f.parquet"),
        ("gs://lake/t/{a}/f.parquet", r"gs://lake/t/\{a\}/f.parquet"),
    ],
)
def test_addresses_of_files_are_those_of_hadoop(address: str, path: str) -> None:
    assert native._spark_path(address) == path

"""What Spark reads is what the embedded reader reads, whatever is asked for and however the table merges."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.types import StructType

from crdt_mor import Scan, Table
from crdt_mor.readers.spark.options import ReadOptions
from crdt_mor.readers.spark.reading import Part, reader, schema_of
from crdt_mor.readers.spark.versions import ONE_SNAPSHOT_A_FRAME, READS_NO_COLUMNS, SPARK
from crdt_mor.results import Explanation
from tests.interop.readers import hudi_rs
from tests.spark.helpers import listed, read
from tests.spark.queried import QUERIES, SCHEMA, TABLES, frame, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(params=TABLES)
def table(request: pytest.FixtureRequest, fast_path: Path) -> Table:
    return written(fast_path, request.param)


def test_every_query_gives_the_rows_of_the_embedded_reader(spark: SparkSession, table: Table) -> None:
    for name, (options, embedded) in QUERIES.items():
        found, wanted = read(spark, table.uri, **options), embedded(table)
        assert found.columns == wanted.schema.names, name
        assert listed(found) == listed(wanted), name


def test_expired_rows_are_hidden_and_deletes_of_changes_on_request(spark: SparkSession, fast_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("until", pa.timestamp("us", "UTC"))])
    table = Table.create(fast_path / "t", schema, key="id", ttl="until", buckets=1)
    now = datetime.now(UTC)
    table.upsert(pl.DataFrame({"id": [1, 2], "until": [now + timedelta(days=1)] * 2}))
    since = table.version
    table.upsert(pl.DataFrame({"id": [1], "until": [now - timedelta(days=1)]}))
    assert [row.id for row in read(spark, table.uri).collect()] == [2]
    assert read(spark, table.uri).count() == 1
    changed = read(spark, table.uri, since=since, expired="true").select("id", "_change_type").collect()
    assert [tuple(row) for row in changed] == [(1, "delete")]


# --- columns, partitions, seals ---------------------------------------------------------------------------------------


@pytest.fixture
def events(fast_path: Path) -> Table:
    return written(fast_path, "partitioned")


def test_a_read_of_named_columns_does_a_part_of_the_work_of_a_read_of_all(table: Table) -> None:
    def parts(**options: str) -> list[Explanation]:
        asked = ReadOptions.of({"path": table.uri, **options})
        planned = reader(asked, schema_of(asked)).partitions()
        return [cast(Scan, cast(Part, part).rows).explain() for part in planned]

    for all_columns, named in zip(parts(), parts(columns="n"), strict=True):
        assert named.total.slices == all_columns.total.slices
        assert {*named.columns} < {*all_columns.columns}


def test_a_schema_that_is_asked_for_prunes_and_orders_the_columns(spark: SparkSession, events: Table) -> None:
    found = read(spark, events.uri, "n long, id string")
    assert found.columns == ["n", "id"]
    assert listed(found) == listed(events.scan(columns=["n", "id"]))
    changes = read(spark, events.uri, "_commit_version long, id string, _change_type string", changes="raw")
    wanted = events.changes(raw=True, columns=["id"]).to_arrow().select(changes.columns)
    assert listed(changes) == listed(wanted)
    kinds = read(spark, events.uri, "_change_type string", changes="merged")
    assert listed(kinds) == listed(events.changes().to_arrow().select(["_change_type"]))
    times = read(spark, events.uri, "_commit_version long", changes="raw")
    assert listed(times) == listed(events.changes(raw=True).to_arrow().select(["_commit_version"]))


def test_rows_are_counted_without_columns(spark: SparkSession, events: Table) -> None:
    assert read(spark, events.uri).selectExpr("1 AS one").groupBy().sum("one").collect()[0][0] == events.count()
    rows = spark.read.format("crdt_mor").schema(StructType([])).load(events.uri)
    assert rows.columns == []
    if SPARK < READS_NO_COLUMNS:
        with pytest.raises(Exception, match="reading rows without their columns, to count them, needs Spark"):
            rows.count()
        return
    assert rows.count() == read(spark, events.uri).count() == events.count()
    some = spark.read.format("crdt_mor").schema(StructType([])).option("filter", "n > 3").load(events.uri)
    assert some.count() == events.scan(filter="n > 3").count()


def test_a_column_that_is_never_null_is_so_in_spark(spark: SparkSession, events: Table) -> None:
    nullable = {field.name: field.nullable for field in read(spark, events.uri).schema}
    assert nullable == {"id": False, "region": True, "n": True, "price": True, "tags": True}
    assert all(field.nullable for field in read(spark, events.uri, changes="merged").schema)


def test_a_table_without_rows_has_columns(spark: SparkSession, fast_path: Path) -> None:
    table = Table.create(fast_path / "empty", SCHEMA, key="id")
    for options in ({}, {"changes": "images"}, {"filter": "n > 3"}):
        found = read(spark, table.uri, **options)
        assert found.count() == 0
        assert "price" in found.columns


def test_small_file_slices_share_a_partition_and_large_ones_have_their_own(
    spark: SparkSession, fast_path: Path
) -> None:
    table = Table.create(fast_path / "large", pa.schema([("id", pa.int64()), ("noise", pa.binary())]), key="id")
    assert read(spark, table.uri).rdd.getNumPartitions() == 1
    chance = np.random.default_rng(3)
    table.upsert(pl.DataFrame({"id": range(4), "noise": [b""] * 4}))
    assert read(spark, table.uri).rdd.getNumPartitions() == 1
    table.upsert(pl.DataFrame({"id": range(40), "noise": [chance.bytes(2 << 20) for _ in range(40)]}))
    found = read(spark, table.uri)
    assert found.rdd.getNumPartitions() == 3
    assert found.count() == 40


@pytest.mark.skipif(SPARK < ONE_SNAPSHOT_A_FRAME, reason="Spark 4.0 plans every action of a frame anew")
def test_one_read_shows_one_snapshot(spark: SparkSession, events: Table) -> None:
    found = read(spark, events.uri, "id string, n long")
    before = events.scan(columns=["id", "n"])
    assert listed(found) == listed(before)
    events.upsert(frame(range(50, 60), 1))
    events.maintenance.compact()
    assert listed(found.where("n < 100")) == listed(before)
    assert listed(read(spark, events.uri, "id string, n long")) == listed(events.scan(columns=["id", "n"]))


def test_rows_join_and_aggregate_like_any_others(spark: SparkSession, events: Table) -> None:
    found = read(spark, events.uri).groupBy("region").sum("n").toArrow()
    wanted = events.scan().to_polars().group_by("region").agg(pl.col("n").sum())
    assert listed(found) == listed(wanted.to_arrow())


def test_a_filter_gives_the_same_before_and_after_a_compaction(spark: SparkSession, fast_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("cents", pa.int64()), ("code", pa.string())])
    table = Table.create(fast_path / "cents", schema, key="id", buckets=1)
    table.upsert(pa.table({"id": [1, 2, 3], "cents": [5, 2**62, 7], "code": ["5", "none", "7"]}, schema))
    table.upsert(pa.table({"id": [2], "cents": [2**62], "code": ["2"]}, schema))
    for _ in range(2):
        for condition in ("cents * 1000 > 0", "CAST(code AS BIGINT) > 4"):
            found = read(spark, table.uri, filter=condition).toArrow()["id"].to_pylist()
            assert sorted(found) == [1, 3], condition
        table.maintenance.compact()


# --- what is refused --------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "an unknown option": ({"asof": "1", "asOfVersion": "1"}, None, r"no such options.*unknown=\['asofversion'\]"),
    "no such version": ({"asOf": "99"}, None, "this version does not exist yet.*99"),
    "no time": ({"asOf": "a day ago"}, None, "asOf must be a version, an instant of 17 digits, a time"),
    "no time yet": ({"asOf": "2999-01-01T00:00:00"}, None, "the moment is ahead of the store's clock"),
    "no such kind": ({"changes": "all"}, None, "changes is one of merged, images, raw"),
    "no such consistency": ({"consistency": "eventual"}, None, "consistency must be one of"),
    "a filter of changes": ({"changes": "raw", "filter": "n > 1"}, None, "filter belongs to a snapshot"),
    "a filter of other rows": ({"filter": "n = MAX(n)"}, None, "a filter must be element-wise"),
    "a wrong filter": ({"filter": "m > 1"}, None, r"the filter names unknown columns"),
    "a wrong column": ({"columns": "id,m"}, None, r"no such columns.*unknown=\['m'\]"),
    "a word for a flag": ({"meta": "yes"}, None, "meta is one of true, false"),
    "an old snapshot's changes": ({"since": "4", "consistency": "read_optimized"}, None, "consistency must be one of"),
    "a limit of streams": ({"maxFilesPerTrigger": "3"}, None, "limit the batches of a stream"),
    "a wrong limit": ({"maxFilesPerTrigger": "0"}, None, "maxFilesPerTrigger is a number above 0"),
    "a window that ends early": ({"since": "5", "until": "2"}, None, "until lies before since"),
    "a column of another type": ({}, "id string, n int", "column=n asked=int table=bigint"),
    "a column that is not there": ({}, "id string, m int", r"columns that are not there.*unknown=\['m'\]"),
    "a column that may be null": ({}, "id string, n long not null", "NOT NULL of a column that may be null. column=n"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_in_words(spark: SparkSession, events: Table, name: str) -> None:
    options, schema, message = REFUSED[name]
    with pytest.raises(AnalysisException, match=re.compile(message, re.DOTALL)):
        read(spark, events.uri, schema, **options).collect()


@pytest.mark.parametrize("moment", ["2020-02-29", "2020-02-29T12:00:00", "2020-02-29T12:00:00+01:00"])
def test_a_moment_may_be_a_date_or_have_no_zone(spark: SparkSession, events: Table, moment: str) -> None:
    assert read(spark, events.uri, asOf=moment).collect() == []
    assert read(spark, events.uri, asOf="now").count() == events.count()


def test_a_missing_table_and_a_missing_path_say_what_to_do(spark: SparkSession, fast_path: Path) -> None:
    with pytest.raises(AnalysisException, match=r"there is no table here; create it with Table.create"):
        read(spark, str(fast_path / "nothing"))
    assert not (fast_path / "nothing").exists()
    with pytest.raises(AnalysisException, match="say where the table is"):
        spark.read.format("crdt_mor").load()


@pytest.mark.parametrize("name", ["latest", "partitioned"])
def test_the_file_of_the_guide_makes_spark_refuse_the_folder_as_parquet_and_no_reader_of_the_table(
    spark: SparkSession, fast_path: Path, name: str
) -> None:
    table = written(fast_path, name)
    table.maintenance.compact()
    wanted, theirs = listed(table.scan()), hudi_rs(table.uri)
    assert spark.read.parquet(table.uri).count() > 0, "else the file would not be needed"
    Path(table.uri, "_common_metadata").write_text("a table of Hudi's: read it as crdt_mor or hudi\n")
    with pytest.raises(Exception, match="_common_metadata"):
        spark.read.parquet(table.uri)
    assert (listed(read(spark, table.uri)), listed(table.scan()), hudi_rs(table.uri)) == (wanted, wanted, theirs)
    assert pads.dataset(table.uri, format="parquet").count_rows() > 0, "pyarrow passes over it, too"


def test_a_file_that_is_gone_is_named(spark: SparkSession, events: Table) -> None:
    for path in Path(events.uri).rglob("*.parquet"):
        path.unlink()
    with pytest.raises(Exception, match="a data file of this snapshot is gone"):
        read(spark, events.uri).collect()

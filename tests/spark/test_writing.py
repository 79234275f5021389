"""What Spark writes is what one embedded writer would have written, and what it refuses leaves nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import PartialUpdate, Table
from crdt_mor.errors import PayloadError, SchemaMismatchError
from crdt_mor.payloads import Counter, ORSet
from crdt_mor.readers.spark.versions import SPARK, WRITES_STREAMS
from tests.spark.sessions import fixture
from tests.spark.tables import leftovers, pending, same_rows
from tests.spark.written import SCHEMA, TABLES, batch, make
from tests.table.helpers import files

pytestmark = pytest.mark.spark
spark = fixture()


def in_three_tasks(spark: Any, data: pa.Table) -> Any:
    """A frame whose tasks have the rows in order, as the third of the rows that comes first, second, last."""
    step = -(-data.num_rows // 3)
    frames = [spark.createDataFrame(data.slice(i * step, step)).coalesce(1) for i in range(3)]
    return frames[0].union(frames[1]).union(frames[2])


@pytest.mark.parametrize("settings", TABLES.values(), ids=TABLES)
def test_batches_are_what_one_writer_writes(spark: Any, tmp_path: Path, settings: dict[str, Any]) -> None:
    from crdt_mor.readers.spark import delete, upsert

    table, expected = (make(tmp_path / name, settings) for name in ("table", "expected"))
    data = batch(expected.schema, 5)
    expected.upsert(data)
    in_three_tasks(spark, data).write.format("crdt_mor").mode("append").save(table.uri)
    same_rows(table, expected)

    once = batch(expected.schema, 2, rows=37)  # a shuffle keeps no order, so each key comes once
    expected.upsert(once)
    assert upsert(in_three_tasks(spark, once), table.uri).rows == 37
    same_rows(table, expected)

    gone = batch(expected.schema, 3, rows=10)
    expected.delete(gone)
    assert delete(in_three_tasks(spark, gone), table.uri).deletes == 10
    same_rows(table, expected)
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])
    table.maintenance.compact()
    same_rows(table, expected)


def test_columns_that_are_written_otherwise_than_they_show(spark: Any, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])
    table, expected = (Table.create(tmp_path / n, schema, key="id", merge={"tags": ORSet()}) for n in ("t", "e"))
    written = pa.schema([("id", pa.int64()), ("tags", pa.struct({"add": pa.list_(pa.string())}))])
    data = pa.table({"id": [1, 2, 1, 1], "tags": [{"add": [t]} for t in "abca"]}, written)
    expected.upsert(data)
    in_three_tasks(spark, data).write.format("crdt_mor").mode("append").save(table.uri)
    same_rows(table, expected)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_every_type_arrives_as_it_is(spark: Any, tmp_path: Path, zone: str) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    moment = dt.datetime(2026, 3, 8, 2, 30, 0, 123456, dt.UTC)  # a time that clocks in New York skip
    old = dt.datetime(1900, 1, 1, tzinfo=dt.UTC)
    data = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int32()),
            "flag": pa.array([True, None, False]),
            "f32": pa.array([1.5, float("nan"), None], pa.float32()),
            "f64": pa.array([1.5, float("-inf"), None], pa.float64()),
            "price": pa.array([Decimal("1.20"), None, Decimal("-999.99")], pa.decimal128(10, 2)),
            "day": pa.array([dt.date(1969, 12, 31), None, dt.date(2026, 1, 1)]),
            "at": pa.array([moment, None, old], pa.timestamp("us", "UTC")),
            "local": pa.array([moment, None, old]).cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us")),
            "raw": pa.array([b"\x00\xff", None, b""], pa.binary()),
            "list": pa.array([[1, None], None, []], pa.list_(pa.int64())),
            "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
            "row": pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}],
                            pa.struct({"a": pa.int64(), "b": pa.list_(pa.string())})),
        }
    )  # fmt: skip
    table, expected = (Table.create(tmp_path / name, data.schema, key="id") for name in ("t", "e"))
    expected.upsert(data)
    frame = spark.createDataFrame(data, from_arrow_schema(data.schema, prefer_timestamp_ntz=True))
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame.write.format("crdt_mor").mode("append").save(table.uri)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    same_rows(table, expected)


def test_others_read_what_spark_wrote(spark: Any, tmp_path: Path) -> None:
    from crdt_mor.readers.spark import upsert
    from tests.interop.readers import hudi_rs, ours

    table = make(tmp_path / "t", {"partition_by": "day"})
    in_three_tasks(spark, batch(SCHEMA, 1)).write.format("crdt_mor").mode("append").save(table.uri)
    upsert(in_three_tasks(spark, batch(SCHEMA, 5)), table.uri)
    assert hudi_rs(table.uri) == ours(table)


def test_nulls_are_written_in_the_columns_that_an_upsert_names(spark: Any, tmp_path: Path) -> None:
    from crdt_mor.readers.spark import upsert

    table = make(tmp_path / "t", {"merge": PartialUpdate(nulls="keep")})
    table.upsert(batch(SCHEMA, 1, rows=4))
    nulls = pa.table({"id": [0, 1], "day": pa.nulls(2, pa.string()), "n": pa.nulls(2, pa.int64())})
    upsert(spark.createDataFrame(nulls.slice(0, 1)), table.uri, nulls={"n"})
    write = spark.createDataFrame(nulls.slice(1)).write.format("crdt_mor").mode("append")
    write.option("nulls", "day, n").save(table.uri)
    shown = table.to_arrow().sort_by("id").to_pylist()
    assert [(row["day"], row["n"]) for row in shown] == [("d0", None), (None, None), ("d2", 2), ("d0", 3)]
    with pytest.raises(Exception, match="nulls must name columns of the rows"):
        write.option("nulls", "other").save(table.uri)


def test_options_of_a_batch(spark: Any, tmp_path: Path) -> None:
    table = make(tmp_path / "t", {"ordering": "n"})

    def write(data: pa.Table, **options: str) -> None:
        spark.createDataFrame(data).write.format("crdt_mor").mode("append").options(**options).save(table.uri)

    data = pa.table({"id": [1, 2], "day": ["d", "d"], "n": [5, 5], "s": ["a", "a"]}, SCHEMA)
    write(data, txnAppId="load", txnVersion="1")
    version = table.version
    write(data, TXNAPPID="load", txnversion="1")
    assert table.version == version, "the second time is no commit"
    write(data.select(["id"]).slice(1), operation="delete", plain="true")
    assert table.scan().count() == 1
    write(data.append_column("new", pa.array([7, 8])), schemaMode="merge", operation="append")
    assert table.scan(columns=["id", "new"]).to_polars().sort("id").rows() == [(1, 7), (2, 8)]


def test_a_write_keeps_to_the_partitions_and_columns_that_it_says(spark: Any, tmp_path: Path) -> None:
    from crdt_mor.readers.spark import delete, upsert

    table = make(tmp_path / "t", {"partition_by": "day", "merge": PartialUpdate()})
    data = pa.table({"id": [1, 2], "day": ["mon", "tue"], "n": [5, 5], "s": ["a", "a"]}, SCHEMA)
    both = spark.createDataFrame(data)
    upsert(both, table.uri, partitions=["mon", "tue"])
    monday, notes = both.where("id = 1"), both.selectExpr("id", "day", "'b' as s")
    delete(monday.select("id", "day"), table.uri, partitions=["day=mon"])
    write = monday.write.format("crdt_mor").mode("overwrite").option("partitions", "mon, wed")
    write.save(table.uri)
    notes.write.format("crdt_mor").mode("append").option("columns", "s").option("partitions", "mon,tue").save(table.uri)
    shown = [(1, "mon", 5, "b"), (2, "tue", 5, "b")]
    assert table.scan().to_polars().sort("id").rows() == shown
    refused: dict[str, Callable[[], object]] = {
        r"partitions=\['day=tue'\] declared=\['day=mon'\]": lambda: upsert(notes, table.uri, partitions=["mon"]),
        r"columns=\['n'\]": lambda: upsert(both, table.uri, columns=["s"]),
        "leave one of them out": partial(write.option("partitionOverwriteMode", "dynamic").save, table.uri),
    }
    for said, work in refused.items():
        with pytest.raises(Exception, match=said):
            work()
    assert table.scan().to_polars().sort("id").rows() == shown
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])


@pytest.mark.parametrize("settings", TABLES.values(), ids=TABLES)
def test_what_spark_overwrites_is_what_one_writer_overwrites(
    spark: Any, tmp_path: Path, settings: dict[str, Any]
) -> None:
    from crdt_mor.readers.spark import overwrite

    table, expected = (make(tmp_path / name, settings) for name in ("table", "expected"))
    for one in (table, expected):
        one.upsert(batch(one.schema, 3))
    data = batch(expected.schema, 5)
    expected.overwrite(data)
    in_three_tasks(spark, data).write.format("crdt_mor").mode("overwrite").save(table.uri)
    same_rows(table, expected)

    once = batch(expected.schema, 2, rows=37)
    partitions = "dynamic" if table.config.partition_by else None
    covered = expected.overwrite(once, partitions=partitions).covered
    done = overwrite(in_three_tasks(spark, once), table.uri, partitions=partitions)
    assert (done.rows, done.covered) == (37, covered)
    same_rows(table, expected)
    for one in (table, expected):
        one.upsert(data)
    same_rows(table, expected)
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])


def test_partitions_that_a_frame_has_rows_of_are_replaced(spark: Any, tmp_path: Path) -> None:
    from crdt_mor.readers.spark import overwrite

    table = make(tmp_path / "t", {"partition_by": "day"})
    columns = "id long, day string, n long, s string"

    def write(*rows: tuple[int, str, int], **options: str) -> None:
        frame = spark.createDataFrame([(*row, "s") for row in rows], columns)
        frame.write.format("crdt_mor").mode("overwrite").options(**options).save(table.uri)

    def shown() -> list[Any]:
        return table.scan(columns=["id", "day", "n"]).to_polars().sort("id", "day").rows()

    write((1, "mon", 1), (2, "mon", 1), (1, "tue", 1))
    write((1, "mon", 5), partitionOverwriteMode="DYNAMIC", txnAppId="load", txnVersion="1")
    assert shown() == [(1, "mon", 5), (1, "tue", 1)]
    write((7, "mon", 7), partitionoverwritemode="dynamic", txnAppId="load", txnVersion="1")
    write(partitionOverwriteMode="dynamic")
    assert shown() == [(1, "mon", 5), (1, "tue", 1)], "a token counts once, and of no partition there are rows"
    frame = spark.createDataFrame([(3, "tue", 3, "s")], columns)
    assert overwrite(frame, table.uri, partitions=["tue", "wed"], token=("by name", 1)).covered == (
        "day=tue", "day=wed"
    )  # fmt: skip
    assert overwrite(frame, table.uri, partitions=["tue", "wed"], token=("by name", 1)).repeated
    assert shown() == [(1, "mon", 5), (3, "tue", 3)]
    with pytest.raises(Exception, match=r"not_named=\['day=tue'\] named=\['day=mon'\]"):
        overwrite(frame, table.uri, partitions=["mon"])
    own = spark.read.format("crdt_mor").load(table.uri).where("day = 'tue'")
    own.write.format("crdt_mor").mode("overwrite").save(table.uri)
    assert shown() == [(3, "tue", 3)], "what it was read from is replaced"
    write()
    assert (shown(), leftovers(table.uri), pending(table.uri)) == ([], [], [])


@pytest.mark.skipif(SPARK < WRITES_STREAMS, reason="Spark 4.0 writes no streams")
def test_a_stream_replaces_nothing(spark: Any, tmp_path: Path) -> None:
    from crdt_mor import InvalidInputError
    from crdt_mor.readers.spark.sinking import StreamWriter

    table = make(tmp_path / "t", {})
    with pytest.raises(InvalidInputError, match="its output mode complete would replace all rows"):
        StreamWriter({"path": table.uri}, spark.range(1).schema, overwrite=True)


def test_an_empty_frame_is_a_commit_without_rows(spark: Any, tmp_path: Path) -> None:
    from crdt_mor.readers.spark import upsert

    table = make(tmp_path / "t", {})
    empty = spark.createDataFrame([], "id long, day string, n long, s string")
    empty.write.format("crdt_mor").mode("append").save(table.uri)
    assert upsert(empty, table.uri).rows == 0
    spark.range(9).selectExpr("id", "'d' day", "id n", "'s' s").where("id < 0").write.format("crdt_mor").mode(
        "append"
    ).save(table.uri)
    assert [row["rows"] for row in table.inspect.timeline().to_pylist()] == [0, 0, 0]
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])


REFUSED: dict[str, tuple[dict[str, str], str, str, str]] = {
    "an unknown option": ({"opertion": "upsert"}, "append", "id, day, n, s", "no such options of a write"),
    "what a catalog says": ({"location": "/t"}, "append", "id, day, n, s", "no such options of a write"),
    "an unknown operation": ({"operation": "update"}, "append", "id, day, n, s", "append, upsert, delete"),
    "an unknown schema mode": ({"schemaMode": "loose"}, "append", "id, day, n, s", "schema_mode must be"),
    "a flag that is none": ({"plain": "yes"}, "append", "id, day, n, s", "plain is one of true, false"),
    "half a token": ({"txnVersion": "1"}, "append", "id, day, n, s", "txnAppId and txnVersion"),
    "a missing key": ({}, "append", "day, n, s", "missing=['id']"),
    "a missing key of a delete": ({"operation": "delete"}, "append", "day", "missing=['id']"),
    "a missing column": ({}, "append", "id, day, n", "missing=['s']"),
    "an unknown column": ({}, "append", "id, day, n, s, 1 as z", "unknown=['z']"),
    "another type": ({}, "append", "id, day, 'x' as n, s", "n"),
    "an overwrite that upserts": ({"operation": "upsert"}, "overwrite", "id, day, n, s", "leave the option operation"),
    "an append that overwrites": ({"operation": "overwrite"}, "append", "id, day, n, s", 'say mode("overwrite")'),
    "an unknown way to overwrite": ({"partitionOverwriteMode": "all"}, "overwrite", "id, day, n, s", "static, which"),
    "an overwrite by other columns": ({}, "overwrite", "id, day, n", "missing=['s']"),
    "a null key": ({}, "append", "if(id = 3, null, id) as id, day, n, s", "a record key cannot be null"),
    "a key twice": ({"operation": "append"}, "append", "id % 7 as id, day, n, s", "occurs twice in an append"),
}


@pytest.mark.parametrize(("options", "mode", "columns", "says"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_says_why_and_leaves_nothing(
    spark: Any, tmp_path: Path, options: dict[str, str], mode: str, columns: str, says: str
) -> None:
    table = make(tmp_path / "t", {})
    before = files(table.uri)
    frame = spark.range(20, numPartitions=2).selectExpr("id", "'d' as day", "id as n", "'s' as s")
    frame = frame.selectExpr(*columns.split(", ")) if "(" not in columns else frame.selectExpr(
        "if(id = 3, null, id) as id", "day", "n", "s"
    )  # fmt: skip
    with pytest.raises(Exception) as error:  # noqa: PT011  which of Spark's classes depends on where it is noticed
        frame.write.format("crdt_mor").mode(mode).options(**options).save(table.uri)
    assert says in str(error.value)
    assert (table.scan().count(), leftovers(table.uri), pending(table.uri)) == (0, [], [])
    data = {name for name in files(table.uri) if ".log." in name}
    assert not data, "no reader that goes by names finds anything either"
    if "key" not in says and "twice" not in says:
        assert files(table.uri) == before, "said before anything began"


OPAQUE = {
    "GEOMETRY": "st_geomfromwkb(X'0101000000000000000000F03F000000000000F03F')",
    "GEOGRAPHY": "st_geogfromwkb(X'0101000000000000000000F03F000000000000F03F')",
}


@pytest.mark.parametrize("mode", ["strict", "merge"])
@pytest.mark.parametrize("value", OPAQUE.values(), ids=OPAQUE)
def test_what_arrow_has_no_word_for_is_refused_before_anything_runs(
    spark: Any, tmp_path: Path, value: str, mode: Any
) -> None:
    from crdt_mor.readers.spark import upsert

    if SPARK < (4, 2):
        pytest.skip("this release has no such type")
    opaque = pa.struct({"value": pa.binary(), "metadata": pa.binary()})
    table = make(tmp_path / "t", {"schema": SCHEMA.append(pa.field("v", opaque)) if mode == "strict" else SCHEMA})
    before = files(table.uri)
    frame = spark.range(2).selectExpr("id", "'d' as day", "id as n", "'s' as s", f"{value} as v")
    says = r"no table holds this type of Spark's: make it binary with st_asbinary\. column=v"
    with pytest.raises(Exception, match=says):
        frame.write.format("crdt_mor").mode("append").option("schemaMode", mode).save(table.uri)
    with pytest.raises(SchemaMismatchError, match=says):
        upsert(frame, table.uri, schema_mode=mode)
    assert files(table.uri) == before


def test_a_partition_value_that_is_no_folder_fails_the_job_and_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    table = make(tmp_path / "t", {"partition_by": "day"})
    frame = spark.range(9, numPartitions=2).selectExpr("id", "if(id = 7, 'a/b', 'c') as day", "id as n", "'s' as s")
    with pytest.raises(Exception, match=r"map it to another value\. column=day row=\d value='a/b'"):
        frame.write.format("crdt_mor").mode("append").save(table.uri)
    assert (table.scan().count(), leftovers(table.uri), pending(table.uri)) == (0, [], [])


def test_a_missing_table_is_named(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="there is no table here"):
        spark.range(1).write.format("crdt_mor").mode("append").save(str(tmp_path / "nothing"))


def test_a_write_is_refused_by_the_table_that_came_in_the_place_of_its_own(spark: Any, tmp_path: Path) -> None:
    """It is made while a task of the write computes its rows.

    The old table goes in one step: the write's other processes may put files into it meanwhile, and a folder that
    somebody writes to cannot surely be removed file by file.
    """
    path = tmp_path / "t"
    make(path, {"buckets": 1})

    def replacing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list(batches)
        path.rename(tmp_path / "old")
        Table.create(path, found[0].schema, key="id", buckets=7).upsert(pa.Table.from_batches(found).slice(0, 5))
        yield from found

    data = spark.createDataFrame(batch(SCHEMA, 1)).coalesce(1)
    with pytest.raises(Exception, match=r"TableReplacedError|TableNotFoundError"):
        data.mapInArrow(replacing, data.schema).write.format("crdt_mor").mode("append").save(str(path))
    again = Table(path)
    assert (again.config.buckets, again.scan().count(), pending(str(path))) == (7, 5, [])


def test_compaction_as_a_job_is_the_compaction(spark: Any, tmp_path: Path) -> None:
    from crdt_mor.readers.spark import compact

    table, expected = (make(tmp_path / n, {"partition_by": "day", "merge": {"n": Counter()}}) for n in ("t", "e"))
    for seed in (1, 5, 7):
        for one in (table, expected):
            one.upsert(batch(SCHEMA, seed))
    open_plan = table.maintenance.plans.schedule()  # somebody planned and died
    assert open_plan is not None
    for one in (table, expected):
        one.upsert(batch(SCHEMA, 3))
    first, second = compact(spark, table.uri)
    assert first.barrier == open_plan.barrier
    assert second.file_groups == first.file_groups
    expected.maintenance.compact()
    same_rows(table, expected)
    assert table.scan(consistency="read_optimized").count() == expected.scan().count()
    assert compact(spark, table.uri) == []
    assert table.maintenance.plans.complete(open_plan, []) is not None, "who comes late finds it done"


def test_a_key_that_cannot_be_merged_keeps_a_compaction_as_a_job_from_no_other_file_group(
    spark: Any, tmp_path: Path
) -> None:
    from crdt_mor.readers.spark import compact

    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    table = Table.create(tmp_path / "t", schema, key="id", buckets=2, merge={"n": Counter()})
    table.upsert(pa.table({"id": ["big", *map(str, range(9))], "n": [2**63 - 1] + [1] * 9}))
    table.upsert(pa.table({"id": ["big"], "n": [1]}))
    with pytest.raises(PayloadError, match=r"file group 0000000\d cannot be compacted.*too large.*key='big'"):
        compact(spark, table.uri)
    assert sorted(set(table.inspect.files()["kind"].to_pylist())) == ["base", "log"]
    assert table.maintenance.plans.open() == []
    table.delete(keys=["big"])
    assert [done.file_groups for done in compact(spark, table.uri)] == [1]
    assert table.count() == 9

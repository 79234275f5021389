"""Every type that a table can have, through Spark: the values are those of the embedded reader, in any time zone."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import types as st

from crdt_mor import Table
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import SchemaMismatchError
from crdt_mor.readers.spark.types import arrow_schema, spark_schema, spark_type, written_schema
from crdt_mor.readers.spark.versions import SPARK, WRITES_STREAMS
from tests.model.types_page import SEEN, arrow_type
from tests.spark.helpers import listed, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[2] / "docs" / "types.md"

DECLARED = [
    eval(kind)
    for kind in re.findall(r"^\| `(pa\..*?)` \| `pa\.", DOCS.read_text().partition("## Refused")[0], re.MULTILINE)
]


def values_of(kind: pa.DataType) -> list[Any]:
    """The least, the greatest and some other value of a type; null."""
    if pa.types.is_dictionary(kind):
        return values_of(kind.value_type)
    if pa.types.is_fixed_size_list(kind):
        return [[1, None], [3, 4], None]
    if isinstance(kind, pa.ListType | pa.LargeListType | pa.ListViewType | pa.LargeListViewType):
        return [[], [values_of(kind.value_type)[0], None], None]
    if pa.types.is_struct(kind):
        return [{field.name: values_of(field.type)[i] for field in kind} for i in (0, 2)] + [None]
    if pa.types.is_map(kind):
        keys = ["k", "l"] if pa.types.is_string(kind.key_type) else values_of(kind.key_type)[:2]
        return [[], [(keys[0], values_of(kind.item_type)[0]), (keys[1], None)], None]
    if pa.types.is_integer(kind):
        top = 2 ** (kind.bit_width - (not pa.types.is_unsigned_integer(kind)))
        return [0 if pa.types.is_unsigned_integer(kind) else -top, top - 1, None]
    if pa.types.is_floating(kind):
        return [float("-inf"), -0.0, 1.5, None]
    if pa.types.is_decimal(kind):
        return [Decimal((0, (9,) * kind.precision, -kind.scale)), Decimal((1, (1,), -kind.scale)), None]
    if pa.types.is_timestamp(kind):
        zone = UTC if kind.tz else None
        last = datetime(2199, 12, 31, 23, 59, 59, tzinfo=zone)
        return [datetime(1900, 1, 1, tzinfo=zone), last, datetime(2026, 3, 8, 2, 30, tzinfo=zone), None]
    if pa.types.is_time(kind):
        return [time(), time(23, 59, 59), None]
    if pa.types.is_duration(kind):
        return [timedelta(-100_000), timedelta(1, 1, 0 if kind.unit == "s" else 1000), None]
    if pa.types.is_date(kind):
        return [date(1582, 1, 1), date(9999, 12, 31), None]
    if pa.types.is_boolean(kind):
        return [True, False, None]
    if pa.types.is_fixed_size_binary(kind):
        return [b"\0" * kind.byte_width, b"\xff" * kind.byte_width, None]
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return [b"", b"\xff\x00", None] if binary else ["", "Zoë \U0001f600", None]


def plain(kind: pa.DataType) -> pa.DataType:
    """A type that Arrow makes arrays of from Python's values: no dictionaries."""
    if pa.types.is_dictionary(kind):
        return kind.value_type
    return pa.list_(plain(kind.value_type)) if pa.types.is_list(kind) else kind


def in_spark(rows: pa.Table) -> pa.Table:
    """The rows with times of day as Spark has them: microseconds since midnight."""
    columns = [_without_times(column.combine_chunks()) for column in rows.columns]
    return pa.table(columns, names=rows.schema.names)


def _without_times(values: pa.Array) -> pa.Array:
    if pa.types.is_time(values.type):
        return values.cast(pa.time64("us")).cast(pa.int64())
    if pa.types.is_list(values.type) and pa.types.is_time(values.type.value_type):
        return values.cast(pa.list_(pa.int64()))
    return values


@pytest.fixture(params=["logs", "compacted"])
def table(request: pytest.FixtureRequest, fast_path: Path) -> Table:
    """A column of each type; a row for each value."""
    names = [f"c{i}" for i in range(len(DECLARED))]
    schema = pa.schema([("id", pa.int64()), *zip(names, DECLARED, strict=True)])
    made = Table.create(fast_path / "types", schema, key="id", buckets=2)
    for i in range(4):
        columns = [pa.array([values_of(kind)[min(i, len(values_of(kind)) - 1)]], plain(kind)) for kind in DECLARED]
        made.upsert(pa.table([pa.array([i]), *columns], names=schema.names))
    if request.param == "compacted":
        made.maintenance.compact()
    return made


def test_values_are_the_same_in_every_time_zone(spark: SparkSession, table: Table) -> None:
    assert len(DECLARED) > 40
    snapshot, images = table.scan(), table.changes(images=True)
    wanted = listed(in_spark(snapshot.to_arrow()))
    for zone in ("America/New_York", "UTC", "Asia/Kolkata"):
        spark.conf.set("spark.sql.session.timeZone", zone)
        assert listed(read(spark, table.uri)) == wanted
    assert read(spark, table.uri).schema == spark_schema(snapshot.schema)
    assert listed(read(spark, table.uri, changes="images")) == listed(in_spark(images.to_arrow()))


def test_a_moment_is_that_moment_in_the_session_and_a_time_without_a_zone_stays_as_it_is(
    spark: SparkSession, fast_path: Path
) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("ms", "Asia/Tokyo")), ("local", pa.timestamp("us"))])
    table = Table.create(fast_path / "times", schema, key="id")
    moment = datetime(2026, 3, 8, 7, 30, tzinfo=UTC)
    table.upsert(pa.table([[1], [moment], [moment.replace(tzinfo=None)]], schema=schema))
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    found = read(spark, table.uri).selectExpr("cast(at as string)", "cast(local as string)", "unix_micros(at)")
    assert [tuple(row) for row in found.collect()] == [
        ("2026-03-08 03:30:00", "2026-03-08 07:30:00", int(moment.timestamp() * 1e6))
    ]


@pytest.mark.parametrize(("declared", "spark_sees", "hudi_sees"), [(row[0], *row[3:]) for row in SEEN])
def test_the_page_says_what_spark_sees(declared: str, spark_sees: str, hudi_sees: str) -> None:
    column = TableSchema.of(pa.schema([("c", arrow_type(declared))]))
    assert spark_schema(column.declared)["c"].dataType.simpleString() == spark_sees
    assert spark_schema(column.stored)["c"].dataType.simpleString() == hudi_sees


def test_fields_inside_of_columns_are_matched_by_name_and_added(spark: SparkSession, fast_path: Path) -> None:
    at = pa.struct([("lat", pa.int32()), ("lon", pa.int32())])
    schema = pa.schema([("id", pa.int64()), ("at", pa.list_(at))])
    table = Table.create(fast_path / "stops", schema, key="id", buckets=1)
    table.upsert(pa.table([[1, 2], [[{"lat": 1, "lon": 2}], None]], schema=schema))
    table.maintenance.compact()
    more = "SELECT id, array(named_struct('zone', 'M', 'lon', cast(id AS bigint), 'lat', 5)) AS at FROM range(2, 4)"
    rows = spark.sql(more)
    rows.write.format("crdt_mor").mode("append").option("schemaMode", "merge").save(table.uri)
    spark.sql("SELECT cast(1 AS bigint) AS id, array(named_struct('lon', 7)) AS at").write.format("crdt_mor").mode(
        "append"
    ).save(table.uri)
    expected = [
        {"id": 1, "at": [{"lat": None, "lon": 7, "zone": None}]},
        {"id": 2, "at": [{"lat": 5, "lon": 2, "zone": "M"}]},
        {"id": 3, "at": [{"lat": 5, "lon": 3, "zone": "M"}]},
    ]
    assert read(spark, table.uri).toArrow().sort_by("id").to_pylist() == expected
    assert read(spark, table.uri).filter("at[0].zone = 'M'").count() == 2
    table.maintenance.compact()
    assert read(spark, table.uri).toArrow().sort_by("id").to_pylist() == expected


def test_widened_columns_are_read_and_filtered_and_an_older_frame_fails(spark: SparkSession, fast_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("price", pa.decimal128(6, 2)), ("n", pa.int32())])
    table = Table.create(fast_path / "prices", schema, key="id", buckets=1)
    table.upsert(pa.table([[1, 2], [Decimal("1.25"), Decimal("-2.50")], [5, 7]], schema=schema))
    table.maintenance.compact()
    older = read(spark, table.uri)
    rows = spark.sql(
        "SELECT cast(3 AS bigint) AS id, cast(0.125 AS decimal(6, 3)) AS price, cast(9.5 AS decimal(4, 1)) AS n"
    )
    rows.write.format("crdt_mor").mode("append").option("schemaMode", "merge").save(table.uri)
    found = read(spark, table.uri)
    assert [field.dataType.simpleString() for field in found.schema] == ["bigint", "decimal(7,3)", "decimal(11,1)"]
    assert listed(found) == [
        (1, Decimal("1.250"), Decimal("5.0")),
        (2, Decimal("-2.500"), Decimal("7.0")),
        (3, Decimal("0.125"), Decimal("9.5")),
    ]
    for condition in ("price = 1.25", "price > 0.2", "n = 5", "n < 7 AND price IS NOT NULL", "price IN (1.25, 7)"):
        assert [row[0] for row in listed(found.filter(condition))] == [1], condition
    with pytest.raises(PySparkException, match=r"column=price asked=decimal\(6,2\) table=decimal\(7,3\)"):
        older.collect()


def test_names_of_spark_types() -> None:
    kinds = (pa.uint64(), pa.uint8(), pa.timestamp("s"), pa.binary(4))
    shown = [spark_type(kind).simpleString() for kind in kinds]
    assert shown == ["decimal(20,0)", "smallint", "timestamp_ntz", "binary"]
    assert spark_type(pa.dictionary(pa.int32(), pa.string())).simpleString() == "string"
    assert spark_type(pa.map_(pa.string(), pa.list_(pa.uint16()))).simpleString() == "map<string,array<int>>"


def test_times_of_day_are_written_as_spark_reads_them(spark: SparkSession, fast_path: Path) -> None:
    from crdt_mor.readers.spark import merge, upsert

    inner = pa.struct([("at", pa.time64("us"))])
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("s", pa.time32("s")),
            ("at", pa.list_(inner)),
            ("by", pa.map_(pa.string(), pa.time64("us"))),
        ]
    )
    rows = [{"id": i, "s": time(i), "at": [{"at": time(1)}, None], "by": [("k", time(2))]} for i in (0, 23)]
    table = Table.create(fast_path / "times_of_day", schema, key="id", buckets=2)
    rows = pa.Table.from_pylist(rows, schema)
    table.upsert(rows)
    frame = read(spark, table.uri)
    upsert(frame, table.uri)
    frame.withColumn("id", frame.id + 1).write.format("crdt_mor").mode("append").save(table.uri)
    more = pa.concat_tables([rows, rows.set_column(0, "id", pa.array([1, 24]))])
    assert listed(table.to_arrow()) == listed(more)
    merged = merge(spark, table.uri, frame.withColumn("s", frame.s + 1_000_000), on="id")
    merged.when_matched_update({"s": "source.s"}, "source.s > target.s").execute()
    assert table.scan(filter="id = 23").to_polars()["s"].to_list() == [time(23, 0, 1)]
    with pytest.raises(Exception, match="a time of day must lie between"):
        upsert(frame.withColumn("s", frame.s + 86_400_000_000), table.uri)
    with pytest.raises(SchemaMismatchError, match="from Spark, a bigint of microseconds"):
        upsert(frame.withColumn("s", frame.s.cast("int")), table.uri)


NOT_NULL_INSIDE = (
    "id",
    "if(id = 'a', named_struct('x', 1, 'y', 'b'), null) AS s",
    "if(id = 'a', named_struct('in', named_struct('x', 1)), null) AS deep",
    "array(named_struct('x', 1), null) AS l",
    "map('k', array(named_struct('x', 1), null), 'n', null) AS m",
)
"""Columns whose structs are null, of fields that Spark calls NOT NULL, at every depth."""


def test_null_structs_of_fields_that_spark_calls_not_null_are_written_and_read(
    spark: SparkSession, fast_path: Path
) -> None:
    from crdt_mor.readers.spark import merge, upsert

    ids = spark.createDataFrame([("a",), ("b",)], "id string")
    frame = ids.selectExpr(*NOT_NULL_INSIDE)
    strict = pa.schema([pa.field("x", pa.int32(), False), pa.field("y", pa.string(), False)])
    nullable = written_schema(frame.schema, pa.schema([]))
    declared = nullable.set(1, pa.field("s", pa.struct(list(strict))))
    tables = [Table.create(fast_path / name, declared, key="id", buckets=1) for name in ("save", "upsert", "merge")]
    frame.write.format("crdt_mor").mode("append").save(tables[0].uri)
    upsert(frame, tables[1].uri)
    merge(spark, tables[2].uri, frame, on="id").when_not_matched_insert_all().execute()
    if SPARK >= WRITES_STREAMS:
        tables.append(Table.create(fast_path / "sink", declared, key="id", buckets=1))
        ids.write.json(str(fast_path / "in"))
        rows = spark.readStream.schema("id string").json(str(fast_path / "in")).selectExpr(*NOT_NULL_INSIDE)
        sink = rows.writeStream.format("crdt_mor").option("checkpointLocation", str(fast_path / "checkpoint"))
        sink.trigger(availableNow=True).start(tables[-1].uri).awaitTermination(60)
    inner = {"l": [{"x": 1}, None], "m": [("k", [{"x": 1}, None]), ("n", None)]}
    expected = [
        {"id": "a", "s": {"x": 1, "y": "b"}, "deep": {"in": {"x": 1}}, **inner},
        {"id": "b", "s": None, "deep": None, **inner},
    ]
    for table in tables:
        assert table.to_arrow().sort_by("id").to_pylist() == expected, table.uri
    assert read(spark, tables[0].uri).toArrow().sort_by("id").to_pylist() == expected


def test_what_spark_sends_of_null_structs_is_cast_to_what_a_table_takes() -> None:
    strict = st.StructType([st.StructField("x", st.IntegerType(), nullable=False)])
    inside = [strict, st.StructType([st.StructField("in", strict, nullable=False)]), st.ArrayType(strict)]
    frame = st.StructType([st.StructField(f"c{i}", st.MapType(st.StringType(), kind)) for i, kind in enumerate(inside)])
    sent, taken = arrow_schema(frame), written_schema(frame, pa.schema([]))
    values: list[Any] = [None, None, [None]]
    for column, target, value in zip(sent, taken, values, strict=True):
        nullable = pa.array([[("k", value)]], target.type)
        under = pa.MapArray.from_arrays(
            nullable.offsets, nullable.keys, _as_sent(nullable.items, column.type.item_type)
        )
        batch = pa.record_batch([under], pa.schema([column]))
        assert batch.cast(pa.schema([target])).column(0).to_pylist() == [[("k", value)]]


def _as_sent(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values in a type whose fields are not null, with nulls in these below null structs, as Spark sends them."""
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(values.offsets, _as_sent(values.values, kind.value_type), type=kind)
    if not pa.types.is_struct(kind):
        return values
    fields = [_as_sent(below, field.type) for below, field in zip(values.flatten(), kind, strict=True)]
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=values.is_null())


SPARKS = {
    "map<int,string>": "map(1, 'a', 2, null)",
    "map<date,map<bigint,int>>": "map(date'2026-01-31', map(5L, 2))",
    "array<map<timestamp,struct<x:int>>>": "array(map(timestamp'2026-01-31 10:00:00', named_struct('x', 1)), null)",
    "map<decimal(2,1),boolean>": "map(1.5BD, true)",
    "interval day to second": "interval '-1 02:03:04.000005' day to second",
    "map<string,interval day to second>": "map('a', interval '0 00:00:01' day to second)",
    "struct<>": "named_struct()",
    "struct<e:struct<>,l:array<struct<>>>": "named_struct('e', named_struct(), 'l', array(named_struct(), null))",
}
"""Types of Spark that Hudi or Parquet lack, and a value."""


def test_types_that_hudi_lacks_are_written_and_read(spark: SparkSession, fast_path: Path) -> None:
    from crdt_mor.readers.spark import create, merge, upsert

    names = [f"c{number}" for number in range(len(SPARKS))]
    values = ", ".join(f"{value} AS {name}" for name, value in zip(names, SPARKS.values(), strict=True))
    nulls = ", ".join(f"null AS {name}" for name in names)
    frame = spark.sql(f"SELECT 1 AS id, {values} UNION ALL SELECT 2, {nulls}")
    table = create(frame, str(fast_path / "t"), key="id", buckets=1)
    frame.write.format("crdt_mor").mode("append").save(table.uri)
    upsert(read(spark, table.uri).selectExpr("id + 2 AS id", *names), table.uri)
    merge(spark, table.uri, frame.selectExpr("id + 4 AS id", *names), on="id").when_not_matched_insert_all().execute()
    wanted = [*map(repr, frame.drop("id").orderBy("id").collect())] * 3
    for _ in range(2):  # in logs, then in a base file
        found = read(spark, table.uri)
        assert [field.dataType.simpleString() for field in found.schema][1:] == [*SPARKS]
        assert [*map(repr, found.orderBy("id").drop("id").collect())] == wanted
        table.maintenance.compact()
    assert read(spark, table.uri).selectExpr("c0[1]", "c4 < interval '0' day").orderBy("id").first() == ("a", True)
    assert table.verify().findings == ()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("interval '1-2' year to month", r"cast\(cast\(c AS interval month\) AS int\): Spark returns no such interval"),
        ("make_interval(1)", "Spark lets no data source hold it"),
        ("null", "no value says which type this is: cast the column to its later type, or drop it"),
        ("named_struct('a', null)", r"no value says which type this is.*column=c\.a"),
        ("array()", r"cast the column, as to array<string>"),
        ("map(named_struct('a', 1), 2)", "a map's key has no inner types: use a list of structs"),
    ],
)
def test_types_that_no_table_holds_are_refused_with_the_way_out(spark: SparkSession, value: str, said: str) -> None:
    from crdt_mor.readers.spark import create

    with pytest.raises(SchemaMismatchError, match=said):
        create(spark.sql(f"SELECT 1 AS id, {value} AS c").schema, "/nowhere", key="id")


def test_month_of_an_interval_is_the_number_that_the_refusal_names(spark: SparkSession) -> None:
    found = spark.sql("SELECT cast(cast(interval '-1-2' year to month AS interval month) AS int)").first()
    assert found == (-14,)

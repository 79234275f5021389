"""VARIANT columns: each value comes back as Spark wrote it, byte for byte, through every door."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from crdt_mor import Table
from crdt_mor.readers.spark.versions import READS_STREAMS, SPARK
from tests.spark.helpers import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

VALUES = (
    """parse_json('{"a": [1, 2.50, "x", null, true], "b": {"c": 1e300}}')""",
    "parse_json('null')",
    "to_variant_object(named_struct('d', date'1582-01-01', 't', timestamp'2026-03-08 02:30:00.000001'))",
    "to_variant_object(array(timestamp_ntz'2026-03-08 02:30:00', null))",
    "to_variant_object(map('k', X'00FF'))",
    "cast(12345678901234567890123456789.012345678BD AS variant)",
    "cast(1.5f AS variant)",
    "cast(cast(7 AS tinyint) AS variant)",
    "null",
)
SEEN = (
    "to_json(v)",
    "schema_of_variant(v)",
    "variant_get(v, '$.a[1]', 'decimal(9,2)')",
    "to_json(l[0])",
    "to_json(s.v)",
)


def rows(spark: SparkSession, first: int = 0) -> DataFrame:
    values = " UNION ALL ".join(
        f"SELECT {first + number} AS id, cast({value} AS variant) AS v" for number, value in enumerate(VALUES)
    )
    inside = "array(v, null) AS l", "map(id, v) AS m", "if(id % 2 = 0, named_struct('v', v), null) AS s"
    return spark.sql(values).selectExpr("id", "v", *inside)


def seen(frame: DataFrame) -> list[Any]:
    return [tuple(row) for row in frame.selectExpr("id", *SEEN).orderBy("id").collect()]


def parts(frame: DataFrame) -> list[Any]:
    """The bytes of the values; `toArrow` of pyspark 4.3 fails for a null among them."""
    found = frame.select("id", "v").orderBy("id").collect()
    return [(row.id, row.v and (bytes(row.v.value), bytes(row.v.metadata))) for row in found]


def test_values_come_back_as_spark_wrote_them(spark: SparkSession, fast_path: Path) -> None:
    from crdt_mor.readers.spark import create, merge, update, upsert

    frame = rows(spark)
    table = create(frame, str(fast_path / "t"), key="id", buckets=1)
    frame.write.format("crdt_mor").mode("append").save(table.uri)
    found = read(spark, table.uri)
    assert [field.dataType for field in found.schema] == [field.dataType for field in frame.schema]
    assert (seen(found), parts(found)) == (seen(frame), parts(frame))
    table.maintenance.compact()
    upsert(read(spark, table.uri).limit(4), table.uri)
    merge(spark, table.uri, rows(spark, 100), on="id").when_not_matched_insert_all().execute()
    update(spark, table.uri, {"l": "null"}, "id = 108")
    found, wanted = read(spark, table.uri), rows(spark).unionAll(rows(spark, 100))
    assert (seen(found), parts(found)) == (seen(wanted), parts(wanted))
    assert found.filter("v IS NULL").count() == 2
    assert found.filter("variant_get(v, '$.b.c', 'double') > 1").count() == 2
    assert table.verify().findings == ()


@pytest.mark.skipif(SPARK < READS_STREAMS, reason="older releases read no streams from Python")
def test_streams_have_variants(spark: SparkSession, fast_path: Path) -> None:
    from crdt_mor.readers.spark import create

    frame = rows(spark)
    table, copy = (create(frame, str(fast_path / name), key="id", buckets=1) for name in ("t", "copy"))
    frame.write.format("crdt_mor").mode("append").save(table.uri)
    source = spark.readStream.format("crdt_mor").load(table.uri).select(*frame.columns)
    sink = source.writeStream.format("crdt_mor").option("checkpointLocation", str(fast_path / "checkpoint"))
    sink.trigger(availableNow=True).start(copy.uri).awaitTermination(60)
    assert (seen(read(spark, copy.uri)), parts(read(spark, copy.uri))) == (seen(frame), parts(frame))


def test_changes_have_variants(spark: SparkSession, fast_path: Path) -> None:
    from crdt_mor.readers.spark import create

    frame = rows(spark)
    table = create(frame, str(fast_path / "t"), key="id", buckets=1)
    frame.write.format("crdt_mor").mode("append").save(table.uri)
    assert parts(read(spark, table.uri, changes="images")) == parts(frame)


def test_rows_of_python_and_spark_are_one_table(spark: SparkSession, fast_path: Path) -> None:
    import pyarrow as pa
    from pyspark.sql.types import VariantVal

    made = VariantVal.parseJson('{"price": 1.25}')
    table = Table.create(fast_path / "t", {"id": "int64", "v": "variant"}, key="id")
    table.upsert(pa.table({"id": [1], "v": [{"value": made.value, "metadata": made.metadata}]}))
    table.upsert(rows(spark).limit(1).selectExpr("cast(id AS bigint) AS id", "v").toArrow())
    found = read(spark, table.uri).selectExpr("variant_get(v, '$.price', 'double')").orderBy("id").collect()
    assert [row[0] for row in found] == [None, 1.25]
    value = table.to_arrow().sort_by("id")["v"].to_pylist()[1]
    assert VariantVal(value["value"], value["metadata"]).toPython() == {"price": 1.25}

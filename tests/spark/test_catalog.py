"""Tables of Spark's catalog: no write erases what a statement left out, and what the catalog alone says is mended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.functions import lit

from crdt_mor import InvalidInputError, PartialUpdate, Table
from crdt_mor.readers.spark import register_path
from crdt_mor.readers.spark.versions import READS_STREAMS, SPARK
from tests.spark.helpers import listed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("n", pa.int64())])
ROWS = pa.table({"id": ["a", "b"], "day": ["mon", "tue"], "n": [1, 2]}, schema=SCHEMA)
MADE_ANEW = "CREATE OR REPLACE TABLE days USING days"

LEFT_OUT = r"null in every row, and Spark hides whether.*columns=\['day'\]|Cannot find data for the output column"
"""What we say, or Spark 4.0."""


@pytest.fixture
def table(fast_path: Path) -> Table:
    made = Table.create(fast_path / "days", SCHEMA, key="id", merge=PartialUpdate())
    made.upsert(ROWS)
    return made


@pytest.fixture
def sql(spark: SparkSession, table: Table) -> Iterator[SparkSession]:
    register_path(spark, "days", table.uri)
    spark.sql("CREATE TABLE days USING days")
    yield spark
    spark.sql("DROP TABLE IF EXISTS days")
    spark.sql("DROP TABLE IF EXISTS others")


def rows(spark: SparkSession, *values: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(values) or [("a", "mon", 1), ("b", "tue", 2)], "id string, day string, n long")


def other(spark: SparkSession) -> None:
    rows(spark).createOrReplaceTempView("source")
    spark.sql("CREATE TABLE others USING days AS SELECT * FROM source")
    spark.sql("DROP TABLE days")
    spark.sql("ALTER TABLE others RENAME TO days")


UNGUARDED: dict[str, Callable[[SparkSession], object]] = {
    "writeTo.replace": lambda s: rows(s).writeTo("days").using("days").replace(),
    "CREATE OR REPLACE": lambda s: s.sql("CREATE OR REPLACE TABLE days USING days AS SELECT 'a' id, 'mon' day, 1L n"),
    "CREATE AS SELECT": other,
    "saveAsTable": lambda s: rows(s).write.format("days").mode("overwrite").saveAsTable("days"),
    "DROP DEFAULT": lambda s: s.sql("ALTER TABLE days ALTER COLUMN day DROP DEFAULT"),
}


@pytest.mark.parametrize("replace", UNGUARDED.values(), ids=UNGUARDED)
def test_columns_that_a_statement_left_out_are_not_erased_where_the_catalog_has_lost_its_guard(
    sql: SparkSession, table: Table, replace: Callable[[SparkSession], object]
) -> None:
    replace(sql)
    before = listed(table.scan())
    for write in ("INSERT INTO days (id, n) VALUES ('a', 5)", "INSERT OVERWRITE days (n, id) SELECT n, id FROM days"):
        with pytest.raises(PySparkException, match=LEFT_OUT):
            sql.sql(write)
    assert listed(table.scan()) == before
    sql.sql("INSERT INTO days SELECT 'a', 'wed', 7L")
    assert ("a", "wed", 7) in listed(table.scan())


def test_what_left_columns_out_is_refused_by_spark_again_once_the_catalog_takes_the_columns_anew(
    sql: SparkSession, table: Table
) -> None:
    rows(sql, ("a", "wed", 5)).writeTo("days").using("days").replace()
    sql.sql(MADE_ANEW)
    with pytest.raises(PySparkException, match=r"name every column|Cannot find data"):
        sql.sql("INSERT INTO days (id, n) VALUES ('a', 6)")
    assert listed(table.scan()) == [("a", "wed", 5)]


def test_nulls_that_a_statement_gives_are_written(sql: SparkSession, table: Table) -> None:
    nulls = rows(sql, ("a", None, 5))
    nulls.createOrReplaceTempView("source")
    sql.sql("INSERT INTO days SELECT * FROM source")  # of the table's names and types
    sql.sql("INSERT INTO days VALUES ('b', NULL, 6)")
    nulls.write.format("crdt_mor").mode("append").save(table.uri)
    assert listed(table.scan()) == [("a", None, 5), ("b", None, 6)]
    rows(sql).writeTo("days").using("days").replace()
    for write in (
        lambda: sql.sql("INSERT INTO days SELECT * FROM source"),
        lambda: nulls.write.format("days").mode("append").save(),
        lambda: nulls.writeTo("days").append(),
        lambda: nulls.write.insertInto("days"),
    ):
        with pytest.raises(PySparkException, match="WITH \\('missing' = 'null'\\)"):
            write()
    assert listed(table.scan()) == listed(ROWS)
    sql.sql("INSERT INTO days WITH ('missing' = 'null') SELECT * FROM source")
    nulls.withColumn("id", lit("b")).write.format("days").mode("append").option("missing", "null").save()
    assert listed(table.scan()) == [("a", None, 5), ("b", None, 5)]
    with pytest.raises(PySparkException, match="missing is null, for columns"):
        sql.sql("INSERT INTO days WITH ('missing' = 'zero') SELECT * FROM source")


def test_one_value_in_any_task_shows_that_a_column_was_given_and_deletes_and_no_rows_need_none(
    sql: SparkSession, table: Table
) -> None:
    sql.sql("CREATE OR REPLACE TABLE days (id STRING, day STRING, n BIGINT) USING days")
    three = rows(sql, ("a", None, 1), ("c", None, 3), ("d", "thu", 4)).repartition(3, "id")
    three.writeTo("days").append()
    three.where("false").writeTo("days").append()
    assert listed(table.scan()) == [("a", None, 1), ("b", "tue", 2), ("c", None, 3), ("d", "thu", 4)]
    sql.sql("INSERT INTO days WITH ('operation' = 'delete') VALUES ('a', NULL, NULL)")
    assert listed(table.scan(columns=["id"])) == [("b",), ("c",), ("d",)]


ALTERED: dict[str, tuple[str, str, str]] = {
    "RENAME COLUMN n TO m": ("n", r"alter\(rename=\{'n': 'm'\}\)", "id, day, m"),
    "DROP COLUMN day": ("day", r"alter\(drop=\['day'\]\)", "id, n"),
    "DROP COLUMN id": ("id", "lacks columns", ""),
    "ALTER COLUMN n TYPE double": ("n", "another type in Spark's catalog.*catalog=double table=bigint", ""),
}


@pytest.mark.parametrize("change", ALTERED)
def test_what_alter_changes_in_the_catalog_alone_the_next_query_says_how_to_mend(
    sql: SparkSession, table: Table, change: str
) -> None:
    column, message, names = ALTERED[change]
    sql.sql(f"ALTER TABLE days {change}")
    with pytest.raises(PySparkException, match=message) as raised:
        sql.table("days").collect()
    assert MADE_ANEW in str(raised.value)
    if names:
        renamed = {column: "m"} if "RENAME" in change else None
        table.alter(rename=renamed, drop=() if renamed else [column])
        assert sql.table("days").columns == names.split(", ")
        assert listed(sql.table("days")) == listed(table.scan())
    else:
        sql.sql(MADE_ANEW)
        assert listed(sql.table("days")) == listed(ROWS)


def test_a_write_under_names_that_the_catalog_alone_has_says_how_to_mend(sql: SparkSession, table: Table) -> None:
    sql.sql("ALTER TABLE days RENAME COLUMN n TO m")
    with pytest.raises(PySparkException, match=r"alter\(rename=\{'n': 'm'\}\)"):
        sql.sql("INSERT INTO days SELECT 'a', 'mon', 5")
    assert listed(table.scan()) == listed(ROWS)


def test_columns_that_others_add_rename_and_drop_show_once_the_catalog_takes_the_columns_anew(
    sql: SparkSession, table: Table
) -> None:
    table.upsert(pa.table({"id": ["b"], "x": [7]}), schema_mode="merge")
    assert listed(sql.table("days")) == listed(ROWS)
    sql.sql(MADE_ANEW)
    assert listed(sql.table("days")) == [("a", "mon", 1, None), ("b", "tue", 2, 7)]
    table.alter(rename={"n": "m"}, drop=["day"])
    with pytest.raises(PySparkException, match=r"does not have, or has under another name by now.*unknown=\['day'"):
        sql.table("days").collect()
    sql.sql(MADE_ANEW)
    assert listed(sql.table("days")) == [("a", 1, None), ("b", 2, 7)]


def test_columns_of_a_composite_key_may_be_null_in_the_catalog_too(spark: SparkSession, fast_path: Path) -> None:
    table = Table.create(fast_path / "others", SCHEMA, key=["id", "day"])
    table.upsert(pa.table({"id": ["a", "b"], "day": [None, "tue"], "n": [1, 2]}, schema=SCHEMA))
    register_path(spark, "others", table.uri)
    spark.sql("CREATE TABLE others USING others")
    try:
        assert listed(spark.sql("SELECT id FROM others WHERE day IS NULL")) == [("a",)]
        spark.sql("INSERT INTO others SELECT 'c', NULL, 3L")
    finally:
        spark.sql("DROP TABLE others")
    assert table.scan().count() == 3


@pytest.mark.skipif(SPARK < READS_STREAMS, reason="older releases read no streams from Python")
def test_a_stream_reads_a_table_of_the_catalog(sql: SparkSession, table: Table, fast_path: Path) -> None:
    found: list[object] = []
    stream = sql.readStream.table("days").writeStream.foreachBatch(lambda frame, _: found.extend(listed(frame)))
    stream.option("checkpointLocation", str(fast_path / "c")).trigger(availableNow=True).start().awaitTermination(60)
    assert found == listed(table.scan())


def test_a_name_that_the_catalog_has_for_files_of_sparks_own_is_refused(sql: SparkSession, table: Table) -> None:
    rows(sql).write.mode("overwrite").saveAsTable("days")  # no format: Parquet
    with pytest.raises(InvalidInputError, match=r"keeps its rows by itself.*DROP TABLE days.*format=parquet"):
        register_path(sql, "days", table.uri)


def test_a_replacement_without_a_format_is_refused_by_spark_and_changes_nothing(
    sql: SparkSession, table: Table
) -> None:
    before = listed(table.scan())
    for attempt in (
        lambda: sql.sql("CREATE OR REPLACE TABLE days AS SELECT * FROM days"),
        lambda: rows(sql).writeTo("days").replace(),
        lambda: rows(sql).writeTo("days").createOrReplace(),
    ):
        with pytest.raises(PySparkException, match="REPLACE TABLE AS SELECT"):
            attempt()
    assert listed(sql.table("days")) == listed(table.scan()) == before

"""Tables in Spark's SQL: what works, and that what Spark does not allow fails in its own words, changing nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.functions import lit

from crdt_mor import InvalidInputError, PartialUpdate, Table
from crdt_mor.errors import TableNotFoundError, UnsupportedVersionError
from crdt_mor.readers.spark import register_path, require_java, upsert
from crdt_mor.readers.spark.versions import ONE_SNAPSHOT_A_FRAME, SPARK
from tests.spark.helpers import listed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


@pytest.fixture
def table(fast_path: Path) -> Table:
    made = Table.create(fast_path / "events", SCHEMA, key="id")
    made.upsert(pa.table({"id": ["a", "b"], "n": [1, 2]}))
    return made


@pytest.fixture
def sql(spark: SparkSession, table: Table) -> Iterator[SparkSession]:
    register_path(spark, "events", table.uri)
    spark.sql("CREATE TABLE events USING events")
    yield spark
    spark.sql("DROP TABLE IF EXISTS events")
    spark.sql("DROP VIEW IF EXISTS looked_at")


@pytest.mark.skipif(SPARK < ONE_SNAPSHOT_A_FRAME, reason="Spark 4.0 plans every action of a frame anew")
def test_a_temporary_view_takes_options_and_shows_the_snapshot_of_its_first_query(
    spark: SparkSession, table: Table
) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW looked_at USING crdt_mor OPTIONS (path '{table.uri}', columns 'id,n')")
    try:
        assert listed(spark.sql("SELECT * FROM looked_at WHERE n > 1")) == [("b", 2)]
        table.upsert(pa.table({"id": ["c"], "n": [3]}))
        assert listed(spark.sql("SELECT count(*), sum(n) FROM looked_at")) == [(2, 3)]
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW looked_at USING crdt_mor OPTIONS (path '{table.uri}')")
        assert listed(spark.sql("SELECT count(*), sum(n) FROM looked_at")) == [(3, 6)]
    finally:
        spark.sql("DROP VIEW looked_at")


def test_a_registered_path_is_a_table_of_the_catalog(sql: SparkSession, table: Table) -> None:
    assert listed(sql.sql("SELECT * FROM events")) == listed(table.scan())
    assert [row.col_name for row in sql.sql("DESCRIBE events").collect()] == ["id", "n"]
    table.delete(keys=["a"])
    assert listed(sql.table("events")) == [("b", 2)]
    assert listed(sql.read.format("events").load()) == [("b", 2)]
    sql.sql("DROP TABLE events")
    assert table.scan().count() == 1, "the table itself is not the catalog's"


def test_options_of_a_query_travel_in_time(sql: SparkSession, table: Table) -> None:
    before = table.version
    table.upsert(pa.table({"id": ["a"], "n": [10]}))
    assert listed(sql.sql(f"SELECT * FROM events WITH (asOf = '{before}')")) == [("a", 1), ("b", 2)]
    assert listed(sql.sql("SELECT * FROM events WITH (filter = 'n > 5')")) == [("a", 10)]


def test_a_table_of_the_catalog_goes_on_when_another_writer_adds_a_column(sql: SparkSession, table: Table) -> None:
    table.upsert(pa.table({"id": ["b"], "n": [2], "colour": ["red"]}), schema_mode="merge")
    sql.sql("INSERT INTO events SELECT 'b', 20L UNION ALL SELECT 'c', 3L")
    assert listed(sql.table("events")) == [("a", 1), ("b", 20), ("c", 3)]
    assert listed(table.scan()) == [("a", 1, None), ("b", 20, None), ("c", 3, None)]
    frame = sql.createDataFrame([("d", 4)], "id string, n long")
    frame.write.format("crdt_mor").mode("append").save(table.uri)
    upsert(frame.replace("d", "e"), table.uri)
    assert listed(table.scan(filter="n = 4")) == [("d", 4, None), ("e", 4, None)]


def test_insert_into_a_registered_path_upserts(sql: SparkSession, table: Table) -> None:
    sql.sql("INSERT INTO events SELECT 'b', 20L UNION ALL SELECT 'c', 3L")
    sql.sql("INSERT INTO events (n, id) VALUES (4, 'd')")
    assert listed(table.scan()) == [("a", 1), ("b", 20), ("c", 3), ("d", 4)]


REPLACES: dict[str, Callable[[SparkSession], object]] = {
    "INSERT OVERWRITE": lambda s: s.sql("INSERT OVERWRITE events SELECT 'c', 3L"),
    "name the columns to set": lambda s: s.sql("INSERT OVERWRITE events (n, id) VALUES (3, 'c')"),
    "insertInto": lambda s: s.sql("SELECT 'c' AS id, 3L AS n").write.insertInto("events", overwrite=True),
    "writeTo": lambda s: s.sql("SELECT 'c' AS id, 3L AS n").writeTo("events").overwrite(lit(True)),
    "its own rows": lambda s: s.sql("INSERT OVERWRITE events SELECT 'c', n + 1 FROM events WHERE n = 2"),
}


@pytest.mark.parametrize("write", REPLACES.values(), ids=REPLACES)
def test_all_rows_of_a_registered_path_are_replaced(
    sql: SparkSession, table: Table, write: Callable[[SparkSession], object]
) -> None:
    write(sql)
    assert listed(table.scan()) == [("c", 3)]
    assert table.history(limit=1).to_pylist()[-1]["covered"] == ["*"]


def test_the_partitions_that_a_statement_has_rows_of_are_replaced(spark: SparkSession, fast_path: Path) -> None:
    table = Table.create(fast_path / "days", SCHEMA, key=["id", "n"], partition_by="n")
    table.upsert(pa.table({"id": ["a", "b"], "n": [1, 2]}))
    register_path(spark, "days", table.uri)
    spark.sql("CREATE TABLE days USING days")
    try:
        spark.sql("INSERT OVERWRITE days WITH ('partitionOverwriteMode' = 'dynamic') SELECT 'c', 1L")
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        with pytest.raises(AnalysisException, match="does not support dynamic overwrite"):
            spark.sql("INSERT OVERWRITE days SELECT 'd', 1L")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
        spark.sql("DROP TABLE days")
    assert listed(table.scan()) == [("b", 2), ("c", 1)]


FEWER_COLUMNS: dict[str, Callable[[SparkSession], object]] = {
    "a list of columns": lambda s: s.sql("INSERT INTO events (id) VALUES ('a')"),
    "by name": lambda s: s.sql("INSERT INTO events BY NAME SELECT 'a' AS id"),
    "the word DEFAULT": lambda s: s.sql("INSERT INTO events VALUES ('a', DEFAULT)"),
    "an overwrite": lambda s: s.sql("INSERT OVERWRITE events (id) VALUES ('a')"),
    "no list of columns": lambda s: s.sql("INSERT INTO events SELECT 'a'"),
    "writeTo": lambda s: s.sql("SELECT 'a' AS id").writeTo("events").append(),
    "saveAsTable": lambda s: s.sql("SELECT 'a' AS id").write.format("events").mode("append").saveAsTable("events"),
    "insertInto": lambda s: s.sql("SELECT 'a' AS id").write.insertInto("events"),
    "save": lambda s: s.sql("SELECT 'a' AS id").write.format("events").mode("append").save(),
}


# Spark 4.0 says of some of them, in words of its own, that the default is none.
LEFT_OUT = r"raise_error\('name every column|not enough data|give every column of|Cannot find data for"


@pytest.mark.parametrize("write", FEWER_COLUMNS.values(), ids=FEWER_COLUMNS)
def test_a_write_that_leaves_columns_out_erases_nothing(
    sql: SparkSession, table: Table, write: Callable[[SparkSession], object]
) -> None:
    with pytest.raises(PySparkException, match=LEFT_OUT):
        write(sql)
    assert listed(table.scan()) == [("a", 1), ("b", 2)]


def test_no_column_of_a_partial_or_partitioned_table_is_left_out(spark: SparkSession, fast_path: Path) -> None:
    made = {
        "partial": Table.create(fast_path / "partial", SCHEMA, key="id", merge=PartialUpdate()),
        "partitioned": Table.create(fast_path / "partitioned", SCHEMA, key="id", partition_by="n"),
    }
    for name, table in made.items():
        table.upsert(pa.table({"id": ["a"], "n": [1]}))
        register_path(spark, name, table.uri)
        spark.sql(f"CREATE TABLE {name} USING {name}")
        try:
            with pytest.raises(AnalysisException, match=LEFT_OUT):
                spark.sql(f"INSERT INTO {name} (id) VALUES ('a')")
            spark.sql(f"INSERT INTO {name} (n, id) VALUES (1, 'a'), (NULL, 'b')")
        finally:
            spark.sql(f"DROP TABLE {name}")
        assert listed(table.scan()) == [("a", 1), ("b", None)]


def test_an_insert_into_a_view_that_leaves_columns_out_is_refused_where_spark_is_told_to(
    spark: SparkSession, table: Table
) -> None:
    setting = "spark.sql.defaultColumn.useNullsForMissingDefaultValues"
    spark.sql(f"CREATE TEMPORARY VIEW looked_at USING crdt_mor OPTIONS (path '{table.uri}')")
    spark.conf.set(setting, False)
    try:
        with pytest.raises(AnalysisException, match="Cannot find data for the output column `n`"):
            spark.sql("INSERT INTO looked_at (id) VALUES ('a')")
    finally:
        spark.conf.unset(setting)
        spark.sql("DROP VIEW looked_at")
    assert listed(table.scan()) == [("a", 1), ("b", 2)]


def test_frames_that_do_not_come_from_the_catalog_have_columns_without_defaults(sql: SparkSession) -> None:
    assert all(not field.metadata for field in sql.read.format("events").load().schema)
    assert all("CURRENT_DEFAULT" in field.metadata for field in sql.table("events").schema)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("UPDATE events SET n = 3 WHERE id = 'a'", "does not support UPDATE|UPDATE TABLE is not supported"),
        ("SELECT * FROM events VERSION AS OF 1", "[Tt]ime travel"),
        ("INSERT OVERWRITE events PARTITION (n = 1) SELECT 'a'", "PARTITION|partition"),
        ("INSERT INTO events REPLACE WHERE n = 1 SELECT 'a', 1L", "does not support|not support|overwrite"),
        ("DELETE FROM events WHERE id = 'a'", "does not support deletes"),
        ("MERGE INTO events t USING events s ON t.id = s.id WHEN MATCHED THEN DELETE", "MERGE INTO"),
        ("SELECT * FROM crdt_mor.`/lake/events`", "direct query on files"),
        ("SELECT * FROM elsewhere", r"readers\.spark\.register_path"),
    ],
)
def test_what_spark_does_not_allow_changes_nothing(sql: SparkSession, table: Table, query: str, message: str) -> None:
    sql.sql("CREATE TABLE elsewhere (id STRING) USING crdt_mor LOCATION '/lake/elsewhere'")
    version = table.version
    try:
        with pytest.raises(PySparkException, match=message):
            sql.sql(query).collect()
    finally:
        sql.sql("DROP TABLE elsewhere")
    assert Table(table.uri).version == version


def test_a_name_stands_for_one_table_that_is_there(spark: SparkSession, table: Table, fast_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        register_path(spark, "nothing", fast_path / "nothing")
    for name in ("a b", "crdt_mor", "", "x.y"):
        with pytest.raises(InvalidInputError, match="a name is of letters"):
            register_path(spark, name, table.uri)
    register_path(spark, "bound", table.uri)
    with pytest.raises(AnalysisException, match="bound stands for a table already"):
        spark.read.format("bound").load("/lake/other")


# --- Java -------------------------------------------------------------------------------------------------------------


def fake_java(folder: Path, version: str, refused: str = "nothing") -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f'#!/bin/sh\ncase "$*" in *{refused}*) exit 1;; esac\necho \'openjdk version "{version}"\' >&2\n')
    java.chmod(0o755)
    return folder


def test_the_java_that_spark_will_start_is_looked_at_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert require_java() >= 17
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UnsupportedVersionError, match=r"Java 17 or later: install one.*found=none.*JAVA_HOME="):
        require_java()
    for version in ("1.8.0_392", "11.0.2"):
        folder = tmp_path / version
        folder.mkdir()
        monkeypatch.setenv("JAVA_HOME", str(fake_java(folder, version)))
        with pytest.raises(UnsupportedVersionError, match=rf"Java 17 or later.*found={version}"):
            require_java()
    small = tmp_path / "small"
    small.mkdir()
    monkeypatch.setenv("JAVA_HOME", str(fake_java(small, "21.0.1", refused="add-modules")))
    with pytest.raises(UnsupportedVersionError, match=r"jdk\.incubator\.vector, which this one lacks.*found=21"):
        require_java()
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "25")))
    assert require_java() == 25

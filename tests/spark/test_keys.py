"""Keys of object stores, which Spark's plans and event log would show, are refused at every door of Spark's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from crdt_mor import Table
from crdt_mor.readers.spark import register_path
from crdt_mor.readers.spark.options import without_storage
from crdt_mor.readers.spark.versions import READS_STREAMS, SPARK, WRITES_STREAMS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KEY, VALUE = "storage.azure_storage_account_key", "a-key-that-nobody-may-see"

Door = Callable[["SparkSession", str], Any]


def _written(spark: SparkSession) -> Any:
    return spark.range(1).write.format("crdt_mor").option(KEY, VALUE)


def _sunk(spark: SparkSession, path: str) -> None:
    sink = spark.readStream.format("rate").load().selectExpr("value AS id").writeStream.format("crdt_mor")
    sink.option(KEY, VALUE).option("checkpointLocation", f"{path}-checkpoint").start(path).awaitTermination(60)


DOORS: dict[str, tuple[tuple[int, int], Door]] = {
    "read": ((4, 0), lambda s, path: s.read.format("crdt_mor").option(KEY, VALUE).load(path)),
    "read without the prefix": (
        (4, 0),
        lambda s, path: s.read.format("crdt_mor").option("AWS_Access_Key_Id", VALUE).load(path),
    ),
    "write": ((4, 0), lambda s, path: _written(s).mode("append").save(path)),
    "overwrite": ((4, 0), lambda s, path: _written(s).mode("overwrite").save(path)),
    "stream": (READS_STREAMS, lambda s, path: s.readStream.format("crdt_mor").option(KEY, VALUE).load(path)),
    "sink": (WRITES_STREAMS, _sunk),
    "view": (
        (4, 0),
        lambda s, path: s.sql(f"CREATE TEMPORARY VIEW v USING crdt_mor OPTIONS (path '{path}', `{KEY}` '{VALUE}')"),
    ),
    "CREATE TABLE": ((4, 0), lambda s, path: s.sql(f"CREATE TABLE t USING keyed OPTIONS (`{KEY}` '{VALUE}')")),
    "SELECT WITH": ((4, 0), lambda s, path: s.sql(f"SELECT * FROM keyed WITH (`{KEY}` = '{VALUE}')").collect()),
    "INSERT WITH": ((4, 0), lambda s, path: s.sql(f"INSERT INTO keyed WITH (`{KEY}` = '{VALUE}') SELECT 1L")),
}


def test_every_door_refuses_keys_and_names_the_ways_that_work(spark: SparkSession, fast_path: Path) -> None:
    table = Table.create(fast_path / "keyed", pa.schema([("id", pa.int64())]), key="id")
    version = table.version
    register_path(spark, "keyed", table.uri)
    spark.sql("CREATE TABLE keyed USING keyed")
    try:
        for door, (release, use) in DOORS.items():
            if release > SPARK:
                continue
            with pytest.raises(Exception, match="keys of an object store are no options of Spark") as raised:
                use(spark, table.uri)
            said = str(raised.value)
            assert "storage.credential_provider" in said, door
            assert VALUE not in said, door
    finally:
        spark.sql("DROP TABLE keyed")
    assert table.version == version


def test_what_is_no_key_passes() -> None:
    options = {"storage.aws_region": "r", "STORAGE.credential_provider": "acme:keys", "filter": "token = 'a'"}
    assert without_storage(options) == (
        {"filter": "token = 'a'"},
        {"aws_region": "r", "credential_provider": "acme:keys"},
    )

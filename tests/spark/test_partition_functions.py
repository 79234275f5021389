"""Spark writes, shuffles, merges and reads a table whose partitions are functions of columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crdt_mor as mor
from crdt_mor import Table
from crdt_mor.readers.spark import by_file_group, create, overwrite, upsert
from tests.spark.sessions import fixture

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::crdt_mor.errors.PartitionNotInKeyWarning")]
spark = fixture()


def rows(spark: Any, count: int, n: int) -> Any:
    moment = "timestamp '2026-01-01 00:00:00 UTC' + make_interval(0, 0, 0, 0, id * 7) AS at"
    return spark.range(count, numPartitions=2).selectExpr("id", moment, "'k' || id % 3 AS name", f"{n} AS n")


def test_every_way_to_write(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    by = [mor.day("at"), mor.bucket("id", 3), mor.truncate("name", 1)]
    create(rows(spark, 1, 0), path, key="id", partition_by=by, buckets=2)
    rows(spark, 20, 0).write.format("crdt_mor").mode("append").save(path)
    upsert(by_file_group(rows(spark, 4, 5), path), path)
    overwrite(rows(spark, 1, 7), path, partitions="dynamic")
    read = spark.read.format("crdt_mor").load(path)
    assert read.columns == ["id", "at", "name", "n"]
    assert {row.id: row.n for row in read.collect()} == {0: 7, 1: 5, 2: 5, 3: 5, **dict.fromkeys(range(4, 20), 0)}
    assert read.filter("at < timestamp '2026-01-02 00:00:00 UTC'").count() == 4
    assert Table(path).verify(deep=True).findings == ()

"""How many tasks a shuffle by file group has, and that none of them shares a file group with another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.functions import spark_partition_id

from crdt_mor import Table
from crdt_mor.readers.spark import by_file_group, overwrite, upsert
from tests.spark.sessions import fixture

pytestmark = pytest.mark.spark
spark = fixture()

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("n", pa.int64())])
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {"key": "id", "buckets": 50},
    "in partitions": {"key": ["id", "day"], "partition_by": "day", "buckets": 8},
}
MANY = 200
"""Spark's own number of tasks of a shuffle."""

NUMBERS = count()


@pytest.fixture(params=LAYOUTS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return Table.create(tmp_path / "t", SCHEMA, **LAYOUTS[request.param])


def rows(spark: Any, number: int = 10) -> Any:
    return spark.range(number, numPartitions=2).selectExpr("'k' || id as id", "'d' || id % 7 as day", "id as n")


@contextmanager
def settings(spark: Any, **given: Any) -> Iterator[None]:
    """A block in which the session has these settings, with `__` for a dot in their names."""
    named = {f"spark.sql.{name.replace('__', '.')}": str(value) for name, value in given.items()}
    before = {name: spark.conf.get(name) for name in named}
    try:
        for name, value in named.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def tasks_of(spark: Any, call: Callable[[], object]) -> int:
    """The tasks of the last stage that a call runs."""
    told, number = spark.sparkContext.statusTracker(), next(NUMBERS)
    spark.sparkContext.setJobGroup(f"counted-{number}", "a call whose tasks are counted")
    try:
        call()
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    stages = [stage for job in told.getJobIdsForGroup(f"counted-{number}") for stage in told.getJobInfo(job).stageIds]
    return int(told.getStageInfo(max(stages)).numTasks)


def test_ten_rows_are_one_task(spark: Any, table: Table) -> None:
    with settings(spark, shuffle__partitions=MANY):
        assert tasks_of(spark, lambda: upsert(rows(spark), table.uri)) == 1
        assert table.scan().count() == 10
        assert tasks_of(spark, lambda: overwrite(rows(spark, 5), table.uri)) == 1
    assert table.scan().count() == 5
    assert upsert(rows(spark).where("n < 0"), table.uri).rows == 0
    assert overwrite(rows(spark).where("n < 0"), table.uri).rows == 0
    assert table.scan().count() == 0


@pytest.mark.parametrize("adaptive", [True, False], ids=["adaptive", "a number of tasks"])
def test_more_rows_are_more_tasks_and_each_file_group_has_one(spark: Any, table: Table, adaptive: bool) -> None:
    """adaptive: Spark puts together what is below a size, here of some hundred rows; else the number is named."""
    small = {"adaptive__advisoryPartitionSizeInBytes": "4kb", "adaptive__coalescePartitions__minPartitionSize": "4kb"}
    switch = str(adaptive).lower()
    with settings(spark, shuffle__partitions=MANY, adaptive__enabled=switch, **small):
        found = by_file_group(rows(spark, 4000), table.uri).select("id", "day", spark_partition_id().alias("task"))
        placed = found.toArrow()
    groups = table.jobs.file_groups(placed.select(["id", "day"]))
    of_rows = zip(
        groups["partition"].to_pylist(), groups["bucket"].to_pylist(), placed["task"].to_pylist(), strict=True
    )
    pairs = set(of_rows)
    tasks = {task for _, _, task in pairs}
    assert len(pairs) == len({(partition, bucket) for partition, bucket, _ in pairs}), "a group has one task"
    assert 5 < len(tasks) <= 56
    assert (len(tasks) > 25) or adaptive, "Spark 4.0 places them by a hash"

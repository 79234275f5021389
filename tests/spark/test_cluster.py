"""A cluster of real processes: executors of their own, attempts that race, executors that are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests import waiting
from tests.spark.counting import counters, ones, total
from tests.spark.processes import kill_executor_once
from tests.spark.sessions import CLUSTER, fixture
from tests.spark.tables import leftovers, pending, same_rows
from tests.spark.written import TABLES, batch, make

pytestmark = pytest.mark.spark
spark = fixture(
    CLUSTER,
    spark__speculation=True,
    spark__speculation__interval="100ms",
    spark__speculation__multiplier="1.5",
    spark__speculation__quantile="0.5",
    spark__task__maxFailures=8,
)

SLOW_S = 4
"""For how long an attempt is slow: Spark looks for slow ones every 100 ms."""


def slow_first_attempt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first attempt of one task is slow, so that Spark starts another beside it."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    if context.partitionId() == 2 and context.attemptNumber() == 0:
        waiting.let_run(SLOW_S)
    yield from batches


@pytest.mark.parametrize("name", ["partitioned", "register"])
def test_executors_write_what_one_writer_writes(spark: Any, tmp_path: Path, name: str) -> None:
    from crdt_mor.readers.spark import upsert

    table, expected = (make(tmp_path / n, TABLES[name]) for n in ("t", "e"))
    data = batch(expected.schema, 2, rows=37)
    expected.upsert(data)
    upsert(spark.createDataFrame(data).repartition(3), table.uri)
    same_rows(table, expected)


def test_attempts_that_race_count_once(spark: Any, tmp_path: Path) -> None:
    table = counters(tmp_path / "t")
    frame = ones(spark).mapInArrow(slow_first_attempt, "id long, n long")
    frame.write.format("crdt_mor").mode("append").save(table.uri)
    assert total(table) == 100
    waiting.let_run(SLOW_S)  # the slow attempt wakes up, unless Spark has killed it
    table.upsert(pa.table({"id": [1], "n": [0]}))
    assert total(table) == 100
    assert [name for name in leftovers(table.uri) if ".log." in name] == []


def test_an_executor_that_is_killed_while_it_writes_costs_a_retry(spark: Any, tmp_path: Path) -> None:
    from crdt_mor.readers.spark import upsert

    table = counters(tmp_path / "t")

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        kill_executor_once(tmp_path / "killed")

    upsert(ones(spark).mapInArrow(step, "id long, n long"), table.uri)
    assert total(table) == 100
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])

"""Run the engine's work as Spark tasks: inputs are pickled for tasks, and outcomes for the driver.

A large part is a task of its own. Small parts share a task, because Spark spends the same time to start each task.
There are spark.sql.shuffle.partitions tasks, or more if these would read more than `TASK_BYTES` each.
"""

from __future__ import annotations

import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from heapq import heapreplace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import crdt_mor as mor
from crdt_mor.readers.spark.failing import own_errors
from crdt_mor.readers.spark.sessions import active, know

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource

P = TypeVar("P")
R = TypeVar("R")

_JOB: Final = "job"

TASK_BYTES = 128 << 20
"""The approximate input bytes of a task, if there are more tasks than run at once."""


def hand_over(rows: DataFrame, source: type[DataSource], job: object) -> None:
    spark = rows.sparkSession
    with own_errors(), active(spark):
        know(spark, source)
        writer = rows.write.format(source.name()).mode("append")
        writer.option(_JOB, b64encode(pickle.dumps(job)).decode()).save()


def job_of(options: Mapping[str, str]) -> Any:
    return pickle.loads(b64decode(options[_JOB]))


def in_tasks(
    spark: SparkSession,
    parts: Sequence[P],
    execute: Callable[[P], R],
    final: Callable[[mor.CrdtMorError], bool],
    sizes: Sequence[int] = (),
) -> list[R | mor.CrdtMorError]:
    """Return the result of `execute` for each part, or its error.

    final: returns True for an error that no retry avoids. Spark retries after any other error.
    """
    from pyspark.sql.functions import udf

    at_once = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    tasks = packed(sizes, at_once) if sizes else [[number] for number in range(len(parts))]
    pickled = [[pickle.dumps(parts[number]) for number in task] for task in tasks]

    # A plain function of rows, which every release of Spark 4 runs and which needs no pandas.
    @udf("binary", useArrow=False)
    def outcomes(task: int) -> bytes:
        return pickle.dumps([pickled_outcome(partial(_executed, execute, part), final) for part in pickled[task]])

    rows = spark.range(0, len(tasks), 1, numPartitions=len(tasks))
    done: dict[int, R | mor.CrdtMorError] = {}
    with own_errors():
        told = rows.select("id", outcomes("id").alias("outcomes")).collect()
    for row in told:
        done |= zip(tasks[row.id], map(pickle.loads, pickle.loads(row.outcomes)), strict=True)
    return [done[number] for number in range(len(parts))]


def packed(sizes: Sequence[int], at_once: int) -> list[list[int]]:
    """Assign parts to tasks: `at_once` of them, or more if these would be too large."""
    count = min(len(sizes), max(at_once, -(-sum(sizes) // TASK_BYTES)))
    tasks: list[tuple[int, int, list[int]]] = [(0, number, []) for number in range(count)]
    for part in sorted(range(len(sizes)), key=lambda part: -sizes[part]):
        size, number, parts = tasks[0]
        parts.append(part)
        heapreplace(tasks, (size + sizes[part], number, parts))
    return [parts for _, _, parts in sorted(tasks, key=lambda task: task[1])]


def _executed(execute: Callable[[P], R], part: bytes) -> R:
    return execute(pickle.loads(part))


def pickled_outcome(execute: Callable[[], object], final: Callable[[mor.CrdtMorError], bool]) -> bytes:
    try:
        return pickle.dumps(execute())
    except mor.CrdtMorError as error:
        if not final(error):
            raise
        return pickle.dumps(error)

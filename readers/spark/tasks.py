"""The engine's work as tasks of Spark's: what a task is told is pickled for it, and what becomes of it for the driver.

Parts of one size are a task each. Small ones share a task, as each costs Spark the same: the tasks are as many as
spark.sql.shuffle.partitions says, or more where that many would have more bytes than `TASK_BYTES`.
"""

from __future__ import annotations

import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from heapq import heapreplace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.functions import udf

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
"""What the parts of a task read, about, where there are more tasks than run at once anyway."""


def hand_over(rows: DataFrame, source: type[DataSource], job: object) -> None:
    """Have a source of this package write the rows of a frame. job: what its tasks are told, by `job_of`."""
    spark = rows.sparkSession
    with own_errors(), active(spark):
        know(spark, source)
        writer = rows.write.format(source.name()).mode("append")
        writer.option(_JOB, b64encode(pickle.dumps(job)).decode()).save()


def job_of(options: Mapping[str, str]) -> Any:
    """What `hand_over` has told a source, by the options that the source was given."""
    return pickle.loads(b64decode(options[_JOB]))


def in_tasks(
    spark: SparkSession,
    parts: Sequence[P],
    execute: Callable[[P], R],
    final: Callable[[mor.CrdtMorError], bool],
    sizes: Sequence[int] = (),
) -> list[R | mor.CrdtMorError]:
    """What `execute` gives of each part, or the error that it raises.

    final: whether an error would come again, however often the part is tried. After any other, Spark tries again.
    sizes: the bytes that each part reads; empty where each is to be a task of its own.
    """
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
    """The numbers of parts, by the tasks that have them: as many as `at_once`, or more where these would be too large.

    A part goes to the task that has the least by then, the largest part first.
    """
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
    """What `execute` gives, or the final error that it raises, for the driver."""
    try:
        return pickle.dumps(execute())
    except mor.CrdtMorError as error:
        if not final(error):
            raise
        return pickle.dumps(error)

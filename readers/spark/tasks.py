"""Parts of the engine's work as tasks of Spark's: a part is pickled for its task, what becomes of it for the driver."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql.functions import udf

import crdt_mor as mor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = TypeVar("P")
R = TypeVar("R")


def in_tasks(
    spark: SparkSession, parts: Sequence[P], execute: Callable[[P], R], final: Callable[[mor.CrdtMorError], bool]
) -> list[R | mor.CrdtMorError]:
    """What `execute` gives of each part, which is a task of its own, or the error that it raises.

    final: whether an error would come again, however often the part is tried. After any other, Spark tries again.
    """
    pickled = [pickle.dumps(part) for part in parts]

    # A plain function of rows, which every release of Spark 4 runs and which needs no pandas.
    @udf("binary", useArrow=False)
    def outcome(number: int) -> bytes:
        return pickled_outcome(lambda: execute(pickle.loads(pickled[number])), final)

    tasks = spark.range(0, len(parts), 1, numPartitions=len(parts))
    outcomes = tasks.select("id", outcome("id").alias("outcome")).collect()
    return [pickle.loads(row.outcome) for row in sorted(outcomes, key=lambda row: row.id)]


def pickled_outcome(execute: Callable[[], object], final: Callable[[mor.CrdtMorError], bool]) -> bytes:
    """What `execute` gives, or the final error that it raises, for the driver."""
    try:
        return pickle.dumps(execute())
    except mor.CrdtMorError as error:
        if not final(error):
            raise
        return pickle.dumps(error)

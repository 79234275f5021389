"""Compaction as a Spark job: one plan, its file groups executed by tasks, completed by the driver.

    compact(spark, "/lake/events")

Tasks write under the names that the plan gives, put if absent: a task that runs twice, or long after, finds its work
done and changes nothing. So does a compaction of the same plan by any other process.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

import crdt_mor as mor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact(spark: SparkSession, path: str, *, log_files_min: int = 1) -> list[mor.Compacted]:
    """Execute every open plan, oldest first, and then a new one. See `crdt_mor`'s `table.maintenance.compact`."""
    maintenance = mor.Table.open(path).maintenance
    done = [_execute(spark, path, plan) for plan in maintenance.open_plans()]
    fresh = maintenance.plan_compaction(log_files_min=log_files_min)
    if fresh is not None:
        done.append(_execute(spark, path, fresh))
    return [compacted for compacted in done if compacted is not None]


def _execute(spark: SparkSession, path: str, plan: mor.CompactionPlan) -> mor.Compacted | None:
    def executed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        maintenance = mor.Table.open(path).maintenance
        for batch in batches:
            for part in batch["part"].to_pylist():
                files = maintenance.execute(pickle.loads(part))
                yield pa.record_batch({"files": [pickle.dumps(files)]})

    parts = [(number, pickle.dumps(part)) for number, part in enumerate(plan.parts())]
    frame = spark.createDataFrame(parts, "number int, part binary").repartitionById(len(parts), "number")
    found = frame.mapInArrow(executed, "files binary").collect()
    files = [file for row in found for file in pickle.loads(row.files)]
    return mor.Table.open(path).maintenance.complete(plan, files)

"""Compaction as a Spark job: one plan, its file groups executed by tasks, completed by the driver.

    compact(spark, "/lake/events")

Tasks write under the names that the plan gives, put if absent: a task that runs twice, or long after, finds its work
done and changes nothing. So does a compaction of the same plan by any other process.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.functions import udf

import crdt_mor as mor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact(
    spark: SparkSession,
    path: str,
    *,
    log_files_min: int = 1,
    logs_only: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> list[mor.Compacted]:
    """Execute every open plan, oldest first, and then a new one. See `crdt_mor`'s `table.maintenance.compact`."""
    table = mor.Table.open(path, storage_options=storage_options)
    maintenance = table.maintenance
    done = [_execute(spark, table, plan) for plan in maintenance.open_plans()]
    fresh = maintenance.plan_compaction(log_files_min=log_files_min, logs_only=logs_only)
    if fresh is not None:
        done.append(_execute(spark, table, fresh))
    return [compacted for compacted in done if compacted is not None]


def _execute(spark: SparkSession, table: mor.Table, plan: mor.CompactionPlan) -> mor.Compacted | None:
    uri, options = table.uri, table.storage_options
    parts = [pickle.dumps(part) for part in plan.parts()]

    # A plain function of rows, which every release of Spark 4 runs and which needs no pandas.
    @udf("binary", useArrow=False)
    def execute(number: int) -> bytes:
        part = pickle.loads(parts[number])
        return pickle.dumps(mor.Table.open(uri, storage_options=options).maintenance.execute(part))

    tasks = spark.range(0, len(parts), 1, numPartitions=len(parts))
    outputs = tasks.select(execute("id").alias("files")).collect()
    files = [file for row in outputs for file in pickle.loads(row.files)]
    return table.maintenance.complete(plan, files)

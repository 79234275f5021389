"""Compaction as a Spark job: one plan, its file groups executed by tasks, completed by the driver.

    compact(spark, "/lake/events")

Tasks write under the names that the plan gives, put if absent: a task that runs twice, or long after, finds its work
done and changes nothing. So does a compaction of the same plan by any other process.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.functions import udf

import crdt_mor as mor

_OF_FILES = (mor.FormatError, mor.PayloadError, mor.SnapshotExpiredError, mor.UnsupportedFeatureError)
"""What `execute` raises of a file group that cannot be compacted, however often it is tried."""

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact(
    spark: SparkSession,
    path: str,
    *,
    log_files_min: int = 1,
    logs_only: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> list[mor.Compacted]:
    """Execute every open plan, oldest first, and then a new one. See `crdt_mor`'s `table.maintenance.compact`."""
    table = mor.Table.open(path, storage_options=storage_options)
    run = partial(_execute, spark, table)
    return table.maintenance.compact(log_files_min=log_files_min, logs_only=logs_only, execute_parts=run)


def _execute(
    spark: SparkSession, table: mor.Table, parts: Sequence[mor.CompactionPlan]
) -> list[list[mor.DataFile] | mor.CrdtMorError]:
    uri, options = table.uri, table.storage_options
    pickled = [pickle.dumps(part) for part in parts]

    # A plain function of rows, which every release of Spark 4 runs and which needs no pandas.
    @udf("binary", useArrow=False)
    def execute(number: int) -> bytes:
        part = pickle.loads(pickled[number])
        maintenance = mor.Table.open(uri, storage_options=options).maintenance
        try:
            return pickle.dumps(maintenance.execute(part))
        except _OF_FILES as error:  # whatever else fails, Spark tries again
            return pickle.dumps(error)

    tasks = spark.range(0, len(parts), 1, numPartitions=len(parts))
    outputs = tasks.select("id", execute("id").alias("files")).collect()
    return [pickle.loads(row.files) for row in sorted(outputs, key=lambda row: row.id)]

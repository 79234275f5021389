"""Compaction as a Spark job: one plan, its file groups executed by tasks, completed by the driver.

    compact(spark, "/lake/events")
    maintain(spark, "/lake/events")            # and all other upkeep that is due, which the driver does

Tasks write under the names that the plan gives, put if absent: a task that runs twice, or long after, finds its work
done and changes nothing. So does a compaction of the same plan by any other process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import crdt_mor as mor
from crdt_mor.readers.spark.options import Payloads
from crdt_mor.readers.spark.tasks import in_tasks

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
    rewrite: Literal["order"] | None = None,
    payloads: Payloads = (),
    storage_options: Mapping[str, Any] | None = None,
) -> list[mor.Compacted]:
    """Execute every open plan, oldest first, and then a new one. See `crdt_mor`'s `table.maintenance.compact`."""
    table = mor.Table.open(path, payloads=payloads, storage_options=storage_options)
    return table.maintenance.compact(
        log_files_min=log_files_min, logs_only=logs_only, rewrite=rewrite, execute_parts=partial(_execute, spark, table)
    )


def maintain(
    spark: SparkSession,
    path: str,
    *,
    keep: timedelta | None = None,
    keep_commits: int | None = None,
    payloads: Payloads = (),
    storage_options: Mapping[str, Any] | None = None,
) -> mor.Maintained:
    """Do what is due of the upkeep of a table. See `crdt_mor`'s `table.maintenance.maintain`."""
    table = mor.Table.open(path, payloads=payloads, storage_options=storage_options)
    run = partial(_execute, spark, table)
    return table.maintenance.maintain(keep=keep, keep_commits=keep_commits, execute_parts=run)


def _execute(
    spark: SparkSession, table: mor.Table, parts: Sequence[mor.CompactionPlan]
) -> list[list[mor.DataFile] | mor.CrdtMorError]:
    uri, options = table.uri, table.storage_options

    def execute(part: mor.CompactionPlan) -> list[mor.DataFile]:
        return mor.Table.open(uri, storage_options=options).maintenance.execute(part)

    sizes = [sum(group.bytes for group in part.groups) for part in parts]
    return in_tasks(spark, parts, execute, lambda error: isinstance(error, _OF_FILES), sizes)

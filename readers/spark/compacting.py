"""Compaction as a Spark job: a plan whose file groups tasks execute and the driver completes.

    compact(spark, "/lake/events")
    maintain(spark, "/lake/events")            # and all other due upkeep, on the driver

Tasks put files under the names in the plan, if absent. A task that runs twice, or late, finds its work done and changes
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import crdt_mor as mor
from crdt_mor.readers.spark.options import Payloads
from crdt_mor.readers.spark.tasks import in_tasks

_OF_FILES = (
    mor.errors.FormatError,
    mor.errors.PayloadError,
    mor.SnapshotExpiredError,
    mor.errors.UnsupportedFeatureError,
)
"""Errors of `execute` for a file group that no retry can compact."""

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
) -> list[mor.results.Compacted]:
    """Execute every open plan, oldest first, and then a new one. See `Maintenance.compact`.

    Args:
        log_files_min: plan file groups with at least this many log files.
        logs_only: merge logs into one log and keep the base files.
        rewrite: "order" also rewrites base files with another row order than the table's properties.
        payloads: custom payloads, as for `Table`.
        storage_options: options of the object store, as for `Table`.
    """
    table = mor.Table(path, payloads=payloads, storage_options=storage_options)
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
) -> mor.results.Maintained:
    """Do the due upkeep of a table: compactions as Spark tasks, the rest on the driver. See `Maintenance.maintain`.

    Args:
        keep: the age of history to keep.
        keep_commits: the number of commits whose views to keep.
    """
    table = mor.Table(path, payloads=payloads, storage_options=storage_options)
    run = partial(_execute, spark, table)
    return table.maintenance.maintain(keep=keep, keep_commits=keep_commits, execute_parts=run)


def _execute(
    spark: SparkSession, table: mor.Table, parts: Sequence[mor.parts.CompactionPlan]
) -> list[list[mor.parts.DataFile] | mor.CrdtMorError]:
    uri, options = table.uri, table.storage_options

    def execute(part: mor.parts.CompactionPlan) -> list[mor.parts.DataFile]:
        return mor.Table(uri, storage_options=options).maintenance.plans.execute(part)

    sizes = [part.bytes for part in parts]
    return in_tasks(spark, parts, execute, lambda error: isinstance(error, _OF_FILES), sizes)

"""Write a Spark frame: tasks stage files, the driver publishes one commit.

    df.write.format("crdt_mor").mode("append").option("operation", "upsert").save("/lake/events")
    df.write.format("crdt_mor").mode("overwrite").option("partitionOverwriteMode", "dynamic").save("/lake/events")
    commit = upsert(df, "/lake/events")            # an upsert, its rows shuffled by file group first

    driver    plan      options and columns are checked before any task runs
    tasks     stage     whole, invisible files; a task that fails, repeats or comes late changes nothing
    driver    complete  the receipts of the attempts that Spark counted, one commit; or, if the job fails, abandon

Each step of the driver may run in a separate Python process with only the job.

A file group gets one log file per commit: a single task's file unchanged, otherwise a joint file made by the driver
(`write.job_files`). `by_file_group` shuffles all rows of a group to one task.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import crdt_mor as mor
from crdt_mor.readers.spark.failing import message_first
from crdt_mor.readers.spark.options import Payloads, by_name, flag, names_of, payloads, without_storage
from crdt_mor.readers.spark.shuffling import Numbers, shuffled
from crdt_mor.readers.spark.tasks import hand_over, job_of
from crdt_mor.readers.spark.types import written_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.datasource import DataSourceWriter

OPTIONS = ("path", "operation", "schemaMode", "plain", "payloads", "partitions", "columns", "nulls")
BATCH_OPTIONS = ("partitionOverwriteMode", "txnAppId", "txnVersion")

Operation = Literal["append", "upsert", "delete", "overwrite"]
Partitions = Literal["dynamic"] | Collection[object] | None


def plan(options: Mapping[str, str], known: Sequence[str], schema: StructType, overwrite: bool) -> Planned:
    options, stored = without_storage(options)
    settings = by_name(options, known, "write")
    if "path" not in settings:
        raise mor.InvalidInputError(
            'say which table: .save("/lake/events"), .start("/lake/events") or option("path", ...). A name in Spark\'s '
            "catalog cannot hold an address: DROP TABLE the name that toTable, saveAsTable or CREATE TABLE has made, "
            "then crdt_mor.readers.spark.register_path(spark, name, path), or named_source without Python code, and "
            "CREATE TABLE name USING name"
        )
    operation: Any = _operation(settings, overwrite)
    mode: Any = settings.get("schemaMode", "strict")
    storage = mor.store.storage_options(settings["path"], stored or None)
    table = mor.Table(settings["path"], payloads=payloads(settings), storage_options=storage)
    columns = written_schema(schema, table.schema)
    job = table.jobs.plan(
        operation,
        columns,
        partitions=_partitions(settings, overwrite),
        columns=names_of("columns", settings),
        schema_mode=mode,
        plain=flag("plain", settings),
        nulls=names_of("nulls", settings) or (),
        token=_token(settings),
    )
    return Planned(job, columns)


def plan_batch(options: Mapping[str, str], schema: StructType, overwrite: bool) -> Planned:
    return plan(options, (*OPTIONS, *BATCH_OPTIONS), schema, overwrite)


def _operation(settings: Mapping[str, str], overwrite: bool) -> str:
    """Return the operation. In Spark only a batch's mode decides whether it replaces rows."""
    operation = settings.get("operation")
    if overwrite and operation not in (None, "overwrite"):
        raise mor.InvalidInputError(
            'mode("overwrite") replaces rows: leave the option operation out, or use mode("append") to write or delete '
            f"rows by key. operation={operation!r}"
        )
    if operation == "overwrite" and not overwrite:
        raise mor.InvalidInputError('to replace rows say mode("overwrite"), and leave the option operation out')
    return "overwrite" if overwrite else operation or "upsert"


def _partitions(settings: Mapping[str, str], overwrite: bool) -> Partitions:
    """Return the partitions of a write. An overwrite replaces these, or those of Spark's own option."""
    named = names_of("partitions", settings)
    mode = settings.get("partitionOverwriteMode", "static").lower()
    if mode not in ("static", "dynamic"):
        raise mor.InvalidInputError(
            "partitionOverwriteMode is static, which replaces all rows of the table, or dynamic, those of the "
            f"partitions that the frame has rows of. partitionOverwriteMode={mode!r}"
        )
    if not overwrite or (named is not None and "partitionOverwriteMode" not in settings):
        return named
    if named is not None:
        raise mor.InvalidInputError(
            "an overwrite replaces the partitions that the option partitions names, or what partitionOverwriteMode "
            f"says: leave one of them out. partitions={named}"
        )
    return "dynamic" if mode == "dynamic" else None


def _token(settings: Mapping[str, str]) -> tuple[str, int] | None:
    application, number = settings.get("txnAppId"), settings.get("txnVersion")
    if application is None and number is None:
        return None
    if not application or number is None or not number.isdecimal():
        raise mor.InvalidInputError(
            "txnAppId and txnVersion name a write together, a text and a number that grows. "
            f"txnAppId={application!r} txnVersion={number!r}"
        )
    return application, int(number)


@dataclass(frozen=True, slots=True)
class Planned:
    job: mor.parts.WriteJob
    columns: pa.Schema

    def stage(self, batches: Iterable[pa.RecordBatch]) -> mor.parts.Receipt:
        rows = pa.RecordBatchReader.from_batches(self.columns, (batch.cast(self.columns) for batch in batches))
        context = TaskContext.get()
        assert context is not None, "called in a task"
        return self.job.stage(rows, task=context.partitionId())


class Staged(WriterCommitMessage):
    def __init__(self, receipt: mor.parts.Receipt) -> None:
        self.receipt = receipt


def table_of(job: mor.parts.WriteJob) -> mor.Table:
    return mor.Table(job.uri, opening=mor.Opening(store=job.store))


class BatchWriter(DataSourceArrowWriter):
    """`df.write`: one commit."""

    def __init__(self, planned: Planned) -> None:
        self._planned = planned

    @message_first
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage a task's rows. Called in a task."""
        return Staged(self._planned.stage(iterator))

    @message_first
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit. A job without tasks has no messages."""
        receipts = [message.receipt for message in messages if isinstance(message, Staged)]
        table_of(self._planned.job).jobs.complete(self._planned.job, receipts)

    @message_first
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002  the job says it all
        table_of(self._planned.job).jobs.abandon(self._planned.job)


class PlannedWrites(DataSource):
    """Writes the rows of a job planned by `append` or a similar function, which return its commit.

    The rows pass through a Spark data source, because `mapInArrow` requires pandas.
    """

    @classmethod
    def name(cls) -> str:
        return "crdt_mor_planned_writes"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002  the job says it all
        return BatchWriter(job_of(self.options))


# --- shuffled by file group -------------------------------------------------------------------------------------------


def append(
    df: DataFrame,
    path: str,
    *,
    partitions: Collection[object] | None = None,
    columns: Collection[str] | None = None,
    schema_mode: Literal["strict", "merge"] = "strict",
    token: tuple[str, int] | None = None,
    commit_info: Mapping[str, str] | None = None,
    payloads: Payloads = (),
    storage_options: Mapping[str, Any] | None = None,
) -> mor.Commit:
    """Insert the rows of a frame; a duplicate key is an error. See `Table.append`.

    Arguments are those of `upsert`.
    """
    settings = {"partitions": partitions, "columns": columns, "schema_mode": schema_mode, "commit_info": commit_info}
    return _write(df, path, "append", token, payloads, storage_options, **settings)


def upsert(
    df: DataFrame,
    path: str,
    *,
    partitions: Collection[object] | None = None,
    columns: Collection[str] | None = None,
    schema_mode: Literal["strict", "merge"] = "strict",
    nulls: str | Collection[str] = (),
    token: tuple[str, int] | None = None,
    commit_info: Mapping[str, str] | None = None,
    payloads: Payloads = (),
    storage_options: Mapping[str, Any] | None = None,
) -> mor.Commit:
    """Insert or update the rows of a frame by key, shuffled by file group once. See `Table.upsert`.

    Args:
        partitions, columns: all partitions and columns of the rows, as for `Table.transaction`. Updates of others then
            do not wait for this write. Rows with others are refused.
        schema_mode: "merge" adds new columns of the frame to the table.
        nulls: columns in which nulls are written, as for `Table.upsert`.
    """
    settings = {"partitions": partitions, "columns": columns, "schema_mode": schema_mode, "commit_info": commit_info}
    return _write(df, path, "upsert", token, payloads, storage_options, nulls=nulls, **settings)


def delete(
    df: DataFrame,
    path: str,
    *,
    plain: bool = False,
    partitions: Collection[object] | None = None,
    token: tuple[str, int] | None = None,
    commit_info: Mapping[str, str] | None = None,
    payloads: Payloads = (),
    storage_options: Mapping[str, Any] | None = None,
) -> mor.Commit:
    """Delete the rows of a frame by key (and partition, and ordering value). See `Table.delete`.

    Arguments are those of `upsert`.
    """
    settings = {"partitions": partitions, "plain": plain, "commit_info": commit_info}
    return _write(df, path, "delete", token, payloads, storage_options, **settings)


def overwrite(
    df: DataFrame,
    path: str,
    *,
    partitions: Literal["dynamic"] | Collection[object] | None = None,
    schema_mode: Literal["strict", "merge"] = "strict",
    token: tuple[str, int] | None = None,
    commit_info: Mapping[str, str] | None = None,
    payloads: Payloads = (),
    storage_options: Mapping[str, Any] | None = None,
) -> mor.Commit:
    """Replace rows by those of a frame, shuffled by file group once. See `Table.overwrite`.

    Args:
        partitions: None replaces all rows of the table; "dynamic" the partitions of the frame's rows; a list these
            partitions. Spark's setting spark.sql.sources.partitionOverwriteMode is ignored.
        schema_mode, token, commit_info, payloads, storage_options: as for `upsert`.
    """
    settings = {"partitions": partitions, "schema_mode": schema_mode, "commit_info": commit_info}
    return _write(df, path, "overwrite", token, payloads, storage_options, **settings)


def by_file_group(df: DataFrame, path: str, *, storage_options: Mapping[str, Any] | None = None) -> DataFrame:
    """Shuffle a frame so that one task has all rows of a file group.

    Writes of such a frame, batch or stream, need no second pass on the driver.
    """
    table = mor.Table(path, storage_options=storage_options)
    config = table.config
    names = list(dict.fromkeys([*config.key, *config.partition_sources]))
    absent = [name for name in names if name not in df.columns]
    if absent:
        raise mor.InvalidInputError(f"rows go to file groups by key and partition. missing={absent} has={df.columns}")
    tasks = int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    if not config.partition_by:
        tasks = min(tasks, config.buckets or 1)
    uri, options = table.uri, table.storage_options

    def numbers() -> Numbers:
        return partial(_group_numbers, mor.Table(uri, storage_options=options))

    return shuffled(df, names, tasks, numbers)


@message_first
def _group_numbers(table: mor.Table, keys: pa.RecordBatch) -> pa.Array:
    groups = table.jobs.file_groups(pa.Table.from_batches([keys]))
    partitions = groups["partition"].combine_chunks().dictionary_encode()
    firsts = np.array([zlib.crc32(path.encode()) & 0x3FFFFFFF for path in partitions.dictionary.to_pylist()], np.int64)
    numbers = firsts[partitions.indices.to_numpy()] + groups["bucket"].to_numpy()
    return pa.array(numbers.astype(np.int32))


def _write(
    df: DataFrame,
    path: str,
    operation: Operation,
    token: tuple[str, int] | None,
    payloads: Payloads,
    storage_options: Mapping[str, Any] | None,
    **settings: Any,
) -> mor.Commit:
    """settings: of `Table.jobs.plan`."""
    table = mor.Table(path, payloads=payloads, storage_options=storage_options)
    written = written_schema(df.schema, table.schema)
    job = table.jobs.plan(operation, written, token=token, **settings)
    if not job.job.repeated:
        grouped = by_file_group(df, path, storage_options=table.storage_options)
        try:
            hand_over(grouped, PlannedWrites, Planned(job, written))
        except BaseException:
            table.jobs.abandon(job)
            raise
    try:
        return replace(table.jobs.complete(job, []), repeated=job.job.repeated)
    except mor.errors.WriterExpiredError:
        if token is None:
            raise
        # Another write with this token was done meanwhile, and its commit is the one.
        again = table.jobs.plan(operation, written, token=token, **{**settings, "schema_mode": "strict"})
        return table.jobs.complete(again, [])

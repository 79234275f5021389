"""Writing a Spark frame: tasks stage log files, the driver publishes one commit.

    df.write.format("crdt_mor").mode("append").option("operation", "upsert").save("/lake/events")
    commit = upsert(df, "/lake/events")            # the same, its rows shuffled by file group first

    driver    plan      options and columns are checked before any task runs
    tasks     stage     whole files where nobody looks; a task that fails, repeats or comes late changes nothing
    driver    complete  the receipts of the attempts that Spark counted, one commit; or, if the job fails, abandon

Each of the driver's steps may run in a Python process of its own; all they share is the job, which Spark pickles.

A file group gets one log file a commit. Where one task has all the rows of a group, its file becomes that file as it
is; where several have some, the driver folds theirs. `by_file_group` shuffles so that one task has them all.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_schema

import crdt_mor as mor
from readers.spark.options import by_name, flag, payloads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

OPTIONS = ("path", "operation", "schemaMode", "plain", "payloads")
TOKEN_OPTIONS = ("txnAppId", "txnVersion")

Operation = Literal["append", "upsert", "delete"]


def plan(options: Mapping[str, str], known: Sequence[str], schema: StructType, overwrite: bool) -> mor.WriteJob:
    """The write that the options ask for, checked against the table; `known`: the options there are."""
    given = by_name(options, known, "write")
    if overwrite:
        raise mor.InvalidInputError(
            "a table that others write to at the same time is not overwritten: what they commit meanwhile would come "
            'back or be lost. Use mode("append") or INSERT INTO, which upsert by key; delete rows with '
            'option("operation", "delete"); or write a new table'
        )
    if "path" not in given:
        raise mor.InvalidInputError('say which table: .save("/lake/events"), or option("path", ...)')
    operation: Any = given.get("operation", "upsert")
    mode: Any = given.get("schemaMode", "strict")
    return mor.Table.open(given["path"], payloads=payloads(given)).plan_write(
        operation, arrow_schema(schema), schema_mode=mode, plain=flag("plain", given), token=_token(given)
    )


def _token(given: Mapping[str, str]) -> tuple[str, int] | None:
    application, number = given.get("txnAppId"), given.get("txnVersion")
    if application is None and number is None:
        return None
    if not application or number is None or not number.isdecimal():
        raise mor.InvalidInputError(
            "txnAppId and txnVersion name a write together, a text and a number that grows. "
            f"txnAppId={application!r} txnVersion={number!r}"
        )
    return application, int(number)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns in Arrow, in the types that tasks get them in but for the time zone, which changes no value."""
    return to_arrow_schema(schema, timezone="UTC")


def stage(job: mor.WriteJob, schema: StructType, batches: Iterable[pa.RecordBatch]) -> mor.Receipt:
    """Stage the rows of this task, which Spark numbers as their partition."""
    columns = arrow_schema(schema)
    rows = pa.RecordBatchReader.from_batches(columns, (batch.cast(columns) for batch in batches))
    context = TaskContext.get()
    assert context is not None, "called in a task"
    return job.stage(rows, task=context.partitionId())


class Staged(WriterCommitMessage):
    """What a task tells the driver."""

    def __init__(self, receipt: mor.Receipt) -> None:
        self.receipt = receipt


class BatchWriter(DataSourceArrowWriter):
    """`df.write`: one commit."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._job = plan(options, (*OPTIONS, *TOKEN_OPTIONS), schema, overwrite)
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """In a task."""
        return Staged(stage(self._job, self._schema, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when every task has succeeded. A job of no tasks at all has no messages."""
        receipts = [message.receipt for message in messages if isinstance(message, Staged)]
        mor.Table.open(self._job.uri).complete_write(self._job, receipts)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002  the job says it all
        """On the driver, when a task has failed for good or the commit has."""
        mor.Table.open(self._job.uri).abandon_write(self._job)


# --- shuffled by file group -------------------------------------------------------------------------------------------


def append(
    df: DataFrame,
    path: str,
    *,
    schema_mode: Literal["strict", "merge"] = "strict",
    token: tuple[str, int] | None = None,
) -> mor.Commit:
    """Insert the rows of a frame; a key that stands twice in it is an error. See `crdt_mor.Table.append`."""
    return _write(df, path, "append", schema_mode, False, token)


def upsert(
    df: DataFrame,
    path: str,
    *,
    schema_mode: Literal["strict", "merge"] = "strict",
    token: tuple[str, int] | None = None,
) -> mor.Commit:
    """Insert or update the rows of a frame by key, shuffled by file group once. See `crdt_mor.Table.upsert`."""
    return _write(df, path, "upsert", schema_mode, False, token)


def delete(df: DataFrame, path: str, *, plain: bool = False, token: tuple[str, int] | None = None) -> mor.Commit:
    """Delete the rows of a frame by key (and partition, and ordering value). See `crdt_mor.Table.delete`."""
    return _write(df, path, "delete", "strict", plain, token)


def by_file_group(df: DataFrame, path: str) -> DataFrame:
    """The same rows, shuffled so that one task has all those of a file group.

    What is written from such a frame, batch or stream, needs no second look at the driver.
    """
    table = mor.Table.open(path)
    key = table.config.key
    names = list(dict.fromkeys([*key.fields, *key.partition_fields]))
    absent = [name for name in names if name not in df.columns]
    if absent:
        raise mor.InvalidInputError(f"rows go to file groups by key and partition. missing={absent} has={df.columns}")
    uri = table.uri

    def numbers(batches: Iterator[Any]) -> Iterator[pa.Array]:
        table = mor.Table.open(uri)
        for batch in batches:
            arrays = batch if isinstance(batch, tuple) else (batch,)
            yield _group_numbers(table.file_groups(pa.table(list(arrays), names=names)))

    numbers.__annotations__ = {
        "batches": Iterator[pa.Array] if len(names) == 1 else Iterator[tuple[pa.Array, ...]],
        "return": Iterator[pa.Array],
    }
    tasks = int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    if not key.partition_fields:
        tasks = min(tasks, table.config.buckets or 1)
    number: Any = arrow_udf(numbers, "int")  # type: ignore[call-overload]
    return df.repartitionById(tasks, number(*(df[f"`{name}`"] for name in names)))


def _group_numbers(groups: pa.Table) -> pa.Array:
    """The same number for rows of one file group, different ones as a rule for those of two."""
    partitions = groups["partition"].combine_chunks().dictionary_encode()
    firsts = np.array([zlib.crc32(path.encode()) & 0x3FFFFFFF for path in partitions.dictionary.to_pylist()], np.int64)
    numbers = firsts[partitions.indices.to_numpy()] + groups["bucket"].to_numpy()
    return pa.array(numbers.astype(np.int32))


def _write(
    df: DataFrame,
    path: str,
    operation: Operation,
    mode: Literal["strict", "merge"],
    plain: bool,
    token: tuple[str, int] | None,
) -> mor.Commit:
    table = mor.Table.open(path)
    schema = df.schema
    job = table.plan_write(operation, arrow_schema(schema), schema_mode=mode, plain=plain, token=token)

    def staged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"receipt": [pickle.dumps(stage(job, schema, batches))]})

    try:
        found = by_file_group(df, path).mapInArrow(staged, "receipt binary").collect()
    except BaseException:
        table.abandon_write(job)
        raise
    return table.complete_write(job, [pickle.loads(row.receipt) for row in found])

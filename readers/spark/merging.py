"""A merge of a frame into a table as a Spark job: tasks merge the rows of some keys each, the driver publishes.

    rows of the frame ── numbered by the bucket of their key ──┐
                                                               ├── one shuffle ── tasks merge ── the driver completes
    parts of the table, each a row of its number and its files ┘

Results reach the driver through a Spark data source, because `mapInArrow` requires pandas.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.functions import lit, struct
from pyspark.sql.types import StructType

import crdt_mor as mor
from crdt_mor.readers.spark.options import Payloads
from crdt_mor.readers.spark.shuffling import Numbers, by_number, numbered, quoted
from crdt_mor.readers.spark.tasks import hand_over, job_of, pickled_outcome
from crdt_mor.readers.spark.types import written_schema
from crdt_mor.readers.spark.updating import WAIT, is_final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Outcome = mor.parts.PartDone | mor.CrdtMorError

_NUMBER, _PART, _SOURCE = "_crdt_mor_number", "_crdt_mor_part", "_crdt_mor_source"

_REFUSED = -1
"""The number of rows without a part, because a value is not valid in a key; a task reports the value."""


def merge(
    spark: SparkSession,
    path: str,
    source: DataFrame,
    on: str | Sequence[str] | None = None,
    *,
    condition: str | None = None,
    source_alias: str = "source",
    target_alias: str = "target",
    wait: timedelta = WAIT,
    token: tuple[str, int] | None = None,
    commit_info: Mapping[str, str] | None = None,
    payloads: Payloads = (),
    storage_options: Mapping[str, Any] | None = None,
) -> mor.MergeInto:
    """Merge the rows of a frame into a table by clauses: `merge(...).when_matched_update_all().execute()`.

    See `Table.merge`. Conditions and values are SQL texts or polars expressions, not Spark columns. The frame is
    shuffled once by the bucket of its key; spark.sql.shuffle.partitions bounds the tasks. A merge on other
    columns than the key, or that inserts rows under other keys than the frame's, is a single task.

    Args:
        condition: Delta's name for `on`: "target.id = source.id".
    """
    if on is not None and condition is not None:
        raise mor.InvalidInputError("pass the columns to match as on= or as condition=, not as both")
    _require_frame("source", source)
    table = mor.Table(path, payloads=payloads, storage_options=storage_options)
    columns = written_schema(source.schema, table.schema)
    return table.merge(
        columns,
        condition if on is None else on,
        parts=int(spark.conf.get("spark.sql.shuffle.partitions") or 1),
        execute_parts=partial(_execute, spark, source, columns),
        source_alias=source_alias,
        target_alias=target_alias,
        wait=wait,
        token=token,
        commit_info=commit_info,
    )


def move(
    df: DataFrame,
    path: str,
    *,
    partition: Mapping[str, object],
    wait: timedelta = WAIT,
    token: tuple[str, int] | None = None,
    commit_info: Mapping[str, str] | None = None,
    payloads: Payloads = (),
    storage_options: Mapping[str, Any] | None = None,
) -> mor.Merged:
    """Move the rows with a frame's keys to another partition: `move(df, path, partition={"country": "FR"})`.

    See `Table.move`, which takes local keys without Spark. A repeated key counts once.
    """
    _require_frame("df", df)
    table = mor.Table(path, payloads=payloads, storage_options=storage_options)
    spark = df.sparkSession
    names = [name for name in table.config.key if name in df.columns]
    keys = df.select(*map(quoted, names)).distinct()
    columns = written_schema(keys.schema, table.schema)
    return table.move(
        columns,
        partition=partition,
        parts=int(spark.conf.get("spark.sql.shuffle.partitions") or 1),
        execute_parts=partial(_execute, spark, keys, columns),
        wait=wait,
        token=token,
        commit_info=commit_info,
    )


def _require_frame(argument: str, given: object) -> None:
    if not isinstance(getattr(given, "schema", None), StructType):
        kind = f"{type(given).__module__}.{type(given).__name__}"
        raise mor.errors.InvalidUseError(
            f"{argument} must be a Spark frame: make one with spark.createDataFrame(rows), or call the method of "
            f"crdt_mor.Table, which takes local rows. {argument}={kind}"
        )


def _execute(
    spark: SparkSession,
    source: DataFrame,
    columns: pa.Schema,
    parts: Sequence[mor.parts.MergePart],
    spread: mor.parts.MergeSpread,
) -> list[Outcome]:
    rows = _rows(source, spread)
    pickled = [(part.number, bytearray(pickle.dumps(part))) for part in parts]
    of_parts = spark.createDataFrame(pickled, f"{_NUMBER} int, {_PART} binary")
    both = rows.withColumn(_PART, lit(None).cast("binary")).unionByName(of_parts, allowMissingColumns=True)
    tasks = by_number(both.select(_NUMBER, _PART, _SOURCE), _NUMBER, len(parts))
    hand_over(tasks, MergeTasks, _Job(columns, spread))
    outcomes: dict[int, Outcome] = pickle.loads(spread.receive_outcomes())
    return [outcomes[number] for number in sorted(outcomes)]


def _rows(source: DataFrame, spread: mor.parts.MergeSpread) -> DataFrame:
    def make() -> Numbers:
        return partial(_numbers, spread)

    if spread.columns:
        found = numbered(source, spread.columns, _NUMBER, make)
    else:
        found = source.withColumn(_NUMBER, lit(0))
    return found.select(_NUMBER, struct(*(found[quoted(name)] for name in source.columns)).alias(_SOURCE))


def _numbers(spread: mor.parts.MergeSpread, rows: pa.RecordBatch) -> pa.Array:
    try:
        return spread.numbers(rows)
    except mor.CrdtMorError:
        return pa.array([_REFUSED] * rows.num_rows, pa.int32())


class _Job:
    def __init__(self, columns: pa.Schema, spread: mor.parts.MergeSpread) -> None:
        self.columns = columns
        self.spread = spread

    def outcomes(self, batches: Iterator[pa.RecordBatch]) -> dict[int, bytes]:
        parts: dict[int, bytes] = {}
        given: dict[int, list[pa.RecordBatch]] = {}
        for batch in batches:
            is_part = batch.column(_PART).is_valid()
            for row in batch.filter(is_part).select([_NUMBER, _PART]).to_pylist():
                parts[row[_NUMBER]] = row[_PART]
            rows = batch.filter(pc.invert(is_part))
            for number in rows.column(_NUMBER).unique().to_pylist():
                of_number = rows.filter(pc.equal(rows.column(_NUMBER), number))
                given.setdefault(number, []).append(pa.RecordBatch.from_struct_array(of_number.column(_SOURCE)))
        done = {}
        for number in [*parts, *(number for number in given if number not in parts)]:
            source = pa.Table.from_batches(given.pop(number)) if number in given else self.columns.empty_table()
            done[number] = pickled_outcome(partial(self._execute, parts.get(number), source), is_final)
        return done

    def _execute(self, part: bytes | None, source: pa.Table) -> mor.parts.PartDone:
        rows = source.cast(self.columns)
        if part is None:
            self.spread.numbers(rows)  # which raises
            raise AssertionError("rows of no part")
        found: mor.parts.MergePart = pickle.loads(part)
        return found.execute(rows)


class TaskOutcomes(WriterCommitMessage):
    def __init__(self, outcomes: dict[int, bytes]) -> None:
        self.outcomes = outcomes


class TasksWriter(DataSourceArrowWriter):
    def __init__(self, job: _Job) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskOutcomes:
        return TaskOutcomes(self._job.outcomes(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        by_task = [message.outcomes for message in messages if isinstance(message, TaskOutcomes)]
        outcomes = {number: pickle.loads(outcome) for task in by_task for number, outcome in task.items()}
        self._job.spread.send_outcomes(pickle.dumps(outcomes))


class MergeTasks(DataSource):
    @classmethod
    def name(cls) -> str:
        return "crdt_mor_merge_tasks"

    def writer(self, schema: StructType, overwrite: bool) -> TasksWriter:  # noqa: ARG002  it only appends
        return TasksWriter(job_of(self.options))

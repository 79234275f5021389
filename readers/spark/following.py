"""A stream of changes. Its offsets are the engine's checkpoints, so it neither skips nor repeats a commit.

    {"checkpoint": "completed:20260131120000000:0b3d1c6f2a4e4f0f9d8c7b6a59483726"}

A micro-batch contains the commits between two offsets, in the order of their completion. So a repeated batch contains
the same rows.

A stream without the option `changes` contains the table's columns, and only new and updated rows. It raises an error at
the first delete: without the column `_change_type`, a deleted row looks like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Literal, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StringType, StructType

from crdt_mor import Changes, Point, Table
from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.readers.spark.failing import message_first, rows_message_first
from crdt_mor.readers.spark.options import ReadOptions
from crdt_mor.readers.spark.reading import Part, changes
from crdt_mor.readers.spark.types import arrow_schema, fitted

CHANGE_TYPE = "_change_type"

NO_LIMIT = (1 << 63) - 1

Offset = dict[str, str]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, asked: Mapping[str, str], schema: StructType) -> None:
        """asked: the options. The first method call checks them, because Spark loses an error raised here."""
        self._asked = asked
        self._columns = schema
        self._target: str | None = None
        self._end: str | None = None

    def __getstate__(self) -> dict[str, object]:
        """Omit the table: workers get only their parts."""
        return {"_schema": self._schema, "_upserts_alone": self._upserts_alone}

    @message_first
    def initialOffset(self) -> Offset:  # noqa: N802
        if self._options.reader is not None:
            return {"checkpoint": self._of_reader(self._options.since).since}
        return {"checkpoint": self._between(self._options.since, None).since}

    @message_first
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next micro-batch; `start` if nothing was committed since."""
        window = self._between(start["checkpoint"], self._target)
        if not isinstance(limit, ReadAllAvailable):
            window = window.limited(**self._options.limits)
        if isinstance(limit, ReadMaxFiles):
            window = window.limited(files=limit.max_files)
        if isinstance(limit, ReadMaxBytes):
            window = window.limited(bytes=limit.max_bytes)
        self._end = window.checkpoint if window.commits else start["checkpoint"]
        return {"checkpoint": self._end}

    @message_first
    def reportLatestOffset(self) -> dict[str, str | int]:  # noqa: N802
        left = self._between(self._options.since if self._end is None else self._end, None)
        return {"checkpoint": left.checkpoint, "commits": left.commits}

    @message_first
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxBytes(NO_LIMIT) if self._options.limits else ReadAllAvailable()

    @message_first
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End the query at the current newest commit."""
        self._target = self._between(None, None).checkpoint

    @message_first
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return [Part(rows) for rows in self._between(start["checkpoint"], end["checkpoint"]).parts()]

    @rows_message_first
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Part):
            return
        for batch in fitted(partition.rows.to_reader(), arrow_schema(self._schema)):
            yield _without_change_type(batch) if self._upserts_alone else batch

    @message_first
    def commit(self, end: Offset) -> None:
        """Record the end of a finished micro-batch of a named reader."""
        if self._options.reader is not None:
            self._of_reader(end["checkpoint"])

    def _of_reader(self, finished: Point | None) -> Changes:
        consistency = cast(Literal["latest", "stable"], self._options.consistency)
        return self._table.changes(finished, consistency=consistency, reader=self._options.reader)

    @cached_property
    def _given(self) -> ReadOptions:
        return ReadOptions.of(self._asked).for_stream()

    @cached_property
    def _options(self) -> ReadOptions:
        return replace(self._given, changes=self._given.changes or "merged")

    @cached_property
    def _upserts_alone(self) -> bool:
        return self._given.changes is None and CHANGE_TYPE not in self._columns.names

    @cached_property
    def _schema(self) -> StructType:
        columns = StructType(list(self._columns))
        return columns.add(CHANGE_TYPE, StringType()) if self._upserts_alone else columns

    @cached_property
    def _table(self) -> Table:
        return self._options.open()

    def _between(self, since: Point | None, until: str | None) -> Changes:
        return changes(self._table, replace(self._options, since=since, until=until), self._schema)


def _without_change_type(batch: pa.RecordBatch) -> pa.RecordBatch:
    if pc.any(pc.equal(batch.column(CHANGE_TYPE), "delete")).as_py():
        raise UnsupportedFeatureError(
            "a row was deleted, and this stream has no column to show it. Read the stream with "
            ".option('changes', 'merged'), which adds the column _change_type, and start with a new checkpoint"
        )
    return batch.drop_columns([CHANGE_TYPE])

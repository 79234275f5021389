"""A stream of changes. Its offsets are the engine's checkpoints, so that it neither skips a commit nor repeats one.

    {"checkpoint": "completed:20260131120000000:0b3d1c6f2a4e4f0f9d8c7b6a59483726"}

A micro-batch is what lies between two of them. That is closed for ever: stragglers, which began long ago, complete
later, and commits are in the order in which they complete. So a batch that is repeated after a failure has the rows
that it had before.

A stream without the option `changes` has the columns of the table, and only new and updated rows. It ends with an
error at the first delete, since without the column `_change_type` a deleted row looks like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

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

from crdt_mor import Changes, Point, Table, UnsupportedFeatureError
from crdt_mor.readers.spark.options import ReadOptions
from crdt_mor.readers.spark.reading import Part, changes
from crdt_mor.readers.spark.types import arrow_schema, fitted

CHANGE_TYPE = "_change_type"

NO_LIMIT = (1 << 63) - 1

Offset = dict[str, str]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in one process of the driver's, and reads their parts in workers."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._upserts_alone = options.changes is None and CHANGE_TYPE not in schema.names
        self._options = replace(options, changes=options.changes or "merged")
        self._schema = StructType(list(schema))
        if self._upserts_alone:
            self._schema.add(CHANGE_TYPE, StringType())
        self._target: str | None = None
        self._between(options.since, None)  # what the table cannot do is refused now, not in the first batch

    def __getstate__(self) -> dict[str, object]:
        """Workers get their parts, not the table."""
        return {"_schema": self._schema, "_upserts_alone": self._upserts_alone}

    def initialOffset(self) -> Offset:  # noqa: N802
        """Where a query begins that has no checkpoint of its own: `since`, or the empty table."""
        return {"checkpoint": self._between(self._options.since, None).since}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """The end of the next micro-batch; `start` if nothing has been committed since."""
        window = self._between(start["checkpoint"], self._target)
        if not isinstance(limit, ReadAllAvailable):
            window = window.limited(**self._options.limits)
        if isinstance(limit, ReadMaxFiles):
            window = window.limited(files=limit.max_files)
        if isinstance(limit, ReadMaxBytes):
            window = window.limited(bytes=limit.max_bytes)
        return {"checkpoint": window.checkpoint} if window.commits else start

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """All, unless the options limit a batch. Limits that Spark has no word for are applied by `latestOffset`."""
        return ReadMaxBytes(NO_LIMIT) if self._options.limits else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query ends with what is there now."""
        self._target = self._between(None, None).checkpoint

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """A partition of Spark's for each part of what lies between two offsets."""
        return [Part(rows) for rows in self._between(start["checkpoint"], end["checkpoint"]).parts()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        if not isinstance(partition, Part):
            return
        for batch in fitted(partition.rows.to_reader(), arrow_schema(self._schema)):
            yield _without_change_type(batch) if self._upserts_alone else batch

    def commit(self, end: Offset) -> None:
        """There is nothing to release: the table keeps what was committed."""

    @cached_property
    def _table(self) -> Table:
        return self._options.open()

    def _between(self, since: Point | None, until: str | None) -> Changes:
        return changes(self._table, replace(self._options, since=since, until=until), self._schema)


def _without_change_type(batch: pa.RecordBatch) -> pa.RecordBatch:
    if pc.any(pc.equal(batch.column(CHANGE_TYPE), "delete")).as_py():
        raise UnsupportedFeatureError(
            "a row was deleted, and nothing in this stream's rows could say so: read it with "
            ".option('changes', 'merged'), whose column _change_type does, and start the query with a new checkpoint"
        )
    return batch.drop_columns([CHANGE_TYPE])

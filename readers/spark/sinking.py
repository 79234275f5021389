"""Writing a stream: every micro-batch is one commit, once, whatever is repeated, restarted or killed.

    df.writeStream.format("crdt_mor").option("checkpointLocation", ...).start("/lake/events")

The token of a batch is (the query's id, the batch's number), which a restart from the checkpoint keeps. So when a
batch is repeated whose commit had landed before its driver died, the token leads to that commit; and of a driver and an
earlier one that is still running, only the first commits.

Spark tells the query's id only to tasks, and makes a new writer for the commit: so each task sends the job to it.

A checkpoint belongs to one table. Batches that it has noted as done are not written again, to whichever table the query
is started with. So the first batch that a table gets of a query is batch 0, else it is refused. Where no batch is left
to write, Spark asks no data source: `stream` looks at the checkpoint before it starts the query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

import crdt_mor as mor
from crdt_mor.readers.spark.failing import message_first
from crdt_mor.readers.spark.starting import application_of, require_known
from crdt_mor.readers.spark.writing import OPTIONS, plan, table_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

STREAM_OPTIONS = ("checkpointLocation", "queryName")
"""Spark's own, which reach us as well."""


class StagedBatch(WriterCommitMessage):
    """What a task tells the driver."""

    def __init__(self, job: mor.WriteJob, receipt: mor.Receipt, query: str) -> None:
        self.job = job
        self.receipt = receipt
        self.query = query


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: a commit for each micro-batch."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise mor.InvalidInputError(
                "a stream adds to a table, and its output mode complete would replace all rows with each batch: use "
                "append, or foreachBatch with "
                "lambda rows, number: crdt_mor.readers.spark.overwrite(rows, path, token=(name, number))"
            )
        self._planned = plan(options, (*OPTIONS, *STREAM_OPTIONS), schema, overwrite=False)

    @message_first
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedBatch:
        """Called in a task: stage its rows."""
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        assert query is not None, "Spark tells every task of a stream the query's id"
        return StagedBatch(self._planned.job, self._planned.stage(iterator), query)

    @message_first
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Called on the driver when every task has succeeded. A batch without tasks has no messages and no commit."""
        staged = [message for message in messages if isinstance(message, StagedBatch)]
        if staged:
            job, query = staged[0].job, staged[0].query
            table = table_of(job)
            if batchId > 0:
                require_known(table, query, batchId)
            token = (application_of(query), batchId)
            table.complete_write(job, [message.receipt for message in staged], token=token)

    @message_first
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Called on the driver when a task has failed for good. If no task had come to its end, the write expires."""
        staged = [message for message in messages if isinstance(message, StagedBatch)]
        if staged:
            table_of(staged[0].job).abandon_write(staged[0].job)

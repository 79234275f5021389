"""Write a stream: every micro-batch is one commit, exactly once, despite retries, restarts and kills.

    df.writeStream.format("crdt_mor").option("checkpointLocation", ...).start("/lake/events")

The token of a batch is (query id, batch number), which a restart from the checkpoint keeps. It finds the commit of a
repeated batch. Of an old driver and a new one, only the first commit counts.

Spark passes the query id only to tasks, and makes a new writer for the commit. So each task sends the job to it.

A checkpoint belongs to one table: Spark skips the batches that it notes as done, whichever table the query writes to.
So a query's first batch in a table must be batch 0. `stream` also checks the checkpoint.
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
"""Spark's own options, which it passes to the data source."""


class StagedBatch(WriterCommitMessage):
    def __init__(self, job: mor.parts.WriteJob, receipt: mor.parts.Receipt, query: str) -> None:
        self.job = job
        self.receipt = receipt
        self.query = query


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: one commit per micro-batch."""

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
        """Stage a task's rows. Called in a task."""
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        assert query is not None, "Spark tells every task of a stream the query's id"
        return StagedBatch(self._planned.job, self._planned.stage(iterator), query)

    @message_first
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Commit a batch. Without tasks there is no commit."""
        staged = [message for message in messages if isinstance(message, StagedBatch)]
        if staged:
            job, query = staged[0].job, staged[0].query
            table = table_of(job)
            if batchId > 0:
                require_known(table, query, batchId)
            token = (application_of(query), batchId)
            table.jobs.complete(job, [message.receipt for message in staged], token=token)

    @message_first
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Abandon a batch. If no task has ended, the write expires."""
        staged = [message for message in messages if isinstance(message, StagedBatch)]
        if staged:
            table_of(staged[0].job).jobs.abandon(staged[0].job)

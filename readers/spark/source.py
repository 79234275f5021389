"""The data source `crdt_mor`: what Spark asks for, and which module answers.

    reading.py     snapshots, increments and change images: one Spark partition per file slice or group of small ones
    following.py   a stream of increments; its offsets are the engine's checkpoints
    writing.py     batches: tasks stage files, the driver publishes one commit
    sinking.py     streams: each micro-batch once, by query and batch id

Each method here may run in a process of its own, which has this object and nothing else. What only streams need is
imported where a stream is made: older releases of Spark 4 read and write batches alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from crdt_mor.readers.spark import reading, writing
from crdt_mor.readers.spark.failing import message_first
from crdt_mor.readers.spark.options import ReadOptions
from crdt_mor.readers.spark.sessions import know, make_active
from crdt_mor.readers.spark.versions import READS_STREAMS, WRITES_STREAMS, require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class CrdtMorSource(DataSource):
    """What Spark finds under the format `crdt_mor`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "crdt_mor"

    @message_first
    def schema(self) -> StructType:
        """The columns of a read for which the user has called no `.schema(...)`."""
        return reading.schema_of(ReadOptions.of(self.options))

    @message_first
    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch."""
        return reading.reader(ReadOptions.of(self.options).for_batch(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """The reader of a stream of changes."""
        require_spark(READS_STREAMS, "reading a table as a stream")
        from crdt_mor.readers.spark import following

        return following.StreamReader(self.options, schema)

    @message_first
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of one batch."""
        return writing.BatchWriter(writing.plan_batch(self.options, schema, overwrite))

    @message_first
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """The writer of a stream."""
        require_spark(WRITES_STREAMS, "writing a stream to a table")
        from crdt_mor.readers.spark import sinking

        return sinking.StreamWriter(self.options, schema, overwrite)


def register(spark: SparkSession) -> None:
    """Let `df.write.format("crdt_mor")` find the format, in this session and in this thread.

    The session becomes the active one of the thread, as after `spark.createDataFrame`. Spark 4.0 needs this in each
    session, before all else. Spark 4.1 and later find the format in every session by themselves, and need this only in
    a thread that has not made the session. The functions of `crdt_mor.readers.spark` need it nowhere.
    """
    make_active(spark)
    know(spark, CrdtMorSource)

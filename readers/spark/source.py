"""The data source `crdt_mor`: Spark's entry points and the modules behind them.

    reading.py     snapshots, increments and change images: one Spark partition per file slice or group of small ones
    following.py   a stream of increments; its offsets are the engine's checkpoints
    writing.py     batches: tasks stage files, the driver publishes one commit
    sinking.py     streams: each micro-batch once, by query and batch id

Each method may run in a separate process with only this object. The modules are imported on use: each process needs
few of them, and older releases of Spark 4 have no streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from crdt_mor.readers.spark.failing import message_first
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
    """The data source behind the format `crdt_mor`."""

    @classmethod
    def name(cls) -> str:
        return "crdt_mor"

    @message_first
    def schema(self) -> StructType:
        from crdt_mor.readers.spark import options, reading

        return reading.schema_of(options.ReadOptions.of(self.options))

    @message_first
    def reader(self, schema: StructType) -> DataSourceReader:
        from crdt_mor.readers.spark import options, reading

        return reading.reader(options.ReadOptions.of(self.options).for_batch(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        require_spark(READS_STREAMS, "reading a table as a stream")
        from crdt_mor.readers.spark import following

        return following.StreamReader(self.options, schema)

    @message_first
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from crdt_mor.readers.spark import writing

        return writing.BatchWriter(writing.plan_batch(self.options, schema, overwrite))

    @message_first
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        require_spark(WRITES_STREAMS, "writing a stream to a table")
        from crdt_mor.readers.spark import sinking

        return sinking.StreamWriter(self.options, schema, overwrite)


def register(spark: SparkSession) -> None:
    """Register the format for `df.write.format("crdt_mor")` in this session and this thread.

    Spark 4.0 needs this call in each session, before all else. Spark 4.1 and later find the format by themselves, and
    need the call only in threads that did not make the session.
    """
    make_active(spark)
    know(spark, CrdtMorSource)

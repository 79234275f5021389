"""The data source `crdt_mor`: what Spark asks for, and which module answers.

    reading.py     snapshots, increments and change images: one Spark partition per file slice or group of small ones
    following.py   a stream of increments; its offsets are the engine's checkpoints
    writing.py     batches: tasks stage log files, the driver publishes one commit
    sinking.py     streams: each micro-batch once, by query and batch id

The modules are imported where they are needed: Spark runs each step in a Python process that may be a fresh one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType


class CrdtMorSource(DataSource):
    """`spark.dataSource.register(CrdtMorSource)`, then `spark.read.format("crdt_mor")` and the rest."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "crdt_mor"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Of one batch."""
        from readers.spark.writing import BatchWriter

        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  Spark's name
        """Of a stream."""
        from readers.spark.sinking import StreamWriter

        return StreamWriter(self.options, schema, overwrite)

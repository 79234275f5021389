"""The data source `crdt_mor`: what Spark asks for, and which module answers.

    reading.py     snapshots, increments and change images: one Spark partition per file slice or group of small ones
    following.py   a stream of increments; its offsets are the engine's checkpoints
    writing.py     batches: tasks stage log files, the driver publishes one commit
    sinking.py     streams: each micro-batch once, by query and batch id
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType


class CrdtMorSource(DataSource):
    """`spark.dataSource.register(CrdtMorSource)`, then `spark.read.format("crdt_mor")` and the rest."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "crdt_mor"

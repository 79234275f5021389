"""What Spark sees of a table, and what the embedded reader sees, in one form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from crdt_mor import Changes, Scan, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

Rows = list[tuple[object, ...]]


def read(spark: SparkSession, path: str, schema: str | None = None, **options: Any) -> DataFrame:
    """`spark.read` with options."""
    reader = spark.read.format("crdt_mor").options(**options)
    return (reader if schema is None else reader.schema(schema)).load(path)


def listed(rows: pa.Table | Scan | Changes | DataFrame) -> Rows:
    """The rows, sorted; moments in UTC."""
    if not isinstance(rows, pa.Table):
        rows = rows.to_arrow() if isinstance(rows, Scan | Changes) else rows.toArrow()
    columns = [
        column.cast(pa.timestamp(column.type.unit, "UTC"))
        if pa.types.is_timestamp(column.type) and column.type.tz
        else column
        for column in rows.columns
    ]
    named = pa.table(columns, names=rows.schema.names).to_pylist()
    return sorted((tuple(row.values()) for row in named), key=repr)


class Stream:
    """A query over a table that may be stopped and started again; its batches end up as files of this class's own."""

    def __init__(self, spark: SparkSession, table: Table, folder: Path, **options: Any) -> None:
        self._spark, self._table, self._folder, self._options = spark, table, folder, options
        self.batches: dict[int, Rows] = {}
        self.progress: list[StreamingQueryProgress] = []
        self.fail_at: int | None = None

    def run(self, **trigger: Any) -> dict[int, Rows]:
        """What is there now, batch by batch."""
        source = self._spark.readStream.format("crdt_mor").options(**self._options).load(self._table.uri)
        query: StreamingQuery = (
            source.writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self._folder))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )
        query.awaitTermination(60)
        self.progress = query.recentProgress
        return self.batches

    def _take(self, frame: DataFrame, number: int) -> None:
        found = listed(frame)
        assert self.batches.setdefault(number, found) == found, "a repeated batch is the same batch"
        if number == self.fail_at:
            self.fail_at = None
            raise RuntimeError("the sink is away")

"""What Spark sees of a table, and what the embedded reader sees, in one form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from crdt_mor import Changes, Scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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

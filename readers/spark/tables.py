"""Create tables from a Spark session, and return their history as a frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructType

import crdt_mor as mor
from crdt_mor.readers.spark.types import written_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def create(columns: DataFrame | StructType, path: str, *, key: str | Sequence[str], **settings: Any) -> mor.Table:
    """Create an empty table with the columns of a frame or of Spark types.

    Columns of a frame may be null, because Spark marks any column without nulls NOT NULL. Columns of a `StructType`
    keep their nullability. `rules=` applies to either.

    Args:
        columns: a frame or a `StructType`.
        settings: `partition_by`, `ordering`, `merge` and all other arguments of `Table.create`.
    """
    if not isinstance(columns, StructType) and not isinstance(getattr(columns, "schema", None), StructType):
        given = f"{type(columns).__module__}.{type(columns).__name__}"
        raise mor.errors.InvalidUseError(
            "columns are those of a frame of Spark or of a StructType: crdt_mor.Table.create takes schemas of pyarrow "
            f"and polars, and Spark finds such a table as well. given={given}"
        )
    if isinstance(columns, StructType):
        schema = written_schema(columns, pa.schema([]))
    else:
        schema = pa.schema([field.with_nullable(True) for field in written_schema(columns.schema, pa.schema([]))])
    return mor.Table.create(path, schema, key=key, **settings)


def history(
    spark: SparkSession,
    path: str,
    limit: int | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Return the commits of a table as a frame, newest first. See `Table.history`."""
    commits = mor.Table(path, storage_options=storage_options).history(limit)
    return spark.createDataFrame(commits)

"""Read snapshots with Spark's own Parquet reader, which reads only the columns and row groups that a query needs.

    base files without the keys that logs touch     Spark
    merged rows of these keys, all other slices     Python tasks

A Python data source cannot do this: Spark tells it no columns.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import broadcast, nanvl

import crdt_mor as mor
from crdt_mor.readers.spark.failing import rows_message_first
from crdt_mor.readers.spark.options import Payloads
from crdt_mor.readers.spark.types import arrow_schema, fitted, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EQUAL: Final = {
    pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32(),
    pa.timestamp("us", "UTC"),
}  # fmt: skip
"""Types that both readers read alike, besides decimals and nested types."""

_OWN_OF_SPARK: Final = "_tmp_metadata_row_index"
"""Spark reads this name as the number of the row."""

_SCHEMES: Final = {"": "file:", "file": "file", "s3": "s3a", "s3a": "s3a", "gs": "gs", "abfs": "abfs", "abfss": "abfss"}
"""Hadoop's names of the stores that Spark opens. It has none for `az://`, for example."""

_OPTIONS: Final = {
    "datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED",  # files have the proleptic Gregorian calendar
    "ignoreMissingFiles": "false", "ignoreCorruptFiles": "false",
}  # fmt: skip


def read(
    spark: SparkSession,
    path: str,
    *,
    as_of: mor.AsOf | None = None,
    payloads: Payloads = (),
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Return a snapshot as a frame. Its queries read only their columns and row groups.

    Spark itself opens the base files, and `s3://` addresses as `s3a://`.

    Args:
        as_of: the point in time, as for `Table.scan`.
    """
    address = path if "://" in path else os.path.abspath(path)
    table = mor.Table(address, payloads=payloads, storage_options=storage_options)
    scan = table.scan(as_of=as_of)
    is_plain = all(_is_equal(field.type) and field.name != _OWN_OF_SPARK for field in scan.schema)
    if _scheme_and_path(table.uri)[0] not in _SCHEMES or not is_plain:
        return _of_tasks(spark, scan.parts(), scan.schema)
    split = scan.split()
    in_tasks = _of_tasks(spark, [*split.merged, *split.rest], scan.schema)
    return _of_files(spark, split, scan.schema).union(in_tasks) if split.files else in_tasks


def _of_files(spark: SparkSession, split: mor.parts.SplitScan, schema: pa.Schema) -> DataFrame:
    keys = pa.schema([split.key])
    reader = spark.read.schema(spark_schema(pa.unify_schemas([schema, keys]))).options(**_OPTIONS)
    frame = reader.parquet(*map(_spark_path, split.files))
    if split.touched:
        frame = frame.join(broadcast(_of_tasks(spark, split.touched, keys)), split.key.name, "left_anti")
    return frame.select([_unpushed(field.name) if pt.is_floating(field.type) else field.name for field in schema])


def _unpushed(name: str) -> Column:
    """Keep Spark from skipping row groups by a float column: dictionaries tell 0.0 from -0.0, which are equal."""
    return nanvl(name, name).alias(name)


def _of_tasks(spark: SparkSession, parts: Sequence[mor.ArrowStream], schema: pa.Schema) -> DataFrame:
    shown, pickled = spark_schema(schema), [*map(pickle.dumps, parts)]
    arrow = arrow_schema(shown)
    if not parts:
        return spark.createDataFrame([], shown)

    @rows_message_first
    def read_parts(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from fitted(pickle.loads(pickled[number]).to_reader(), arrow)

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(read_parts, shown)


def _is_equal(kind: pa.DataType) -> bool:
    if pt.is_struct(kind):
        return kind.num_fields > 0 and all(_is_equal(field.type) for field in kind)
    if pt.is_map(kind):
        return _is_equal(kind.key_type) and _is_equal(kind.item_type)
    return _is_equal(kind.value_type) if pt.is_list(kind) else pt.is_decimal128(kind) or kind in _EQUAL


def _spark_path(address: str) -> str:
    """Return the address for Hadoop, which takes some characters of a path for patterns."""
    scheme, path = _scheme_and_path(address)
    return _SCHEMES[scheme] + re.sub(r"([*?\[\]{}\\])", r"\\\1", path)


def _scheme_and_path(address: str) -> tuple[str, str]:
    scheme, mark, path = address.partition("://")
    return (scheme, mark + path) if mark else ("", address)

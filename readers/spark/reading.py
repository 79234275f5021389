"""Batch reads: snapshots and changes, sealed once, read in parts.

schema()       in one Spark process: returns the columns
partitions()   in a later process: seals the snapshot; each part of it becomes a partition
read()         in a worker: reads only the files of its part
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from crdt_mor import Changes, InvalidInputError, Scan, Table
from crdt_mor.errors import SchemaMismatchError
from crdt_mor.readers.spark.failing import message_first, rows_message_first
from crdt_mor.readers.spark.options import ReadOptions
from crdt_mor.readers.spark.types import arrow_schema, check_schema, fitted, spark_schema
from crdt_mor.readers.spark.versions import PUSHES_CONDITIONS, READS_NO_COLUMNS, require_spark

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

OF_CHANGES = ("_change_type", "_commit_version", "_commit_timestamp")
"""Additional columns of changes. Table columns must have other names."""


@dataclass
class Part(InputPartition):
    rows: Scan | Changes


Check = Callable[[StructType, StructType], None]
"""Raises unless the requested columns are available."""


def reader(options: ReadOptions, schema: StructType, check: Check = check_schema) -> DataSourceReader:
    """Return the reader of the columns `schema`, chosen by the user or Spark; raise if the table lacks a column.

    Spark 4.0 reads zero rows for a batch without columns, so counts would be 0.
    """
    if not schema.names:
        require_spark(READS_NO_COLUMNS, "reading rows without their columns, to count them,")
    if options.changes is not None:
        return RowsReader(changes(options.open(), options, schema, check), schema)
    rows = snapshot(options)
    _check(check, schema, rows.schema, lambda names: rows.narrowed(columns=names))
    rows = rows.narrowed(columns=schema.names)
    if not options.pushdown:
        return RowsReader(rows, schema)
    require_spark(PUSHES_CONDITIONS, "the option pushdown")
    return PushingReader(rows, schema)


def schema_of(options: ReadOptions) -> StructType:
    if options.changes is not None:
        return spark_schema(changes(options.open(), options).schema)
    return spark_schema(snapshot(options).schema)


def snapshot(options: ReadOptions) -> Scan:
    """Seal the requested scan."""
    scan = options.open().scan(
        filter=options.filter,
        as_of=options.as_of,
        consistency=cast(Any, options.consistency),
        meta=options.meta,
        names=cast(Any, options.names),
    )
    return scan if options.columns is None else scan.narrowed(columns=options.columns)


def changes(
    table: Table, options: ReadOptions, schema: StructType | None = None, check: Check = check_schema
) -> Changes:
    """Seal the requested changes, with the columns of `schema`; raise for a missing column."""
    window = _changes(table, options, options.columns)
    if schema is None:
        return window
    _check(check, schema, window.schema, lambda names: _changes(table, options, names))
    columns = [name for name in schema.names if name not in OF_CHANGES]
    return _changes(table, options, columns)


def _check(check: Check, schema: StructType, there: pa.Schema, read: Callable[[list[str]], object]) -> None:
    """Check the requested columns. read: reads columns, and its error names the new name of a missing one."""
    known = {*there.names}
    unknown = [name for name in schema.names if name not in known]
    if unknown and check is check_schema:
        try:
            read(unknown)
        except InvalidInputError as error:
            what = "the schema that was asked for has columns that are not there"
            raise SchemaMismatchError(f"{what}: {error}") from error
    check(schema, spark_schema(there))


def _changes(table: Table, options: ReadOptions, columns: list[str] | None) -> Changes:
    return table.changes(
        options.since,
        columns=columns,
        images=options.changes == "images",
        raw=options.changes == "raw",
        consistency=cast(Literal["latest", "stable"], options.consistency),
        until=options.until,
        expired=options.expired,
        names=cast(Any, options.names),
    )


class RowsReader(DataSourceReader):
    """Reads a scan or changes part by part."""

    def __init__(self, rows: Scan | Changes, schema: StructType) -> None:
        self._rows = rows
        self._schema = arrow_schema(schema)

    def __getstate__(self) -> dict[str, object]:
        """Omit the whole: workers get their parts."""
        return {"_schema": self._schema}

    @message_first
    def partitions(self) -> list[Part]:
        return [Part(rows) for rows in self._rows.parts()]

    @rows_message_first
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """For a read without parts, Spark passes an empty partition of its own."""
        if isinstance(partition, Part):
            yield from fitted(partition.rows.to_reader(), self._schema)


class PushingReader(RowsReader):
    """Reads a scan with pushed-down conditions that have the same meaning in polars.

    Used only with the option `pushdown`: Spark 4.3 reuses the conditions of a frame's last use for every use, so
    `frame.where("n > 5").count()` would change the result of `frame.count()`.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        from crdt_mor.readers.spark.filters import expression  # Spark 4.0 has no classes of conditions

        assert isinstance(self._rows, Scan)
        for pushed in filters:
            condition = expression(pushed, self._rows.schema)
            try:
                if condition is None:
                    yield pushed
                else:
                    self._rows = self._rows.narrowed(filter=condition)
            except InvalidInputError:
                yield pushed

"""Print rows of a scan or of changes: a table for people, other formats for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

import typer

import crdt_mor as mor
from crdt_mor.cli import render
from crdt_mor.cli.python_values import records, values
from crdt_mor.ground.late_imports import Late, pa

if TYPE_CHECKING:
    import pyarrow.csv as pc
    import pyarrow.ipc as ipc
    import pyarrow.parquet as pq

    from crdt_mor.columns import kinds, types
else:
    kinds = Late("crdt_mor.columns.kinds")
    types = Late("crdt_mor.columns.types")
    pc = Late("pyarrow.csv")
    ipc = Late("pyarrow.ipc")
    pq = Late("pyarrow.parquet")

TABLE_ROWS = 20

Rows: TypeAlias = "mor.Scan | mor.Changes | pa.Table"


class Format(StrEnum):
    table = "table"
    jsonl = "jsonl"
    csv = "csv"
    parquet = "parquet"
    arrow = "arrow"


def checked_format(format: Format) -> Format:
    form = Format.jsonl if render.is_json() else format
    if form in (Format.parquet, Format.arrow) and _is_terminal():
        raise typer.BadParameter(
            f"stdout is a terminal and {form.value} is binary: redirect to a file with > or to a program with |, or "
            "use --format table",
            param_hint="--format",
        )
    return form


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def most_rows(limit: int | None, format: Format) -> int | None:
    """Return the most rows to show, None for all."""
    return TABLE_ROWS if limit is None and format is Format.table else limit


def send(rows: Rows, limit: int | None, format: Format, key: Sequence[str]) -> bool:
    """Print rows. Return False if there may be more than `limit`."""
    if not rows.schema.names and format not in (Format.jsonl, Format.arrow):
        raise mor.InvalidInputError(
            "this format cannot represent rows without columns: pass --columns, count the rows with crdt-mor count, or "
            f"use --format jsonl or arrow. format={format.value}"
        )
    if format is Format.table:
        return _print(rows, limit, key)
    if format is Format.jsonl:
        for batch in _first(rows, limit):
            render.lines(records(batch))
    else:
        _write(rows, limit, format)
    return limit is None


def _first(rows: Rows, limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    with closing(rows.to_reader()) as reader:
        for batch in reader:
            part = batch if left is None else batch.slice(0, min(left, batch.num_rows))
            yield part
            if left is not None:
                left -= part.num_rows
                if left == 0:
                    return


def _print(rows: Rows, limit: int | None, key: Sequence[str]) -> bool:
    found = pa.Table.from_batches(_first(rows, None if limit is None else limit + 1), rows.schema)
    shown = found if limit is None else found.slice(0, min(limit, found.num_rows))
    numbers = [field.name for field in rows.schema if kinds.kind_of(field.type).is_number]
    render.table(shown.column_names, zip(*map(values, shown.columns), strict=True), numbers, [*key, "_change_type"])
    is_whole: bool = shown.num_rows == found.num_rows
    if not is_whole:
        render.note(f"the first {limit} rows; for more use --limit N, for all --format csv, jsonl or parquet")
    return is_whole


def _require_flat(schema: pa.Schema) -> None:
    nested = [field.name for field in schema if pa.types.is_nested(kinds.kind_of(field.type).in_polars(field.type))]
    if nested:
        raise mor.InvalidInputError(
            f"CSV cannot hold nested values: omit these columns with --columns, or use --format jsonl. columns={nested}"
        )


def _write(rows: Rows, limit: int | None, format: Format) -> None:
    schema = rows.schema
    if format is Format.csv:
        _require_flat(schema)
        schema = pa.schema([_in_csv(field) for field in types.without_dictionaries(schema)])
    out = pa.PythonFile(sys.stdout.buffer, mode="w")
    writer: pc.CSVWriter | pq.ParquetWriter | ipc.RecordBatchStreamWriter
    if format is Format.csv:
        writer = pc.CSVWriter(out, schema, write_options=pc.WriteOptions(quoting_style="needed"))
    elif format is Format.arrow:
        writer = ipc.new_stream(out, schema)
    else:
        writer = pq.ParquetWriter(out, schema)
    with writer:
        for batch in _first(rows, limit):
            columns = [_cast(batch.column(field.name), field.type) for field in schema]
            writer.write_batch(pa.record_batch(columns, schema) if columns else batch)
    sys.stdout.buffer.flush()


def _in_csv(field: pa.Field) -> pa.Field:
    """Return text for a type that Arrow's writer does not write as its reader takes it, such as a duration."""
    return field.with_type(pa.string()) if kinds.kind_of(field.type).in_csv(field.type) == pa.string() else field


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    family = kinds.kind_of(types.values_of(column.type))
    if kind == column.type or kind != pa.string() or family.stored_as == kind:
        return column.cast(kind)
    return pa.array([None if value is None else family.to_json(value) for value in values(column)], kind)

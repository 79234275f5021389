"""Convert the inputs of writes and `Table.create` to Arrow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, Protocol, TypeAlias

import polars as pl
import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.api.rows import ArrowRows, in_types
from crdt_mor.columns.arrow_input import as_arrow, open_arrow, read_arrow, require_arrow
from crdt_mor.columns.kinds import type_named
from crdt_mor.columns.types import narrow
from crdt_mor.errors import InvalidInputError


class ArrowStream(Protocol):
    """Rows or a scan: pyarrow tables and readers, polars and pandas frames, DuckDB relations, scans of crdt_mor."""

    def __arrow_c_stream__(self, requested_schema: object | None = None, /) -> object:
        """Return the rows by Arrow's C stream interface."""


class ArrowArray(Protocol):
    """A batch of rows, such as a `pyarrow.RecordBatch`."""

    def __arrow_c_array__(self, requested_schema: object | None = None, /) -> object:
        """Return the rows by Arrow's C array interface."""


class ArrowDataset(Protocol):
    """Rows in files, such as a `pyarrow.dataset.Dataset`."""

    def scanner(self) -> Any:
        """Return a scanner of the rows, with a method `to_reader`."""


class ArrowSchema(Protocol):
    """Columns without rows, such as a `pyarrow.Schema` or a `polars.Schema`."""

    def __arrow_c_schema__(self) -> object:
        """Return the columns by Arrow's C schema interface."""


Data: TypeAlias = ArrowStream | ArrowArray | ArrowDataset | pl.LazyFrame
"""Rows to write. A list of dicts has no types: convert it with `pyarrow.Table.from_pylist(rows, table.schema)`."""

SchemaLike: TypeAlias = ArrowSchema | Data | Mapping[str, Any]
"""Columns of a new table: a schema, a frame, or a mapping of names to pyarrow or polars types."""


_DATASETS: Final = "pyarrow._dataset"
"""The module of pyarrow's datasets, imported only by programs with a dataset."""


def require_data(data: object) -> None:
    """Raise `InvalidInputError` if the type holds no rows. Reads nothing."""
    if not isinstance(data, ArrowRows | pl.LazyFrame) and type(data).__module__ != _DATASETS:
        _refuse_paths(data)
        require_arrow(data)


def read_data(data: Data, types: Callable[[], pa.Schema] | None = None) -> pa.Table:
    """Read the rows into an Arrow table. types: as in `in_types`."""
    rows = open_data(data, types)
    return rows if isinstance(rows, pa.Table) else rows.read_all()


def open_data(data: Data, types: Callable[[], pa.Schema] | None = None) -> pa.Table | pa.RecordBatchReader:
    """Return the rows as a table if they are in memory, else as a stream. types: as in `in_types`."""
    require_data(data)
    if isinstance(data, ArrowRows):
        return in_types(data, types).to_reader()  # a C stream would turn an error into a text
    if isinstance(data, pl.LazyFrame):
        return _computed(data)
    if type(data).__module__ == _DATASETS:
        scanner = data.scanner() if hasattr(data, "scanner") else data
        return scanner.to_reader()  # type: ignore[union-attr]
    return open_arrow(data)


def read_schema(schema: SchemaLike, types: Callable[[], pa.Schema] | None = None) -> pa.Schema:
    """Return the columns of a new table, without reading rows.

    Types of polars, pandas and DuckDB become ordinary Arrow types, such as `string` for `large_string`; pyarrow's stay.
    types: as in `in_types`.
    """
    schema = in_types(schema, types) if isinstance(schema, ArrowRows) else schema
    if isinstance(schema, pa.Schema):
        return schema.remove_metadata()
    if isinstance(schema, Mapping):
        return _of_types(schema)
    if isinstance(schema, pl.LazyFrame):
        return _of_polars(_schema_of(schema))
    if isinstance(schema, pl.DataFrame):
        return _of_polars(schema.schema)
    if isinstance(own := getattr(schema, "schema", None), pa.Schema):
        return own.remove_metadata()
    if type(schema).__module__.partition(".")[0] == "pandas":
        return _of_pandas(schema)
    try:
        if hasattr(schema, "__arrow_c_stream__"):
            return ordinary(pa.RecordBatchReader.from_stream(schema).schema)
        return ordinary(pa.schema(schema))
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise InvalidInputError(
            "pass the columns as a pyarrow or polars schema, a pyarrow, polars or pandas frame, or a mapping of names "
            f"to types, {{'id': pa.string()}}. type={type(schema).__name__}"
        ) from error


def ordinary(schema: pa.Schema) -> pa.Schema:
    """Convert the columns to types that every reader supports, such as `string` for `string_view`."""
    return pa.schema([pa.field(field.name, narrow(field.type), field.nullable) for field in schema])


# --- one by one -------------------------------------------------------------------------------------------------------


def _refuse_paths(data: object) -> None:
    several = isinstance(data, list | tuple) and data and all(isinstance(path, str | os.PathLike) for path in data)
    if several or isinstance(data, str | os.PathLike):
        raise InvalidInputError(
            "a path is not a table: crdt_mor.read_files(paths) reads the rows of files. "
            f"type={type(data).__name__} data={data!r:.200}"
        )


def _computed(frame: pl.LazyFrame) -> pa.RecordBatchReader:
    parts = _parts_of(frame)
    first = next(parts)
    return pa.RecordBatchReader.from_batches(first.schema, _batches(chain([first], parts)))


def _batches(tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    for table in tables:
        yield from table.to_batches()


def _parts_of(frame: pl.LazyFrame) -> Iterator[pa.Table]:
    """Compute a lazy frame part by part; the first part may have no rows."""
    try:
        names = _schema_of(frame)
        with as_arrow(names):
            yield pl.DataFrame(schema=dict(names)).to_arrow()
            for part in frame.collect_batches(maintain_order=True, engine="streaming"):
                yield part.to_arrow()
    except pl.exceptions.PolarsError as error:
        raise _not_computed(error) from error


def _schema_of(frame: pl.LazyFrame) -> Mapping[str, Any]:
    try:
        return frame.collect_schema()
    except pl.exceptions.PolarsError as error:
        raise _not_computed(error) from error


def _not_computed(error: Exception) -> InvalidInputError:
    why = str(error).partition("\n\nResolved plan until failure")[0].strip()
    return InvalidInputError(f"the lazy frame cannot be computed: {why}")


def _of_types(kinds: Mapping[str, Any]) -> pa.Schema:
    fields = []
    for name, kind in kinds.items():
        try:
            if not isinstance(name, str):
                raise TypeError("column names must be text")
            if isinstance(kind, str | pa.DataType):
                fields.append(pa.field(name, type_named(kind) if isinstance(kind, str) else kind))
            else:
                fields.append(_of_polars({name: kind}).field(0))
        except (pa.ArrowException, pl.exceptions.PolarsError, TypeError, ValueError) as error:
            raise InvalidInputError(
                "pass a column type of pyarrow or polars, like pa.string() or pl.String, or an Arrow type name, "
                f"like 'int64'. column={name!r} type={kind!r}"
            ) from error
    return pa.schema(fields)


def _of_polars(kinds: Mapping[str, Any]) -> pa.Schema:
    frame = pl.DataFrame(schema=dict(kinds))
    objects = [name for name, kind in frame.schema.items() if kind == pl.Object]
    if objects:
        raise InvalidInputError(f"Python objects cannot be stored: change the column's type. column={objects[0]!r}")
    with as_arrow(frame.columns):
        return ordinary(frame.to_arrow().schema)


def _of_pandas(frame: Any) -> pa.Schema:
    if hasattr(frame, "columns"):
        schema = read_arrow(frame).schema
    else:
        schema = read_arrow(_no_rows(frame)).schema
    untyped = [field.name for field in schema if pt.is_null(field.type)]
    if untyped:
        raise InvalidInputError(
            "pandas columns of dtype object without values have no type: set a type with "
            f"frame.astype({{{untyped[0]!r}: 'string'}}), or pass a pyarrow schema. columns={untyped}"
        )
    return ordinary(schema)


def _no_rows(dtypes: Any) -> Any:
    import pandas as pd

    try:
        return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in dtypes.to_dict().items()})
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidInputError(f"pass a pandas frame or its dtypes. type={type(dtypes).__name__}") from error

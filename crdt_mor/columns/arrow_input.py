"""Convert a user's rows to Arrow, from any library with Arrow's C interfaces. Imports no dataframe library."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from crdt_mor.errors import InvalidInputError

_UNNAMED_INDEX = "__index_level_"

_CONVERTED = re.compile(r"for column (.+) with type")

_SPARSE = re.compile(r"Sparse pandas data \(column (.+)\) not supported")

_INT128 = "'_pl"
"""polars' 128-bit integers in Arrow's C interface."""


def require_arrow(data: object) -> None:
    """Raise `InvalidInputError` if the type alone shows that `data` contains no rows."""
    library, kind = type(data).__module__.split(".")[0], type(data).__name__
    if kind == "LazyFrame":
        raise InvalidInputError("a lazy frame contains no rows yet: call collect(). type=LazyFrame")
    if library == "pyspark":
        raise InvalidInputError("a Spark frame is not local: pass df.toArrow(), or write it with Spark. type=Spark")
    if isinstance(data, pa.RecordBatchReader) or _is_pandas(data):
        return
    if not (hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")):
        raise InvalidInputError(
            "not a table: pass a pyarrow, polars, pandas or DuckDB table, or an object with __arrow_c_stream__. "
            "Convert a list of rows with pyarrow.Table.from_pylist(rows, table.schema), a dict with from_pydict. "
            f"type={kind}"
        )


def read_arrow(data: object) -> pa.Table:
    rows = open_arrow(data)
    return rows if isinstance(rows, pa.Table) else rows.read_all()


def open_arrow(data: object) -> pa.Table | pa.RecordBatchReader:
    """Return the rows as a table if they are in memory, else as a stream."""
    require_arrow(data)
    kind = type(data).__name__
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data
    if _is_pandas(data):
        return _from_pandas(data)
    try:
        with as_arrow(getattr(data, "columns", ())):
            if hasattr(data, "__arrow_c_stream__"):
                return pa.RecordBatchReader.from_stream(data)
            return pa.Table.from_batches([pa.record_batch(data)])
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            f"not a table: a single column lacks a name, so call to_frame(). type={kind}"
            if kind in ("Series", "Array", "ChunkedArray")
            else f"not a table: {error}. type={kind}"
        ) from error


@contextmanager
def as_arrow(names: Iterable[object]) -> Iterator[None]:
    """Turn polars' errors in the block into errors with advice: names or types of columns that Arrow lacks."""
    ended = [name for name in names if isinstance(name, str) and "\0" in name]
    if ended:
        raise InvalidInputError(f"a column name contains a zero character: rename the column. column={ended[0]!r}")
    try:
        yield
    except pa.ArrowInvalid as error:
        if _INT128 in str(error):
            raise InvalidInputError(
                "a column contains 128-bit integers, which Arrow lacks: cast it to Int64, or to Decimal(38, 0)"
            ) from error
        raise


def bytes_of(rows: pa.Table | pa.RecordBatch) -> int:
    """Return the bytes of these rows, without other rows of a sliced parent.

    pyarrow releases that cannot measure views raise `ArrowTypeError`; such a column counts with its whole buffers.
    """
    size = 0
    for column in rows.columns:
        try:
            size += column.nbytes
        except pa.ArrowTypeError:
            size += column.get_total_buffer_size()
    return size


def in_tables(batches: Iterable[pa.RecordBatch], rows_max: int, bytes_max: int) -> Iterator[tuple[pa.Table, bool]]:
    """Yield the batches as tables of limited rows and bytes, each with True if it is the last."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        step = max(1, min(rows_max, batch.num_rows * bytes_max // max(1, bytes_of(batch))))
        for start in range(0, batch.num_rows, step):
            piece = batch.slice(start, step)
            more = bytes_of(piece)
            if waiting and (rows + piece.num_rows > rows_max or size + more > bytes_max):
                full, waiting, rows, size = waiting, [], 0, 0
                yield _let_go(full), False
            waiting.append(piece)
            rows, size = rows + piece.num_rows, size + more
    if waiting:
        yield _let_go(waiting), True


def _let_go(batches: list[pa.RecordBatch]) -> pa.Table:
    """Move the batches into a table, so that no other reference keeps them in memory."""
    table = pa.Table.from_batches(batches)
    batches.clear()
    return table


def _is_pandas(data: object) -> bool:
    return type(data).__module__.split(".")[0] == "pandas" and type(data).__name__ == "DataFrame"


def _is_column(frame: Any, name: object) -> bool:
    """Return True if the index repeats a column, as after `set_index(name, drop=False)`."""
    if list(frame.columns).count(name) != 1:
        return False
    index = frame.index.get_level_values(name).to_series(index=frame.index)
    return bool(frame[name].equals(index))


def _from_pandas(frame: Any) -> pa.Table:
    """Convert a pandas frame. A named index becomes a column, unless it repeats one; an unnamed index is dropped."""
    index = [name for name in frame.index.names if name is not None and not _is_column(frame, name)]
    repeated = sorted(str(name) for name, times in Counter([*frame.columns, *index]).items() if times > 1)
    if repeated:
        raise InvalidInputError(f"column names must differ: rename one. repeated={repeated}")
    try:
        table = pa.Table.from_pandas(frame, preserve_index=bool(index))
    except (pa.ArrowInvalid, TypeError, pa.ArrowNotImplementedError) as error:  # ArrowTypeError is a TypeError
        sparse = _SPARSE.search(str(error))
        if sparse:
            raise InvalidInputError(
                "a column is sparse, which Arrow lacks: make it dense, frame[name].sparse.to_dense(). "
                f"column={sparse[1]}"
            ) from error
        if not isinstance(error, pa.ArrowException):
            raise
        named_column = _CONVERTED.search(str(error))
        column = named_column[1] if named_column else "unknown"
        if isinstance(error, pa.ArrowNotImplementedError):
            raise InvalidInputError(
                f"Arrow lacks a column's type, such as complex numbers: convert or drop it. column={column}"
            ) from error
        raise InvalidInputError(f"a column mixes types: convert it with astype(...). column={column}") from error
    nameless = [name for name in table.column_names if name.startswith(_UNNAMED_INDEX)]
    return table.drop_columns(nameless).replace_schema_metadata(None)

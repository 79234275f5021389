"""Rows read on demand, as an Arrow stream: the common part of scans and changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal, NoReturn

import polars as pl
import pyarrow as pa

from crdt_mor.api.html import html_line, html_table
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError, InvalidUseError
from crdt_mor.merge.polars_types import polars_frame

if TYPE_CHECKING:
    import pandas as pd

PART_SIZE: Final = 32 << 20
"""Bytes of files that a process reads in about half a second."""


PREVIEW: Final = 10
"""Rows shown in a notebook."""


class NotASequence:
    """Refuses Python's sequence operations and names the method to use."""

    def __iter__(self) -> NoReturn:
        raise InvalidUseError(
            f"a {_kind(self)} is not iterable: use to_polars().iter_rows(named=True) for rows, to_arrow().to_batches() "
            f"for batches, or pass the object itself as an Arrow stream. type={_kind(self)}"
        )

    def __len__(self) -> NoReturn:
        how = "count()" if hasattr(self, "count") else "to_arrow().num_rows"
        raise InvalidUseError(
            f"a {_kind(self)} has no length, because counting reads rows: use {how}. type={_kind(self)}"
        )

    def __getitem__(self, item: object) -> NoReturn:
        raise InvalidUseError(
            f"a {_kind(self)} has no items: use to_polars()[...], or select before reading, "
            f"scan(columns=..., filter=...). type={_kind(self)} item={item!r}"
        )

    def __contains__(self, item: object) -> NoReturn:
        raise InvalidUseError(
            f"a {_kind(self)} does not support `in`: use a filter, or schema.names for its columns. "
            f"type={_kind(self)} item={item!r}"
        )

    def __bool__(self) -> bool:
        return True


def _kind(thing: object) -> str:
    return type(thing).__name__


class ArrowRows(NotASequence, ABC):
    """Rows for pyarrow, polars, pandas or DuckDB, which accept them as an Arrow stream."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""

    @abstractmethod
    def _batches(self) -> Iterator[pa.RecordBatch]: ...

    def _in_types(self, types: Callable[[], pa.Schema]) -> ArrowRows:  # noqa: ARG002
        return self

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a polars DataFrame."""
        return polars_frame(self.to_arrow())

    def to_arrow(self) -> pa.Table:
        """Return all rows as a pyarrow Table in the declared types."""
        return pa.Table.from_batches(self._batches(), self.schema)

    def to_pandas(self, *, dtype_backend: Literal["numpy_nullable", "pyarrow"] | None = None) -> pd.DataFrame:
        """Return all rows as a pandas DataFrame, in types as in `pandas.read_parquet`."""
        types = pandas_types(dtype_backend)
        return self.to_arrow().to_pandas(types_mapper=types)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of record batches."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _first(self, count: int) -> pl.DataFrame:
        batches, left = list[pa.RecordBatch](), count
        for batch in self._batches():
            batches.append(batch)
            left -= batch.num_rows
            if left <= 0:
                break
        return polars_frame(pa.Table.from_batches(batches, self.schema).slice(0, count))

    def _repr_html_(self) -> str:
        rows = self._first(PREVIEW + 1)
        more = html_line(f"the first {PREVIEW} rows; there are more") if rows.height > PREVIEW else ""
        return html_table(rows.columns, rows.head(PREVIEW).iter_rows()) + more + html_line(repr(self))


def pandas_types(backend: object) -> Callable[[pa.DataType], object] | None:
    """Return pandas' type of an Arrow type by backend; None for NumPy's types, where integers with nulls are floats."""
    if backend is None:
        return None
    if backend not in ("numpy_nullable", "pyarrow"):
        raise InvalidInputError(
            f'dtype_backend must be "numpy_nullable" or "pyarrow"; None means NumPy types. dtype_backend={backend!r}'
        )
    import pandas as pd

    if backend == "pyarrow":
        arrow: type = pd.ArrowDtype
        return arrow
    texts = dict.fromkeys((pa.string(), pa.large_string()), pd.StringDtype())
    numbers = {
        pa.type_for_alias(name.lower()): getattr(pd, f"{name}Dtype")()
        for name in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64")
    }
    return {pa.bool_(): pd.BooleanDtype(), **texts, **numbers}.get


def in_types(rows: ArrowRows, types: Callable[[], pa.Schema] | None) -> ArrowRows:
    return rows if types is None else rows._in_types(types)  # noqa: SLF001  its own module


def part_size(size: object) -> int:
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    raise InvalidInputError(f"size must be a number of bytes above 0. size={size!r}")


def selected_columns(columns: str | Sequence[str] | None, known: Sequence[str], schema: TableSchema) -> list[str]:
    """Return the selected columns; raise for unknown or repeated names.

    `schema` has the user-visible names.
    """
    if columns is None:
        return list(known)
    names = [columns] if isinstance(columns, str) or not isinstance(columns, Iterable) else list(columns)
    if not all(isinstance(name, str) for name in names):
        kinds = sorted({type(name).__name__ for name in names})
        raise InvalidInputError(f"pass column names as text; there are {list(known)}. types={kinds}")
    there = {*known}
    unknown = [name for name in names if name not in there]
    if unknown:
        raise InvalidInputError(f"no such columns; there are {list(known)}{schema.meant(unknown)}. unknown={unknown}")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InvalidInputError(f"`columns` repeats a name: pass each column once. repeated={repeated}")
    return names

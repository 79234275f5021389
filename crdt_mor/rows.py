"""Rows that come when they are asked for, as an Arrow stream: what scans and changes have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import polars as pl
import pyarrow as pa

from crdt_mor.errors import InvalidInputError
from crdt_mor.merge.polars_types import polars_frame

if TYPE_CHECKING:
    import pandas as pd

PART_SIZE: Final = 32 << 20
"""The bytes of files that one process reads in about half a second."""


class ArrowRows(ABC):
    """Pass it to pyarrow, polars, pandas or DuckDB as it is: it has `__arrow_c_stream__`."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The Arrow schema of what comes out."""

    @abstractmethod
    def _batches(self) -> Iterator[pa.RecordBatch]: ...

    def to_polars(self) -> pl.DataFrame:
        """All rows as a polars DataFrame."""
        return polars_frame(self.to_arrow())

    def to_arrow(self) -> pa.Table:
        """All rows as a pyarrow Table in the declared types."""
        return pa.Table.from_batches(self._batches(), self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream of record batches, a part of the table at a time."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)


def part_size(size: object) -> int:
    """The size that parts are to have."""
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    raise InvalidInputError(f"the size of a part is a number of bytes, above 0. size={size!r}")


def chosen(columns: str | Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """The selected columns: a list of names, or one name by itself, or all; raises for those that are not there."""
    names = [columns] if isinstance(columns, str) else list(known if columns is None else columns)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidInputError(f"no such columns; there are {list(known)}. unknown={unknown}")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InvalidInputError(f"a column comes out once: name it once. repeated={repeated}")
    return names

"""A scan: a frozen description of a read. Rows come when they are asked for, as often as they are asked for.

The view is sealed when the scan is made, so every output of one scan shows the same snapshot. A scan is an Arrow stream
(`__arrow_c_stream__`): pass it to pyarrow, polars, pandas or DuckDB as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from crdt_mor.errors import InvalidInputError
from crdt_mor.merge.kernel import to_arrow
from crdt_mor.model.instant import Instant
from crdt_mor.model.schema import META_COLUMNS, TableSchema
from crdt_mor.ops.read import Snapshot

if TYPE_CHECKING:
    import pandas as pd


class Scan:
    """Rows of one snapshot: `columns` of them, where `filter` holds. Made by `Table.scan`."""

    def __init__(
        self,
        snapshot: Snapshot,
        columns: Sequence[str] | None,
        filter: pl.Expr | str | None,
        meta: bool,
    ) -> None:
        self._snapshot = snapshot
        known = snapshot.schema.declared.names
        self._columns = list(known if columns is None else columns)
        unknown = [name for name in self._columns if name not in known]
        if unknown:
            raise InvalidInputError(f"no such columns; the table has {known}. unknown={unknown}")
        if meta:
            self._columns = [*META_COLUMNS, *self._columns]
        self._filter = None if filter is None else _condition(filter, snapshot.schema)

    @property
    def as_of(self) -> Instant:
        """The completion time that this scan shows: everything completed by then, nothing later.

        Of a stable scan, the requested time that it stops before.
        """
        return self._snapshot.cut.time

    @property
    def checkpoint(self) -> str:
        """Where `Table.changes(since=...)` goes on from this scan."""
        return str(self._snapshot.cut)

    @property
    def version(self) -> int:
        """The version of the timeline that the scan is sealed to."""
        return self._snapshot.value.version

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of what comes out, as the table's user declared it."""
        declared = self._snapshot.schema.declared
        return pa.schema([pa.field(n, pa.string()) if n in META_COLUMNS else declared.field(n) for n in self._columns])

    def count(self) -> int:
        """Number of rows; without reading data where no filter asks for it and a file's statistics say it."""
        if self._filter is None:
            return self._snapshot.count()
        # A frame of no columns has no height, so one that is read anyway counts for all.
        named = self._filter.meta.root_names() or self._snapshot.schema.declared.names
        return sum(frame.height for frame in self._frames(named[:1]))

    def to_polars(self) -> pl.DataFrame:
        """All rows as a polars DataFrame."""
        frames = [self._restore_polars(frame) for frame in self._frames(self._columns)]
        if not frames:
            return pl.DataFrame(pl.from_arrow(self.schema.empty_table()))
        return pl.concat(frames, rechunk=False)

    def to_arrow(self) -> pa.Table:
        """All rows as a pyarrow Table in the declared types."""
        return pa.Table.from_batches(self._batches(), self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream of record batches, one file slice at a time."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        condition = "" if self._filter is None else f", filter={self._filter}"
        return f"Scan(columns={self._columns}{condition}, as_of={self.as_of})"

    # --- inside -------------------------------------------------------------------------------------------------

    def _frames(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Merged rows in stored types.

        The filter speaks of declared types. Where a column it names is stored in another one, it is applied after the
        rows are restored; else it goes down to the kernel and, for rows that no log touches, into the Parquet scan.
        """
        if self._filter is None:
            yield from self._snapshot.frames(columns, None)
            return
        named = self._filter.meta.root_names()
        schema = self._snapshot.schema
        if all(name in META_COLUMNS or _same_in_polars(schema, name) for name in named):
            yield from self._snapshot.frames(columns, self._filter)
            return
        needed = list(dict.fromkeys([*columns, *named]))
        for frame in self._snapshot.frames(needed, None):
            mask = self._restored(frame.select(named)).select(self._filter.alias("keep"))["keep"]
            yield frame.filter(mask).select(columns)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        for frame in self._frames(self._columns):
            yield from self._snapshot.schema.restore(to_arrow(frame)).cast(schema).to_batches()

    def _restored(self, frame: pl.DataFrame) -> pl.DataFrame:
        return pl.DataFrame(pl.from_arrow(self._snapshot.schema.restore(to_arrow(frame))))

    def _restore_polars(self, frame: pl.DataFrame) -> pl.DataFrame:
        schema = self._snapshot.schema
        changed = [n for n in frame.columns if n not in META_COLUMNS and not _same_in_polars(schema, n)]
        return frame.with_columns(self._restored(frame.select(changed))) if changed else frame


def _condition(filter: pl.Expr | str, schema: TableSchema) -> pl.Expr:
    """A filter that can be applied to the table's rows; tried on none of them, before any file is read."""
    try:
        condition = pl.sql_expr(filter) if isinstance(filter, str) else filter
        if not isinstance(condition, pl.Expr):
            raise InvalidInputError(f"a filter is a polars expression or SQL text. filter={filter!r}")
        known = schema.declared.names
        unknown = [name for name in condition.meta.root_names() if name not in known and name not in META_COLUMNS]
        if unknown:
            raise InvalidInputError(
                f"the filter names columns that the table has not; it has {known}. unknown={unknown}"
            )
        meta = [pa.field(name, pa.string()) for name in META_COLUMNS]
        empty = pl.DataFrame(pl.from_arrow(pa.schema([*meta, *schema.declared]).empty_table()))
        kind = empty.select(condition.alias("keep")).schema["keep"]
    except pl.exceptions.PolarsError as error:
        raise InvalidInputError(f"the filter cannot be applied to this table: {error}. filter={filter}") from error
    if kind != pl.Boolean:
        raise InvalidInputError(f"a filter is a condition, true or false for each row. filter={filter} type={kind}")
    return condition


@lru_cache(maxsize=4096)
def _same_in_polars(schema: TableSchema, name: str) -> bool:
    """Whether a column needs no restoring: its declared and its stored type are one type to polars."""
    declared, stored = (
        pl.DataFrame(pl.from_arrow(pa.schema([s.field(name)]).empty_table())) for s in (schema.declared, schema.stored)
    )
    return bool(declared.schema == stored.schema)

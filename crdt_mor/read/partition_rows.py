"""The values that partition paths determine, as frames, so that an evaluation of a filter finds the partitions."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

import polars as pl
import pyarrow as pa

from crdt_mor.columns.schema import TableSchema
from crdt_mor.columns.texts import given
from crdt_mor.merge.blocks import PARTITION_PATH
from crdt_mor.merge.polars_types import polars_frame
from crdt_mor.model.keys import KeySpec
from crdt_mor.read.expressions import columns_in


class PartitionRows:
    """A row for each partition path, kept for the next filter: a new path costs only its own row. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._fields: tuple[KeySpec, pa.Schema] | None = None
        self._paths: tuple[str, ...] = ()
        self._known: set[str] = set()
        self._frames: list[pl.DataFrame] = []

    def matching(
        self, paths: tuple[str, ...], parts: Sequence[pl.Expr], key: KeySpec, schema: TableSchema
    ) -> list[str]:
        """Return the paths that may match all parts of a filter, sorted, and perhaps paths of earlier calls.

        parts: conditions on partition columns. A condition on a column that the path does not determine may match.
        """
        return sorted(path for frame in self._rows(paths, key, schema) for path in _matching(frame, parts))

    def _rows(self, paths: tuple[str, ...], key: KeySpec, schema: TableSchema) -> list[pl.DataFrame]:
        fields = key, schema.select(key.partition_columns).declared
        with self._lock:
            if self._fields != fields:
                self._fields, self._paths, self._known, self._frames = fields, (), set(), []
            if paths is not self._paths:
                new = [path for path in paths if path not in self._known]
                self._frames = _joined(self._frames, _frames(new, key, schema))
                self._paths = paths
                self._known.update(new)
            return self._frames


def _frames(paths: Sequence[str], key: KeySpec, schema: TableSchema) -> list[pl.DataFrame]:
    """Return the rows of paths, with a frame for each set of columns that paths determine."""
    by_columns: dict[tuple[str, ...], list[tuple[str, dict[str, object]]]] = {}
    for path in paths:
        values = key.partition_values(path, schema.stored)
        by_columns.setdefault(tuple(values), []).append((path, values))
    return [_frame(names, rows, schema) for names, rows in by_columns.items()]


def _frame(names: Sequence[str], rows: Sequence[tuple[str, dict[str, object]]], schema: TableSchema) -> pl.DataFrame:
    fields = schema.select(names)
    columns = [given([values[field.name] for _, values in rows], field.type) for field in fields.stored]
    stored = pa.table(columns, schema=fields.stored)
    declared = polars_frame(fields.restore(stored))
    return pl.DataFrame([pl.Series(PARTITION_PATH, [path for path, _ in rows]), *declared])


def _joined(frames: Sequence[pl.DataFrame], more: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    by_columns = {tuple(frame.columns): frame for frame in frames}
    for frame in more:
        known = by_columns.get(tuple(frame.columns))
        by_columns[tuple(frame.columns)] = frame if known is None else known.vstack(frame)
    return list(by_columns.values())


def _matching(frame: pl.DataFrame, parts: Sequence[pl.Expr]) -> list[str]:
    for part in parts:
        if set(columns_in(part)) <= set(frame.columns):
            frame = _filtered(frame, part)
    return frame[PARTITION_PATH].to_list()


def _filtered(frame: pl.DataFrame, part: pl.Expr) -> pl.DataFrame:
    """Return the rows that may match; a row on which the condition fails counts as a match."""
    try:
        return frame.filter(part)
    except pl.exceptions.PolarsError:
        if frame.height <= 1:
            return frame
        middle = frame.height // 2
        return pl.concat([_filtered(frame[:middle], part), _filtered(frame[middle:], part)])

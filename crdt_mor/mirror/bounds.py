"""Bounds of columns from Parquet footers, where they are exact or wider: engines skip files by them.

Floats have none: NaN is greater than all numbers for Spark, and Parquet's statistics omit it. Of long texts, none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from crdt_mor.mirror.columns import MirrorColumn

COLUMNS_MAX: Final = 32
"""Delta's own default."""

_TEXT_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and greatest value of a column, and its number of nulls; each None if unknown."""

    least: Any
    greatest: Any
    nulls: int | None


def bounds_of(footer: pq.FileMetaData, columns: Iterable[MirrorColumn]) -> dict[str, Bounds]:
    """Return the bounds of a file's first flat columns, by stored name."""
    places = {footer.schema.column(place).path: place for place in range(footer.num_columns)}
    known = [column for column in columns if not column.children and column.stored in places][:COLUMNS_MAX]
    return {column.stored: _of_column(footer, places[column.stored], column.type) for column in known}


def _of_column(footer: pq.FileMetaData, place: int, kind: pa.DataType) -> Bounds:
    groups = [footer.row_group(group).column(place) for group in range(footer.num_row_groups)]
    found = [group.statistics for group in groups]
    known = all(stats is not None and stats.has_null_count for stats in found)
    nulls = sum(stats.null_count for stats in found) if known else None
    if not _is_bounded(kind) or any(stats is None for stats in found):
        return Bounds(None, None, nulls)
    pairs = zip(found, groups, strict=True)
    valued = [stats for stats, group in pairs if not known or stats.null_count != group.num_values]
    if not valued or not all(stats.has_min_max for stats in valued):
        return Bounds(None, None, nulls)
    try:
        least, greatest = min(stats.min for stats in valued), max(stats.max for stats in valued)
    except (ValueError, OverflowError, TypeError):  # a moment outside Python's years, or text that is none
        return Bounds(None, None, nulls)
    if not _is_short(least) or not _is_short(greatest):
        return Bounds(None, None, nulls)
    return Bounds(least, greatest, nulls)


def _is_bounded(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_string(kind) or pt.is_date(kind) or pt.is_timestamp(kind))


def _is_short(value: object) -> bool:
    return isinstance(value, int | date | datetime) or (isinstance(value, str) and len(value) <= _TEXT_MAX)

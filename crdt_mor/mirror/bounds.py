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
    places = places_of(footer)
    known = [column for column in columns if not column.children and column.stored in places][:COLUMNS_MAX]
    return {column.stored: _of_column(footer, places[column.stored], column.type) for column in known}


def places_of(footer: pq.FileMetaData) -> dict[str, int]:
    """Return the places of a file's leaves, by dotted path."""
    return {footer.schema.column(place).path: place for place in range(footer.num_columns)}


def range_of(footer: pq.FileMetaData, place: int, *, is_raw: bool = False) -> tuple[Any, Any] | None:
    """Return the least and greatest value of a leaf; None without values, or if a row group does not tell.

    is_raw: as Parquet's numbers, not as Python's dates and moments. Raises ValueError, OverflowError or TypeError for
    values that Python lacks.
    """
    least, greatest = list[Any](), list[Any]()
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(place)
        found = chunk.statistics
        if found is not None and found.has_null_count and found.null_count == chunk.num_values:
            continue
        if found is None or not found.has_min_max:
            return None
        least.append(found.min_raw if is_raw else found.min)
        greatest.append(found.max_raw if is_raw else found.max)
    return (min(least), max(greatest)) if least else None


def _of_column(footer: pq.FileMetaData, place: int, kind: pa.DataType) -> Bounds:
    found = [footer.row_group(group).column(place).statistics for group in range(footer.num_row_groups)]
    known = all(stats is not None and stats.has_null_count for stats in found)
    nulls = sum(stats.null_count for stats in found) if known else None
    try:
        pair = range_of(footer, place) if _is_bounded(kind) else None
    except (ValueError, OverflowError, TypeError):  # a moment outside Python's years, or text that is none
        pair = None
    if pair is None or not all(map(_is_short, pair)):
        return Bounds(None, None, nulls)
    return Bounds(*pair, nulls)


def _is_bounded(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_string(kind) or pt.is_date(kind) or pt.is_timestamp(kind))


def _is_short(value: object) -> bool:
    return isinstance(value, int | date | datetime) or (isinstance(value, str) and len(value) <= _TEXT_MAX)

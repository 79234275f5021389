"""Values at the edges of a type.

A write accepts every value on which `lift` does not raise. If `join` raises on such a value, its key cannot be read any
more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.laws.values import values

NULLS_MAX: Final = 12
"""Tried places for a null in a value, at most."""

ITEMS: Final = 40


def with_nulls(kind: pa.DataType, value: Any) -> list[Any]:
    """Return the value with a null at each place and depth, and at all places of a struct."""
    return list(islice(_with_nulls(kind, value), NULLS_MAX))


def _with_nulls(kind: pa.DataType, value: Any) -> Iterator[Any]:
    if pt.is_struct(kind):
        known = value or values(kind, 1)[0]
        yield from ({**known, field.name: None} for field in kind)
        if kind.num_fields > 1:
            yield {field.name: None for field in kind}
        for field in kind:
            yield from ({**known, field.name: inner} for inner in _with_nulls(field.type, known[field.name]))
    elif pt.is_list(kind):
        items = list(value or [])
        yield [None]
        yield [*items, None]
        yield from ([inner, *items[1:]] for inner in _with_nulls(kind.value_type, items[0] if items else None))
    elif pt.is_map(kind):
        key, item = next(iter((value or {"a": None}).items()))
        yield {key: None}
        yield from ({key: inner} for inner in _with_nulls(kind.item_type, item))


def empty(kind: pa.DataType) -> list[Any]:
    if pt.is_list(kind):
        return [[]]
    if pt.is_map(kind):
        return [{}]
    return [""] if kind == pa.string() else [b""] if kind == pa.binary() else []


def extremes(kind: pa.DataType, value: Any) -> list[Any]:
    """Return the empty, greatest and least values, NaN and infinities; in a struct, one field at a time."""
    if pt.is_struct(kind):
        known = value or values(kind, 1)[0]
        return [{**known, f.name: one} for f in kind for one in extremes(f.type, known[f.name])]
    return [*empty(kind), *_far(kind)]


def _far(kind: pa.DataType) -> Sequence[Any]:
    if pt.is_integer(kind):
        most = 2 ** (kind.bit_width - 1) - 1
        return most, -most - 1
    if pt.is_floating(kind):
        return math.nan, math.inf, -math.inf
    if pt.is_decimal(kind):
        most = Decimal(10**kind.precision - 1).scaleb(-kind.scale)
        return most, -most
    if kind == pa.date32():
        return date.min, date.max
    if pt.is_timestamp(kind):
        return datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
    return ()


def long(kind: pa.DataType) -> list[Any]:
    """Return an unordered list longer than a payload's limit; none for types without lists."""
    if not pt.is_list(kind):
        return []
    items = values(kind.value_type, ITEMS)
    return [items]


def has_nulls(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(one is None or has_nulls(one) for one in inner)

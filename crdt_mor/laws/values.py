"""Values of Arrow types for the law check, besides a payload's examples. They are always the same.

The limits also hold for drawn values (laws/strategies.py): sums of a few values stay in range. NaN, infinities, -0.0 in
a float and null in a list occur only if the examples contain them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.errors import SchemaMismatchError

LETTERS: Final = "ab01 _,é😀"
INT32_MAX: Final = 2**20
INT64_MAX: Final = 2**31
FLOAT_MAX: Final = 2.0**30
FIRST_DAY, LAST_DAY = date(1970, 1, 1), date(2099, 12, 31)

_DAYS = (LAST_DAY - FIRST_DAY).days
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIELDS_TRIED = 8


def decimal_max(kind: pa.DataType) -> int:
    """Return the greatest tried decimal, in units of the last place, so that a few can be added."""
    return int(10 ** max(kind.precision - 2, 1))


def float_edges(seen: Sequence[Any]) -> tuple[bool, bool, bool]:
    known = [value for value in seen if value is not None]
    minus = any(value == 0 and math.copysign(1, value) < 0 for value in known)
    return any(math.isnan(value) for value in known), any(math.isinf(value) for value in known), minus


def inside(seen: Sequence[Any]) -> list[Any]:
    return [item for value in seen if value is not None for item in value]


def of_entries(seen: Sequence[Any]) -> list[Any]:
    return [item for value in seen if value is not None for item in value.values()]


def of_field(seen: Sequence[Any], name: str) -> list[Any]:
    return [value[name] for value in seen if value is not None]


def values(kind: pa.DataType, count: int, seen: Sequence[Any] = ()) -> list[Any]:
    """Return up to `count` different values of a stored type. seen: examples of it."""
    distinct: dict[str, Any] = {}
    for value in islice(_values(kind, seen), 4 * count):
        distinct.setdefault(repr(value), value)
        if len(distinct) == count:
            break
    return list(distinct.values())


def _values(kind: pa.DataType, seen: Sequence[Any]) -> Iterator[Any]:
    """Yield values of a type, edges first; ends only for types with few values."""
    if pt.is_list(kind):
        return _lists(kind, inside(seen))
    if pt.is_struct(kind):
        return _structs(kind, seen)
    if pt.is_map(kind):
        return _maps(kind, of_entries(seen))
    if pt.is_floating(kind):
        return _floats(kind, seen)
    return _scalars(kind)


def _scalars(kind: pa.DataType) -> Iterator[Any]:
    if kind == pa.bool_():
        return iter((False, True))
    if kind == pa.int32():
        return _integers(INT32_MAX)
    if kind == pa.int64():
        return _integers(INT64_MAX)
    if pt.is_decimal(kind):
        return (Decimal(f"{digits}E{-kind.scale}") for digits in _integers(decimal_max(kind)))
    if kind == pa.string():
        return _texts()
    if kind == pa.binary():
        return (text.encode() for text in _texts())
    if kind == pa.date32():
        return (FIRST_DAY + timedelta(days=abs(number)) for number in _integers(_DAYS))
    if pt.is_timestamp(kind):
        return (_EPOCH + timedelta(seconds=abs(number)) for number in _integers(_DAYS * 86_400))
    raise SchemaMismatchError(f"the checker knows no values of this type: pass a stored type. type={kind}")


def _numbers(seed: int) -> Iterator[int]:
    """Yield pseudorandom numbers of 31 bits (Park and Miller, 1988)."""
    number = seed
    while True:
        number = number * 48_271 % (2**31 - 1)
        yield number


def _integers(most: int) -> Iterator[int]:
    yield from (0, 1, -1, most, -most, 2, -3)
    for number in _numbers(7):
        size = min(most, 10 ** (1 + number % 12))  # of every order of magnitude
        yield number * 2_654_435_761 % (2 * size + 1) - size


def _floats(kind: pa.DataType, seen: Sequence[Any]) -> Iterator[float]:
    nan, infinite, minus = float_edges(seen)
    yield from (0.0, 1.0, -1.5)
    yield from (math.nan,) if nan else ()
    yield from (math.inf, -math.inf) if infinite else ()
    yield from (-0.0,) if minus else ()
    yield from (FLOAT_MAX, -FLOAT_MAX, 0.5)
    for number in _integers(2**24):
        yield number / 4096 + 0.0 if pt.is_float64(kind) else number / 16 + 0.0  # exact in 32 bits


def _texts() -> Iterator[str]:
    yield from ("", "a", "b", "ab", LETTERS[-1], "01", "é_", " ,")
    for number in _numbers(11):
        length = 1 + number % 4
        yield "".join(LETTERS[number // 9**i % len(LETTERS)] for i in range(length))


def _lists(kind: pa.DataType, seen: Sequence[Any]) -> Iterator[list[Any]]:
    items = values(kind.value_type, _FIELDS_TRIED, seen)
    items = [*items[:3], None, *items[3:]] if None in seen else items
    first, second, third = (items * 3)[:3]
    yield from ([], [first], [second, first], [second, second], [third], [first, second])
    for number in _numbers(13):
        yield [items[number // 8**i % len(items)] for i in range(number % 4)]


def _structs(kind: pa.DataType, seen: Sequence[Any]) -> Iterator[dict[str, Any]]:
    fields = {field.name: values(field.type, _FIELDS_TRIED, of_field(seen, field.name)) for field in kind}
    yield {name: known[0] for name, known in fields.items()}
    for row, number in enumerate(_numbers(17), 1):
        drawn = {name: known[number // 9**i % len(known)] for i, (name, known) in enumerate(fields.items())}
        absent = list(fields)[row // 3 % len(fields)]
        yield {**drawn, absent: None} if row % 3 == 0 else drawn


def _maps(kind: pa.DataType, seen: Sequence[Any]) -> Iterator[dict[str, Any]]:
    items = [*values(kind.item_type, _FIELDS_TRIED, seen), None]
    yield {}
    for number in _numbers(19):
        keys = [("a", "b", "", "é")[number // 4**i % 4] for i in range(number % 4)]
        yield {key: items[number // 7**i % len(items)] for i, key in enumerate(keys)}

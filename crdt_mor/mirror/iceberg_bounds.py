"""The least and greatest values of a base file's columns, from its footer, in Iceberg's form.

Bounds let engines skip files. They may be too wide, never too narrow. So a column has none if its file type differs,
and floats have none, because footers ignore NaN.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from crdt_mor.mirror.bounds import places_of, range_of
from crdt_mor.mirror.columns import MirrorColumn

Bounds = tuple[tuple[int, bytes, bytes], ...]
"""Field id, least and greatest value."""

BOUNDED_MAX: Final = 6
"""Columns with bounds. Each costs about 20 bytes per file in a manifest."""

TEXT_MAX: Final = 16
"""Characters of a text, and bytes of a binary value, in a bound."""


def bounded(columns: Sequence[MirrorColumn], first: Sequence[str]) -> list[MirrorColumn]:
    """Return the columns that get bounds: `first`, stored names, before the others in their order."""
    able = [column for column in columns if _packed(column.type) is not None]
    return sorted(able, key=lambda column: column.stored not in first)[:BOUNDED_MAX]


def bounds_of(footer: pq.FileMetaData, columns: Sequence[MirrorColumn]) -> Bounds:
    kinds, places = footer.schema.to_arrow_schema(), places_of(footer)
    found: list[tuple[int, bytes, bytes]] = []
    for column in columns:
        place, index = places.get(column.stored), kinds.get_field_index(column.stored)
        if place is None or index < 0 or not _same(kinds.field(index).type, column.type):
            continue
        pair = _pair(footer, place, column.type)
        if pair is not None:
            found.append((column.id, *pair))
    return tuple(found)


def _same(file: pa.DataType, column: pa.DataType) -> bool:
    return file == column or (file, column) == (pa.int32(), pa.int64())


def _pair(footer: pq.FileMetaData, place: int, kind: pa.DataType) -> tuple[bytes, bytes] | None:
    found = range_of(footer, place, is_raw=pt.is_temporal(kind))
    if found is None:
        return None
    low, high, pack = _cut(found[0]), _cut_up(found[1]), _packed(kind)
    return None if pack is None or high is None else (pack(low), pack(high))


def _packed(kind: pa.DataType) -> Callable[[Any], bytes] | None:
    """Return the function that makes Iceberg's single value of this type; None if columns of it have no bounds."""
    if pt.is_decimal128(kind):
        return lambda value: _decimal_bytes(value, kind.scale)
    return _PACKED.get(kind)


def _decimal_bytes(value: Decimal, scale: int) -> bytes:
    sign, digits, exponent = value.as_tuple()
    number = int("".join(map(str, digits)) + "0" * (scale + int(exponent)))
    number = -number if sign else number
    bits: int = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes((bits + 8) // 8, "big", signed=True)


_PACKED: Final[Mapping[pa.DataType, Callable[[Any], bytes]]] = {
    pa.bool_(): lambda value: bytes([value]),
    pa.int32(): struct.Struct("<i").pack,
    pa.int64(): struct.Struct("<q").pack,
    pa.date32(): struct.Struct("<i").pack,
    pa.timestamp("us", "UTC"): struct.Struct("<q").pack,
    pa.timestamp("us"): struct.Struct("<q").pack,
    pa.string(): lambda text: text.encode(),
    pa.binary(): bytes,
}


def _cut(low: Any) -> Any:
    return low[:TEXT_MAX] if isinstance(low, (str, bytes)) else low


def _cut_up(high: Any) -> Any:
    """Return a short value at or above `high`; None if there is none."""
    if not isinstance(high, (str, bytes)) or len(high) <= TEXT_MAX:
        return high
    kept = high[:TEXT_MAX]
    return _next_bytes(kept) if isinstance(kept, bytes) else _next_text(kept)


def _next_bytes(value: bytes) -> bytes | None:
    kept = value.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _next_text(text: str) -> str | None:
    kept = text.rstrip("\U0010ffff")
    if not kept:
        return None
    code = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)  # surrogates are no text

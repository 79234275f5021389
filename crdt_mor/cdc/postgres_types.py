"""PostgreSQL's column types, as wal2json names them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from crdt_mor.errors import InvalidInputError

_TYPES: Final[Mapping[str, pa.DataType]] = {
    "smallint": pa.int16(), "integer": pa.int32(), "bigint": pa.int64(), "oid": pa.int64(), "real": pa.float32(),
    "double precision": pa.float64(), "boolean": pa.bool_(), "bytea": pa.binary(), "date": pa.date32(),
    "time without time zone": pa.time64("us"), "timestamp without time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
}  # fmt: skip
_PRECISE = re.compile(r"numeric\((\d+),(-?\d+)\)$")
_LENGTHS = re.compile(r"\(\d+\)")


@lru_cache(maxsize=1024)
def type_of(name: str | None) -> pa.DataType | None:
    if name is None:
        return None
    if name.endswith("[]"):
        inner = type_of(name[:-2])
        return None if inner is None else pa.list_(inner)
    if precise := _PRECISE.match(name):
        return pa.decimal128(int(precise[1]), int(precise[2]))
    return _TYPES.get(_LENGTHS.sub("", name), pa.string())


def value_of(name: str | None, value: Any) -> Any:
    if name == "numeric" and isinstance(value, int | Decimal):
        return f"{value:f}" if isinstance(value, Decimal) else str(value)
    if not isinstance(value, str) or name is None:
        return value
    if name == "bytea":
        return bytes.fromhex(value.removeprefix("\\x"))
    if name.endswith("[]"):
        return [None if v is None else value_of(name[:-2], v) for v in _array(value)]
    return value


_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)')


def _array(text: str) -> list[str | None]:
    if not (text.startswith("{") and text.endswith("}")) or "{" in re.sub(r'"(?:[^"\\]|\\.)*"', "", text[1:-1]):
        raise InvalidInputError(f"only arrays of one dimension are supported. value={text[:200]!r}")
    found = _ELEMENT.finditer(text[1:-1])
    return [_element(match) for match in found]


def _element(match: re.Match[str]) -> str | None:
    if match[1] is not None:
        return re.sub(r"\\(.)", r"\1", match[1])
    return None if match[2].upper() == "NULL" else match[2]

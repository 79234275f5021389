"""Convert values of events to Arrow columns of the table's types."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from crdt_mor.errors import InvalidInputError

Convert = Callable[[Any], Any]


def column(name: str, values: Sequence[Any], kind: pa.DataType | None, wider: pa.DataType | None) -> pa.Array:
    """Make a column. kind: the table's type. wider: the source's, if a value does not fit."""
    wanted = kind or wider
    if wanted is None:
        return _inferred(name, values)
    try:
        return _array(values, wanted)
    except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
        if kind is not None:
            return _grown(name, values, kind, wider, error)
        raise _refused(name, wanted, error) from error


def _grown(
    name: str, values: Sequence[Any], kind: pa.DataType, wider: pa.DataType | None, error: Exception
) -> pa.Array:
    try:
        found = _inferred(name, values) if wider is None or wider == kind else _array(values, wider)
    except (ValueError, TypeError, ArithmeticError, pa.ArrowException):
        raise _refused(name, kind, error) from error
    if types.is_string(found.type):
        raise _refused(name, kind, error) from error
    return found


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    native = _NATIVE.get(kind)
    if native is not None and {*map(type, values)} <= native:
        return pa.array(values, kind)
    convert = converter(kind)
    return pa.array([None if value is None else convert(value) for value in values], kind)


def _inferred(name: str, values: Sequence[Any]) -> pa.Array:
    plain = [json_text(value) if isinstance(value, dict | list) else value for value in values]
    try:
        return pa.array(plain)
    except pa.ArrowException:
        pass
    try:
        return _array(plain, pa.string())
    except (ValueError, TypeError, pa.ArrowException) as error:
        raise _refused(name, pa.string(), error) from error


def _refused(name: str, kind: pa.DataType, error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"a value does not fit the column: {error}. Give the column another type, or correct the event. "
        f"column={name!r} type={kind}"
    )


_NONE: Final = type(None)
_NATIVE: Final[dict[pa.DataType, set[type]]] = {
    pa.bool_(): {bool, _NONE}, pa.int8(): {int, _NONE}, pa.int16(): {int, _NONE}, pa.int32(): {int, _NONE},
    pa.int64(): {int, _NONE}, pa.float64(): {float, _NONE}, pa.string(): {str, _NONE}, pa.binary(): {bytes, _NONE},
}  # fmt: skip


@lru_cache(maxsize=1024)
def converter(kind: pa.DataType) -> Convert:
    for is_kind, made in _CONVERTERS:
        if is_kind(kind):
            return made(kind)
    return lambda value: value


def _bool(_: pa.DataType) -> Convert:
    texts = {"t": True, "true": True, "1": True, "f": False, "false": False, "0": False}

    def convert(value: Any) -> bool:
        if isinstance(value, str):
            return texts[value.lower()]
        if value not in (0, 1):
            raise ValueError(f"{value!r} is no truth value")
        return bool(value)

    return convert


def _int(_: pa.DataType) -> Convert:
    def convert(value: Any) -> int:
        number = int(value)
        if not isinstance(value, str) and number != value:
            raise ValueError(f"{value!r} is no whole number")
        return number

    return convert


def _float(kind: pa.DataType) -> Convert:
    def convert(value: Any) -> float:
        number = float(value)
        if isinstance(value, int) and int(number) != value:
            raise ValueError(f"{value!r} is inexact as {kind}")
        return number

    return convert


def _decimal(_: pa.DataType) -> Convert:
    return lambda value: Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _string(_: pa.DataType) -> Convert:
    def convert(value: Any) -> str:
        match value:
            case str():
                return value
            case bytes():
                return value.decode()
            case bool():
                return "true" if value else "false"
            case dict() | list():
                return json_text(value)
            case datetime() | date() | time():
                return value.isoformat()
        return str(value)

    return convert


def _binary(_: pa.DataType) -> Convert:
    return lambda value: value.encode() if isinstance(value, str) else bytes(value)


def _date(_: pa.DataType) -> Convert:
    def convert(value: Any) -> date:
        found = datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(found, datetime):
            if found.time() != time():
                raise ValueError(f"{value!r} has a time of day")
            return found.date()
        if not isinstance(found, date):
            raise TypeError(f"{value!r} is no date")
        return found

    return convert


def _time(_: pa.DataType) -> Convert:
    def convert(value: Any) -> time:
        if isinstance(value, timedelta):
            return (datetime(1, 1, 1, tzinfo=UTC) + value).time()
        return time.fromisoformat(value) if isinstance(value, str) else value

    return convert


def _timestamp(kind: pa.TimestampType) -> Convert:
    zoned = kind.tz is not None

    def convert(value: Any) -> datetime:
        found = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(found, datetime):
            if not isinstance(found, date):
                raise TypeError(f"{value!r} is no moment")
            found = datetime(found.year, found.month, found.day, tzinfo=None if not zoned else UTC)
        if found.tzinfo is None:
            return found.replace(tzinfo=UTC) if zoned else found
        return found if zoned else found.astimezone(UTC).replace(tzinfo=None)

    return convert


def _list(kind: Any) -> Convert:
    inner = converter(kind.value_type)
    return lambda value: [None if v is None else inner(v) for v in _document(value, list)]


def _struct(kind: Any) -> Convert:
    fields = {field.name: converter(field.type) for field in kind}

    def convert(value: Any) -> dict[str, Any]:
        given = _document(value, dict)
        unknown = given.keys() - fields.keys()
        if unknown:
            raise ValueError(f"the struct lacks the fields {sorted(unknown)}")
        return {n: None if given.get(n) is None else made(given[n]) for n, made in fields.items()}

    return convert


def _map(kind: Any) -> Convert:
    keys, items = converter(kind.key_type), converter(kind.item_type)

    def convert(value: Any) -> list[tuple[Any, Any]]:
        given = value.items() if isinstance(value, dict) else value
        return [(keys(k), None if v is None else items(v)) for k, v in given]

    return convert


def _document(value: Any, kind: type) -> Any:
    found = json.loads(value, parse_float=Decimal) if isinstance(value, str) else value
    if not isinstance(found, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return found


_CONVERTERS: Final[Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Any], Convert]]]] = (
    (types.is_boolean, _bool),
    (types.is_integer, _int),
    (types.is_floating, _float),
    (types.is_decimal, _decimal),
    (lambda kind: types.is_string(kind) or types.is_large_string(kind), _string),
    (lambda kind: types.is_binary(kind) or types.is_large_binary(kind), _binary),
    (types.is_date, _date),
    (types.is_time, _time),
    (types.is_timestamp, _timestamp),
    (lambda kind: types.is_list(kind) or types.is_large_list(kind), _list),
    (types.is_struct, _struct),
    (types.is_map, _map),
)


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_json_number)


def _json_number(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return str(value)

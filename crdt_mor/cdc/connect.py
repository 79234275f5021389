"""Kafka Connect's schemas, with Debezium's logical types."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from crdt_mor.errors import InvalidInputError

Read = Callable[[Any], Any]
_DIGITS: Final = Context(prec=100)
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001
_DAY: Final = date(1970, 1, 1)
_MILLI, _MICRO, _NANO = 1_000_000, 1_000, 1

_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(), "float": pa.float32(),
    "float32": pa.float32(), "double": pa.float64(), "float64": pa.float64(), "boolean": pa.bool_(),
    "string": pa.string(), "bytes": pa.binary(),
}  # fmt: skip


def same(value: Any) -> Any:
    return value


def column_of(schema: Mapping[str, Any]) -> tuple[pa.DataType, Read]:
    name, kind = schema.get("name") or "", schema["type"]
    if name in _LOGICAL:
        return _LOGICAL[name]
    if name == "org.apache.kafka.connect.data.Decimal":
        return _decimal(schema.get("parameters") or {})
    if name == "io.debezium.data.VariableScaleDecimal":
        return pa.string(), variable_decimal
    if name.startswith("io.debezium.data.geometry."):
        raise InvalidInputError(
            f"geometries are not supported: leave the column out by column.exclude.list. column={schema.get('field')!r}"
        )
    match kind:
        case "array":
            inner, read = column_of(schema["items"])
            return pa.list_(inner), _each(read)
        case "map":
            (keys, read_key), (items, read_item) = column_of(schema["keys"]), column_of(schema["values"])
            return pa.map_(keys, items), _entries(read_key, read_item)
        case "struct":
            columns = columns_of(schema)
            fields = [(field, found) for field, (found, _) in columns.items()]
            return pa.struct(fields), lambda value: {n: _read(columns[n][1], v) for n, v in value.items()}
        case "bytes":
            return pa.binary(), bytes_of
    return _PLAIN[kind], same


def columns_of(struct: Mapping[str, Any]) -> dict[str, tuple[pa.DataType, Read]]:
    return {field["field"]: column_of(field) for field in struct["fields"]}


def _read(read: Read, value: Any) -> Any:
    return None if value is None else read(value)


def _each(read: Read) -> Read:
    return lambda value: [_read(read, v) for v in value]


def _entries(key: Read, item: Read) -> Read:
    def read(value: Any) -> list[tuple[Any, Any]]:
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(key(k), _read(item, v)) for k, v in pairs]

    return read


def bytes_of(value: Any) -> bytes:
    return base64.b64decode(value, validate=True) if isinstance(value, str) else bytes(value)


def _decimal(parameters: Mapping[str, Any]) -> tuple[pa.DataType, Read]:
    scale = int(parameters.get("scale", 0))
    precision = int(parameters.get("connect.decimal.precision", 38))
    return pa.decimal128(min(38, max(precision, scale)), scale), lambda value: _scaled(value, scale)


def _scaled(value: Any, scale: int) -> Decimal:
    if isinstance(value, Decimal):
        return value
    unscaled = int.from_bytes(bytes_of(value), "big", signed=True)
    return Decimal(unscaled).scaleb(-scale, _DIGITS)


def variable_decimal(value: Mapping[str, Any]) -> Decimal:
    return _scaled(value["value"], value["scale"])


def _date(value: Any) -> date:
    if isinstance(value, str):
        return date.fromisoformat(value.removesuffix("Z"))
    return value if isinstance(value, date) else _DAY + timedelta(days=value)


def _moment(nanos: int) -> Read:
    def read(value: Any) -> Any:
        if not isinstance(value, int):
            return _moment_text(value)
        micros, rest = divmod(value * nanos, 1_000)
        if rest:
            raise InvalidInputError(f"a moment has nanoseconds: set time.precision.mode=connect. value={value}")
        return _EPOCH + timedelta(microseconds=micros)

    return read


def _moment_text(value: Any) -> Any:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _time(nanos: int) -> Read:
    moment = _moment(nanos)

    def read(value: Any) -> Any:
        if isinstance(value, str):
            return time.fromisoformat(value).replace(tzinfo=None)
        return moment(value).time() if isinstance(value, int) else value

    return read


_TIMESTAMP: Final = pa.timestamp("us")
_LOGICAL: Final[Mapping[str, tuple[pa.DataType, Read]]] = {
    "io.debezium.time.Date": (pa.date32(), _date),
    "io.debezium.time.IsoDate": (pa.date32(), _date),
    "org.apache.kafka.connect.data.Date": (pa.date32(), _date),
    "io.debezium.time.Time": (pa.time64("us"), _time(_MILLI)),
    "io.debezium.time.MicroTime": (pa.time64("us"), _time(_MICRO)),
    "io.debezium.time.NanoTime": (pa.time64("us"), _time(_NANO)),
    "io.debezium.time.IsoTime": (pa.time64("us"), _time(_NANO)),
    "org.apache.kafka.connect.data.Time": (pa.time64("us"), _time(_MILLI)),
    "io.debezium.time.Timestamp": (_TIMESTAMP, _moment(_MILLI)),
    "io.debezium.time.MicroTimestamp": (_TIMESTAMP, _moment(_MICRO)),
    "io.debezium.time.NanoTimestamp": (_TIMESTAMP, _moment(_NANO)),
    "io.debezium.time.IsoTimestamp": (_TIMESTAMP, _moment(_NANO)),
    "org.apache.kafka.connect.data.Timestamp": (_TIMESTAMP, _moment(_MILLI)),
    "io.debezium.time.ZonedTimestamp": (pa.timestamp("us", "UTC"), _moment_text),
}


# --- values without a schema ------------------------------------------------------------------------------------------


def reader_of(kind: pa.DataType) -> Read:
    for is_kind, made in _READERS:
        if is_kind(kind):
            return made(kind)
    return same


def _decimal_by_column(kind: pa.Decimal128Type) -> Read:
    def read(value: Any) -> Any:
        if isinstance(value, Mapping):
            return variable_decimal(value)
        if not isinstance(value, str):
            return value
        is_number, is_encoded = _NUMBER.fullmatch(value) is not None, _is_base64(value)
        if is_number and is_encoded and kind.scale <= 0:
            raise InvalidInputError(
                "this text may be a number or encoded bytes: let Debezium add schemas (schemas.enable=true). "
                f"value={value!r}"
            )
        return _scaled(value, kind.scale) if is_encoded else Decimal(value)

    return read


_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def _is_base64(text: str) -> bool:
    return bool(text) and _BASE64.fullmatch(text) is not None


_NANOS: Final = {"s": _MILLI, "ms": _MILLI, "us": _MICRO, "ns": _NANO}
"""Debezium has no seconds."""


def _struct_by_column(kind: Any) -> Read:
    fields = {field.name: reader_of(field.type) for field in kind}
    return lambda value: {n: _read(fields.get(n, same), v) for n, v in value.items()}


_READERS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Read]], ...]] = (
    (types.is_date, lambda _: _date),
    (types.is_time, lambda kind: _time(_NANOS[kind.unit])),
    (types.is_timestamp, lambda kind: _moment(_NANOS[kind.unit])),
    (types.is_decimal, _decimal_by_column),
    (lambda kind: types.is_binary(kind) or types.is_large_binary(kind), lambda _: bytes_of),
    (types.is_list, lambda kind: _each(reader_of(kind.value_type))),
    (types.is_struct, _struct_by_column),
)

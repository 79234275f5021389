"""Thrift's compact protocol, as far as the footers of Parquet files use it.

    struct   per field (its number minus that of the field before << 4 | kind) and its value; at last a zero byte
    number   zigzag varint                         binary   length as a varint, bytes
    list     (length << 4 | kind) items            bool     as a field its kind is the value; in a list it is a byte

A struct is decoded without knowledge of its fields, so that fields of newer Parquet releases are kept.

Source: Thrift's `doc/specs/thrift-compact-protocol.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Never, cast

from crdt_mor.errors import FormatError

TRUE, FALSE, BYTE, I16, I32, I64, BINARY, LIST, STRUCT = 1, 2, 3, 4, 5, 6, 8, 9, 12
"""Kinds of values. Maps, sets and floats are not in footers."""

_BOOLS: Final = frozenset({TRUE, FALSE})
_NUMBERS: Final = frozenset({I16, I32, I64})
_SHIFT_MAX: Final = 63
"""The shift of the tenth byte of a 64-bit number, its last."""

_FIELD_MAX: Final = 32_767
"""Field numbers have 16 bits: readers that drop higher bits would confuse fields."""

_LONG: Final = 15
"""Lists of 15 items or more store their length separately. A field more than 15 above its predecessor stores its id."""


@dataclass(slots=True)
class Value:
    """A value and its kind: bool, int, bytes, `Items` or `Struct`; a struct or list may stay encoded, as bytes."""

    kind: int
    value: Any


@dataclass(frozen=True, slots=True)
class Items:
    kind: int
    values: Sequence[Any]


Struct = dict[int, Value]
"""Values by field number, upwards."""

Parts = Mapping[int, Any]
"""The structs and lists to decode inside a struct, or inside each struct of a list, by field number. Others stay
encoded: a footer of thousands of columns contains hundreds of thousands of values, most of which are only copied.
"""


def decode(data: bytes, parts: Parts | None = None) -> Struct:
    """Decode a struct, by default with all its parts; raise `FormatError` if `data` is not exactly one."""
    reader = _Reader(data)
    struct = _struct(reader, parts)
    if reader.position != len(data):
        raise FormatError(f"bytes after the end of a Thrift struct. byte={reader.position} length={len(data)}")
    return struct


def decode_front(data: bytes | memoryview) -> tuple[Struct, int]:
    """Decode the struct at the front of `data` and count its bytes; raise `FormatError` for other data."""
    reader = _Reader(cast(bytes, data))
    return _struct(reader), reader.position


def decode_items(data: bytes) -> Iterator[Struct]:
    """Decode the structs of an encoded list in turn; raise `FormatError` for other items."""
    reader = _Reader(data)
    kind, length = reader.items_header()
    if kind != STRUCT:
        raise FormatError(f"not a list of Thrift structs. kind={kind}")
    for _ in range(length):
        yield _struct(reader)


def _struct(reader: _Reader, parts: Parts | None = None) -> Struct:
    try:
        return reader.struct(parts)
    except (IndexError, ValueError, RecursionError) as error:
        raise FormatError(f"not a struct of Thrift's compact protocol. byte={reader.position} error={error}") from error


def encode(struct: Struct) -> bytes:
    out = bytearray()
    _put_struct(out, struct)
    return bytes(out)


class _Reader:
    """Reads from `position` on. Bytes are taken inline: a call per byte would double the time."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def struct(self, parts: Parts | None = None) -> Struct:
        fields: Struct = {}
        field = 0
        while header := self.data[self.position]:
            self.position += 1
            field = field + (header >> 4) if header >> 4 else self.number()
            if field in fields or not 0 <= field <= _FIELD_MAX:
                raise ValueError(f"a repeated or invalid field number. field={field}")
            kind = header & 15
            if kind in _BOOLS:
                fields[field] = Value(kind, kind == TRUE)
            elif parts is None or kind not in _NESTED:
                fields[field] = Value(kind, _READ.get(kind, _Reader.unknown)(self))
            elif field in parts:
                fields[field] = Value(kind, _NESTED[kind](self, parts[field]))
            else:
                fields[field] = Value(kind, self.encoded(kind))
        self.position += 1
        return fields

    def number(self) -> int:
        zigzag = self._varint()
        return (zigzag >> 1) ^ -(zigzag & 1)

    def binary(self) -> bytes:
        length = self._varint()
        start, self.position = self.position, self.position + length
        if self.position > len(self.data):
            raise ValueError("text is cut short")
        return self.data[start : self.position]

    def items(self, parts: Parts | None = None) -> Items:
        kind, length = self.items_header()
        if kind == STRUCT:
            return Items(kind, [self.struct(parts) for _ in range(length)])
        read = _READ.get(kind, _Reader.unknown)
        return Items(kind, [read(self) for _ in range(length)])

    def items_header(self) -> tuple[int, int]:
        """Return the kind of a list's items and their number."""
        header = self.byte()
        return header & 15, header >> 4 if header >> 4 != _LONG else self._varint()

    def encoded(self, kind: int) -> bytes:
        start = self.position
        self.skip(kind)
        if self.position > len(self.data):
            raise ValueError("a value is cut short")
        return self.data[start : self.position]

    def skip(self, kind: int) -> None:
        if kind == STRUCT:
            while header := self.byte():
                if not header >> 4:
                    self.number()
                if header & 15 not in _BOOLS:
                    self.skip(header & 15)
        elif kind == LIST:
            kind, length = self.items_header()
            for _ in range(length):
                self.skip(kind)
        elif kind == BINARY:
            length = self._varint()
            self.position += length
        else:
            _READ.get(kind, _Reader.unknown)(self)

    def is_true(self) -> bool:
        return self.byte() == TRUE

    def byte(self) -> int:
        self.position += 1
        return self.data[self.position - 1]

    def unknown(self) -> Never:
        raise ValueError("an unknown kind of value")

    def _varint(self) -> int:
        number = self.data[self.position]
        self.position += 1
        if number < 0x80:  # most numbers are this small
            return number
        number &= 0x7F
        shift = 7
        while (byte := self.byte()) >= 0x80:
            number |= (byte & 0x7F) << shift
            shift += 7
            if shift > _SHIFT_MAX:
                raise ValueError("a number of more than ten bytes")
        return number | byte << shift


_NESTED: Final[dict[int, Callable[..., Any]]] = {LIST: _Reader.items, STRUCT: _Reader.struct}
_READ: Final[dict[int, Callable[[_Reader], Any]]] = {
    **dict.fromkeys(_BOOLS, _Reader.is_true),
    BYTE: _Reader.byte,
    **dict.fromkeys(_NUMBERS, _Reader.number),
    BINARY: _Reader.binary,
    **_NESTED,
}


def _put_struct(out: bytearray, struct: Struct) -> None:
    last = 0
    for field, item in struct.items():
        kind = (TRUE if item.value else FALSE) if item.kind in _BOOLS else item.kind
        if 0 < field - last <= _LONG:
            out.append((field - last) << 4 | kind)
        else:
            out.append(kind)
            _put_number(out, field)
        if kind not in _BOOLS:
            _put(out, kind, item.value)
        last = field
    out.append(0)


def _put(out: bytearray, kind: int, value: Any) -> None:
    if kind in _NUMBERS:
        _put_number(out, value)
    elif kind == BINARY:
        _put_varint(out, len(value))
        out += value
    elif isinstance(value, bytes):
        out += value
    elif kind == STRUCT:
        _put_struct(out, value)
    elif kind == LIST:
        out.append(min(len(value.values), _LONG) << 4 | value.kind)
        if len(value.values) >= _LONG:
            _put_varint(out, len(value.values))
        for item in value.values:
            _put(out, value.kind, item)
    elif kind in _BOOLS:
        out.append(TRUE if value else FALSE)
    else:
        assert kind == BYTE
        out.append(value)


def _put_number(out: bytearray, number: int) -> None:
    _put_varint(out, (number << 1) ^ (number >> 63))


def _put_varint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)

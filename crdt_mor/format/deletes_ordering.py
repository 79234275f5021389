"""Encode and decode the ordering values of deletes, a column of equal branch at a time.

`format.deletes` describes the bytes around a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from crdt_mor.columns import decimals
from crdt_mor.columns.texts import binaries, binary_scalar, integers, numbers, text_scalar
from crdt_mor.errors import InvalidInputError, UnsupportedFeatureError
from crdt_mor.format import avro
from crdt_mor.ground.late_imports import pc

Json: TypeAlias = "str | bool | int | list[Json] | dict[str, Json] | None"

_DECIMAL: Final = pa.decimal128(38, 15)
"""Hudi's schema is (30, 15), but its readers, and hudi-rs, accept as many digits as the bytes contain."""


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A branch of the union: its value's Avro type, Arrow type, and bytes."""

    name: str
    avro: Json
    arrow: pa.DataType
    zero: bytes


WRAPPERS: Final = (
    Wrapper("Null", "null", pa.null(), b""),
    Wrapper("Boolean", "boolean", pa.bool_(), b"\x00"),
    Wrapper("Int", "int", pa.int32(), b"\x00"),
    Wrapper("Long", "long", pa.int64(), b"\x00"),
    Wrapper("Float", "float", pa.float32(), bytes(4)),
    Wrapper("Double", "double", pa.float64(), bytes(8)),
    Wrapper("Bytes", "bytes", pa.binary(), b"\x00"),
    Wrapper("String", "string", pa.string(), b"\x00"),
    Wrapper("Date", "int", pa.date32(), b"\x00"),
    Wrapper("Decimal", "bytes", _DECIMAL, b"\x00"),
    Wrapper("TimeMicros", "long", pa.time64("us"), b"\x00"),
    Wrapper("TimestampMicros", "long", pa.timestamp("us", tz="UTC"), b"\x00"),
)
ARRAY_BRANCH: Final = len(WRAPPERS)
_BRANCH: Final = {wrapper.arrow: branch for branch, wrapper in enumerate(WRAPPERS) if wrapper.name != "Null"}
_AS_NUMBER: Final = {pa.date32(): pa.int32(), pa.timestamp("us", "UTC"): pa.int64(), pa.timestamp("us"): pa.int64()}
NATURAL: Final = avro.encode_long(2) + b"\x00"
"""IntWrapper(0), Hudi's "natural order": a delete without an ordering value."""


def as_binary(texts: pa.Array) -> pa.Array:
    return texts.cast(pa.large_string()).cast(pa.large_binary())


def length_prefix(values: pa.Array, before: bytes) -> pa.Array:
    """Prefix each value with `before` and its Avro length; each length is encoded once."""
    lengths, places = np.unique(numbers(pc.binary_length(values)), return_inverse=True)
    prefixes = binaries([before + avro.encode_long(int(length)) for length in lengths])
    return prefixes.take(integers(places))


def encoded_ordering(ordering: pa.Array) -> pa.Array:
    type_ = ordering.type
    if pa.types.is_null(type_):
        return binary_scalar(NATURAL)
    if pa.types.is_decimal(type_):
        ordering = _wide_decimal(ordering)
    branch = _BRANCH.get(_AS_NUMBER.get(ordering.type, ordering.type))
    if branch is None:
        raise UnsupportedFeatureError(
            "a delete cannot carry an ordering value of this type; use an int, float, string, date, timestamp or "
            f"decimal column as the ordering column. type={type_}"
        )
    head = avro.encode_long(branch)
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        values = pc.fill_null(ordering, text_scalar("") if pa.types.is_string(type_) else b"")
        values = as_binary(values) if pa.types.is_string(type_) else values.cast(pa.large_binary())
        empty = binary_scalar(b"")
        tails = pc.binary_join_element_wise(length_prefix(values, head), values, empty)
    else:
        tails = _fixed_tails(ordering, head)
    null = binary_scalar(b"\x00")
    return pc.if_else(ordering.is_null(), null, tails) if ordering.null_count else tails


def _wide_decimal(ordering: pa.Array) -> pa.Array:
    try:
        return decimals.cast(ordering, _DECIMAL)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            "an ordering value of a delete has at most 23 digits before the point and 15 after it in Hudi's format. "
            f"type={ordering.type} error={error}"
        ) from error


def _fixed_tails(ordering: pa.Array, head: bytes) -> pa.Array:
    """Encode each value; any bytes for a null."""
    type_ = ordering.type
    if pa.types.is_boolean(type_):
        plain = pc.fill_null(ordering, False).to_numpy(zero_copy_only=False)
        matrix = plain.astype(np.uint8)[:, None]
        mask = np.ones_like(matrix, dtype=bool)
    elif pa.types.is_floating(type_):
        plain = numbers(ordering)
        width = type_.bit_width // 8
        matrix = np.ascontiguousarray(plain.astype(f"<f{width}")).view(np.uint8).reshape(-1, width)
        mask = np.ones_like(matrix, dtype=bool)
    elif pa.types.is_decimal(type_):
        matrix, mask = _decimal_bytes(ordering)
    else:
        # Dates and times become numbers of their own width first: Arrow casts no date to int64.
        width = pa.int32() if type_.bit_width == 32 else pa.int64()
        matrix, mask = _varints(numbers(ordering.cast(width).cast(pa.int64())))
    heads = np.broadcast_to(np.frombuffer(head, np.uint8), (len(ordering), len(head)))
    matrix = np.hstack((heads, matrix))
    mask = np.hstack((np.ones_like(heads, dtype=bool), mask))
    offsets = np.zeros(len(ordering) + 1, np.int64)
    np.cumsum(mask.sum(axis=1), out=offsets[1:])
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(ordering), [None, pa.py_buffer(offsets), pa.py_buffer(matrix[mask])]
    )


def _varints(numbers: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    zigzag = (numbers.astype(np.uint64) << np.uint64(1)) ^ (numbers >> np.int64(63)).astype(np.uint64)
    shifts = np.arange(10, dtype=np.uint64) * np.uint64(7)
    rest = zigzag[:, None] >> shifts
    mask = rest != 0
    mask[:, 0] = True
    more = np.zeros_like(mask)
    more[:, :-1] = mask[:, 1:]
    return ((rest & np.uint64(0x7F)) | (more.astype(np.uint64) << np.uint64(7))).astype(np.uint8), mask


def _decimal_bytes(ordering: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Encode length and unscaled value in the fewest bytes, big-endian: Java's BigInteger."""
    raw = np.frombuffer(ordering.buffers()[1], np.uint8).reshape(-1, 16)[ordering.offset :][: len(ordering)]
    big = raw[:, ::-1].copy()
    big[ordering.is_null().to_numpy(zero_copy_only=False)] = 0
    sign = np.where(big[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
    # Drop a leading byte that only repeats the sign of the next byte.
    idle = (big[:, :-1] == sign) & ((big[:, 1:] >= 0x80) == (sign != 0))
    leading = np.cumprod(idle, axis=1).sum(axis=1)
    mask = np.arange(16) >= leading[:, None]
    lengths = ((16 - leading) << 1).astype(np.uint8)[:, None]
    return np.hstack((lengths, big)), np.hstack((np.ones_like(lengths, dtype=bool), mask))


def decoded_ordering(rows: pl.DataFrame, wrapper: Wrapper) -> pa.Array:
    if pa.types.is_null(wrapper.arrow):
        return pa.nulls(rows.height)
    values = rows["ordering"].to_arrow()
    if pa.types.is_decimal(wrapper.arrow):
        return _decimals(values.to_pylist())
    return values.cast(wrapper.arrow)


def _decimals(values: Sequence[bytes | None]) -> pa.Array:
    signed = (None if value is None else int.from_bytes(value, "big", signed=True) for value in values)
    raw = [None if number is None else number.to_bytes(16, "little", signed=True) for number in signed]
    fixed = pa.array([bytes(16) if value is None else value for value in raw], pa.binary(16))
    validity = pa.array([value is not None for value in raw]).buffers()[1]
    return pa.Array.from_buffers(_DECIMAL, len(raw), [validity, fixed.buffers()[1]])


def typed_ordering(values: list[object], wrapper: Wrapper) -> pa.Array:
    if pa.types.is_decimal(wrapper.arrow):
        return _decimals(cast("list[bytes | None]", values))
    plain = {"int": pa.int32(), "long": pa.int64()}.get(str(wrapper.avro), wrapper.arrow)
    return pa.array(values, plain).cast(wrapper.arrow)

"""The value of a partition function for each row: see `partition_functions`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns.texts import given, integers, numbers
from crdt_mor.columns.types import stored_type
from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.late_imports import pc
from crdt_mor.model.partition_functions import PartitionFunction

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE: Final = (pa.int32(), pa.int64())
_WANTED: Final = {
    "bucket": "an integer, a string or a date", "truncate": "an integer or a string", "hour": "a timestamp"
}  # fmt: skip
_FORMATS: Final[dict[str, Callable[[datetime], object]]] = {
    "year": lambda moment: moment.year,
    "month": lambda moment: moment.date().isoformat()[:7],
    "day": lambda moment: date(moment.year, moment.month, moment.day),
    "hour": lambda moment: moment.isoformat()[:13].replace("T", "-"),
}


def require_type(function: PartitionFunction, kind: pa.DataType) -> None:
    """Raise `InvalidInputError` if the function does not take the source's stored type."""
    if not _takes(function, kind):
        wanted = _WANTED.get(function.name, "a date or a timestamp")
        raise InvalidInputError(
            f"{function.name} needs {wanted}: name another column. column={function.source} type={kind}"
        )


def _takes(function: PartitionFunction, kind: pa.DataType) -> bool:
    match function.name:
        case "bucket":
            return kind in _WHOLE or kind in (pa.string(), pa.date32())
        case "truncate":
            return kind in _WHOLE or kind == pa.string()
        case "hour":
            return bool(pt.is_timestamp(kind))
    return bool(pt.is_timestamp(kind) or kind == pa.date32())


def result_type(function: PartitionFunction, source: pa.DataType) -> pa.DataType:
    """Return the type of the values, which all of Hudi's engines format alike in a path."""
    match function.name:
        case "day":
            return pa.date32()
        case "month" | "hour":
            return pa.string()
        case "truncate":
            return pa.string() if source == pa.string() else pa.int64()
    return pa.int32()


def keeps_order(function: PartitionFunction) -> bool:
    """True if a greater source value never has a smaller result."""
    return function.name != "bucket"


def function_values(function: PartitionFunction, source: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the value of every row; raise `InvalidInputError` for years outside 1 to 9999.

    source: the column in its stored type, or another layout of it.
    """
    source = source.cast(stored_type(source.type, function.source))
    whole = source.combine_chunks() if isinstance(source, pa.ChunkedArray) else source
    there = whole.drop_null()
    if not len(there):
        return pa.nulls(len(whole), result_type(function, source.type))
    match function.name:
        case "bucket":
            assert function.width is not None
            made = integers(((_hashes(there) & 0x7FFFFFFF) % function.width).astype(np.int32))
        case "truncate":
            made = _truncated(function, there)
        case _:
            made = _times(function, there)
    return made if not whole.null_count else made.take(_places(whole))


def _times(function: PartitionFunction, source: pa.Array) -> pa.Array:
    is_timestamp = pt.is_timestamp(source.type)
    moments = _numbers(source.cast(pa.int64() if is_timestamp else pa.int32())).astype(
        f"datetime64[{source.type.unit if is_timestamp else 'D'}]"
    )
    unit = "h" if function.name == "hour" else "D"
    distinct, places = np.unique(moments.astype(f"datetime64[{unit}]").astype(np.int64), return_inverse=True)
    values = [_time(function, int(number), unit) for number in distinct]
    return given(values, result_type(function, source.type)).take(integers(places))


def _time(function: PartitionFunction, number: int, unit: str) -> object:
    try:
        return _FORMATS[function.name](_EPOCH + (timedelta(hours=number) if unit == "h" else timedelta(days=number)))
    except OverflowError as error:
        raise InvalidInputError(
            f"a partition by {function.name} takes years from 1 to 9999: correct the value. column={function.source}"
        ) from error


def _truncated(function: PartitionFunction, source: pa.Array) -> pa.Array:
    assert function.width is not None
    if source.type == pa.string():
        return pc.utf8_slice_codeunits(source, 0, function.width)
    numbers = _numbers(source)
    made = numbers - numbers % function.width
    if (made > numbers).any():
        raise InvalidInputError(
            f"a truncated value does not fit 64 bits: correct it. column={function.source} width={function.width}"
        )
    return integers(made)


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    return numbers(column).astype(np.int64)


def _places(column: pa.Array) -> pa.Array:
    """Return each row's place among the rows that are not null; null for null."""
    there = column.is_valid()
    counts = pc.cumulative_sum(there.cast(pa.int64()))
    return pc.if_else(there, pc.subtract(counts, integers(np.ones(1, np.int64))[0]), pa.nulls(1, pa.int64())[0])


def _hashes(column: pa.Array) -> npt.NDArray[np.uint32]:
    """Return Iceberg's hash of every value: Murmur3 of 8 bytes of a number, or of UTF-8."""
    if column.type != pa.string():
        whole = column.cast(pa.int32()) if column.type == pa.date32() else column
        return _murmur3(numbers(whole).astype("<i8").view(np.uint8).reshape(-1, 8))
    bounds = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    texts = np.frombuffer(column.buffers()[2] or b"", np.uint8)
    lengths = np.diff(bounds)
    hashes = np.zeros(len(column), np.uint32)
    for length in np.unique(lengths):
        rows = lengths == length
        hashes[rows] = _murmur3(texts[bounds[:-1][rows, None] + np.arange(length)])
    return hashes


def _murmur3(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the 32-bit Murmur3 hash (x86, seed 0) of every row of bytes, all of one length."""
    rows, length = data.shape
    padded = np.zeros((rows, -(-length // 4) * 4), np.uint8)
    padded[:, :length] = data
    blocks = padded.view("<u4")
    value = np.zeros(rows, np.uint32)
    for place in range(blocks.shape[1]):
        value ^= _rotated(blocks[:, place] * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        if 4 * place + 4 <= length:
            value = _rotated(value, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    value ^= np.uint32(length)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        value = (value ^ value >> np.uint32(shift)) * np.uint32(factor)
    return value ^ value >> np.uint32(16)


def _rotated(value: npt.NDArray[np.uint32], by: int) -> npt.NDArray[np.uint32]:
    return value << np.uint32(by) | value >> np.uint32(32 - by)

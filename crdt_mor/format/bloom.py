"""Bloom filters of a Parquet file: they find the row groups with a key if keys are in no order.

    footer ── per row group: offset and length ──► header, then blocks of 256 bits
    key ── XXH64 ──► upper half: the block    lower half: eight bits, all set if the block contains the key

In a clustered base file every row group spans all keys, so statistics skip none. pyarrow writes the filters,
`row_groups.joining` moves them side by side, and this module reads them at once. polars ignores them.

Source: Parquet's `BloomFilter.md` (the split block filter), and the specification of XXH64.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.errors import FormatError
from crdt_mor.format.row_groups import Struct, decode_front
from crdt_mor.ground.parquet import ParquetSource

FALSE_POSITIVES: Final = 0.01
"""The share of absent keys that a filter does not exclude. Costs two bytes per row."""


@cache
def are_written() -> bool:
    """Return True if this release of pyarrow writes filters. Called only when needed, because it imports pandas."""
    sink = pa.BufferOutputStream()
    try:
        pq.write_table(pa.table({"key": ["a"]}), sink, bloom_filter_options={"key": {"ndv": 1, "fpp": 0.5}})
    except TypeError:  # an unknown option
        return False
    return True


_SALT: Final = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
_BLOCK_BYTES: Final = 32
_HEADER_BYTES_MAX: Final = 64
"""More than the bytes of any header."""

_MASK: Final = (1 << 64) - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5


def options(column: str, rows: int) -> dict[str, Any]:
    """Return pyarrow's writer options for a filter of a column of distinct values."""
    return {"bloom_filter_options": {column: {"ndv": rows, "fpp": FALSE_POSITIVES}}} if rows and are_written() else {}


def may_have(source: ParquetSource, column: str, values: Sequence[str]) -> list[tuple[int, int]] | None:
    """Return the first row and number of rows of each row group that may contain any of these values.

    Returns None without filters, or if they are not side by side: these would take a request per row group.
    """
    try:
        places, size = _places(source.metadata(), column), source.size()
    except (OSError, pa.ArrowException):
        return None  # the scan raises the error
    if not places or any(offset + length != following for (_, offset, length), (_, following, _) in pairwise(places)):
        return None
    start, (_, last, length) = places[0][1], places[-1]
    if start < 0 or last + length > size or any(length < 0 for _, _, length in places):
        return None  # filter offsets outside of the file
    filters = memoryview(source.read(start, last + length - start))
    hashes = np.array([xxh64(value.encode()) for value in values], np.uint64)
    found, first = list[tuple[int, int]](), 0
    try:
        for rows, offset, length in places:
            if _any_in(_blocks(filters[offset - start : offset - start + length]), hashes):
                found.append((first, rows))
            first += rows
    except (FormatError, ValueError, LookupError, TypeError):
        return None  # an unknown filter; reading all rows is right too
    return found


def denied(source: ParquetSource, footer: pq.FileMetaData, group: int, column: str, keys: pa.Array) -> int:
    """Count the keys of a row group that its filter wrongly excludes; 0 without a filter.

    Raises `FormatError` if the filter is damaged.
    """
    places = _places(footer, column)
    if not places or not len(keys):
        return 0
    _, offset, length = places[group]
    try:
        blocks = _blocks(memoryview(source.read(offset, length)))
    except (ValueError, LookupError, TypeError) as error:
        raise FormatError(f"damaged Bloom filter: {error}. path={source.name} row_group={group}") from error
    return len(keys) - int(np.count_nonzero(_each_in(blocks, _hashes(keys))))


def _places(footer: pq.FileMetaData, column: str) -> list[tuple[int, int, int]]:
    """Return each row group's number of rows, and its filter's offset and length; empty if any is missing."""
    number = next((i for i in range(footer.num_columns) if footer.schema.column(i).path == column), None)
    groups = [] if number is None else [footer.row_group(group) for group in range(footer.num_row_groups)]
    found = []
    for group in groups:
        chunk = group.column(number)
        offset, length = (getattr(chunk, f"bloom_filter_{what}", None) for what in ("offset", "length"))
        if not offset or not length:
            return []
        found.append((group.num_rows, offset, length))
    return found


def _blocks(data: memoryview) -> npt.NDArray[np.uint32]:
    """Return a filter's blocks, a row of eight words each; raise `FormatError` for other kinds."""
    header, size = decode_front(bytes(data[:_HEADER_BYTES_MAX]))
    bits = data[size:]
    if header[1].value != len(bits) or len(bits) % _BLOCK_BYTES or not len(bits) or not _is_split_block(header):
        raise FormatError(f"not a split block filter of XXH64 hashes. bytes={len(bits)}")
    return np.frombuffer(bits, "<u4").reshape(-1, 8)


def _is_split_block(header: Struct) -> bool:
    return all(list(header[field].value) == [1] for field in (2, 3, 4))


def _any_in(blocks: npt.NDArray[np.uint32], hashes: npt.NDArray[np.uint64]) -> bool:
    return bool(_each_in(blocks, hashes).any())


def _each_in(blocks: npt.NDArray[np.uint32], hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    at = ((hashes >> np.uint64(32)) * np.uint64(len(blocks))) >> np.uint64(32)
    low = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    bits = np.uint32(1) << ((low[:, None] * _SALT) >> np.uint32(27))
    found: npt.NDArray[np.bool_] = ((blocks[at.astype(np.int64)] & bits) == bits).all(axis=1)
    return found


def _hashes(keys: pa.Array) -> npt.NDArray[np.uint64]:
    """Return `xxh64` of each text (no nulls); texts of equal length are hashed together."""
    texts = keys.cast(pa.large_string())
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    lengths = np.diff(ends)
    result = np.zeros(len(texts), np.uint64)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        result[rows] = _hashes_of_length(content[ends[rows][:, None] + np.arange(length)], int(length))
    return result


def _hashes_of_length(texts: npt.NDArray[np.uint8], length: int) -> npt.NDArray[np.uint64]:
    """Return `xxh64` of texts of equal length, a number each, in 64-bit arithmetic that wraps around."""
    at, count = 0, len(texts)

    def words(size: int) -> npt.NDArray[np.uint64]:
        piece = np.ascontiguousarray(texts[:, at : at + size])
        return piece.view(f"<u{size}").reshape(count).astype(np.uint64)

    value = np.full(count, _P5, np.uint64)
    if length >= 32:
        seeds = ((_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK)
        lanes = [np.full(count, seed, np.uint64) for seed in seeds]
        while at + 32 <= length:
            for i in range(4):
                lanes[i] = _rounds(lanes[i], words(8))
                at += 8
        value = _turned(lanes[0], 1) + _turned(lanes[1], 7) + _turned(lanes[2], 12) + _turned(lanes[3], 18)
        for lane in lanes:
            value = (value ^ _rounds(np.zeros(count, np.uint64), lane)) * np.uint64(_P1) + np.uint64(_P4)
    value = value + np.uint64(length)
    while at + 8 <= length:
        value ^= _rounds(np.zeros(count, np.uint64), words(8))
        value = _turned(value, 27) * np.uint64(_P1) + np.uint64(_P4)
        at += 8
    if at + 4 <= length:
        value = _turned(value ^ (words(4) * np.uint64(_P1)), 23) * np.uint64(_P2) + np.uint64(_P3)
        at += 4
    while at < length:
        value = _turned(value ^ (words(1) * np.uint64(_P5)), 11) * np.uint64(_P1)
        at += 1
    value = (value ^ (value >> np.uint64(33))) * np.uint64(_P2)
    value = (value ^ (value >> np.uint64(29))) * np.uint64(_P3)
    return value ^ (value >> np.uint64(32))


def _rounds(values: npt.NDArray[np.uint64], lanes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    return _turned(values + lanes * np.uint64(_P2), 31) * np.uint64(_P1)


def _turned(values: npt.NDArray[np.uint64], by: int) -> npt.NDArray[np.uint64]:
    return (values << np.uint64(by)) | (values >> np.uint64(64 - by))


def xxh64(data: bytes) -> int:
    at, length = 0, len(data)
    if length >= 32:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        while at + 32 <= length:
            for i in range(4):
                lanes[i] = _round(lanes[i], int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little"))
            at += 32
        value = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            value = ((value ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        value = _P5
    value = (value + length) & _MASK
    while at + 8 <= length:
        value ^= _round(0, int.from_bytes(data[at : at + 8], "little"))
        value = (_rotated(value, 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= length:
        value ^= int.from_bytes(data[at : at + 4], "little") * _P1 & _MASK
        value = (_rotated(value, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        value = _rotated(value ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    value = (value ^ (value >> 33)) * _P2 & _MASK
    value = (value ^ (value >> 29)) * _P3 & _MASK
    return value ^ (value >> 32)


def _round(value: int, lane: int) -> int:
    return _rotated((value + lane * _P2) & _MASK, 31) * _P1 & _MASK


def _rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _MASK

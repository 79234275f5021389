"""Bloom filters of a Parquet file: which row groups may have a key, where keys are in no order.

    footer ── per row group: offset and length ──► header, then blocks of 256 bits
    key ── XXH64 ──► upper half: which block    lower half: eight bits of it, which are all set if the key is there

A clustered base file has its keys everywhere, so that their statistics skip no row group. Its filters are written by
pyarrow, in releases that can, moved side by side by `row_groups.joining`, and read here in one piece; polars does not
look at them, and Spark, DuckDB and others do.

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
"""Share of the keys that a row group lacks for which its filter says that it may have them; two bytes a row."""


@cache
def are_written() -> bool:
    """Whether this release of pyarrow writes filters. Without them, looking a key up reads the keys of all row groups.

    It is asked by writing one, which imports pandas where that is installed: so not before it matters.
    """
    sink = pa.BufferOutputStream()
    try:
        pq.write_table(pa.table({"key": ["a"]}), sink, bloom_filter_options={"key": {"ndv": 1, "fpp": 0.5}})
    except TypeError:  # an option that it does not know
        return False
    return True


_SALT: Final = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
_BLOCK_BYTES: Final = 32
_HEADER_BYTES_MAX: Final = 64
"""More than any header has."""

_MASK: Final = (1 << 64) - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5


def options(column: str, rows: int) -> dict[str, Any]:
    """What pyarrow's writer is told to write a filter of a column of distinct values."""
    return {"bloom_filter_options": {column: {"ndv": rows, "fpp": FALSE_POSITIVES}}} if rows and are_written() else {}


def may_have(source: ParquetSource, column: str, values: Sequence[str]) -> list[tuple[int, int]] | None:
    """The first row and the number of rows of each row group that may have one of these values in a column of texts.

    None where the file has no filters of the column, not of all its row groups, or not side by side, as other writers
    leave them: to fetch these would take a read for each row group.
    """
    try:
        with source.open() as file:
            footer = file.metadata
    except (OSError, pa.ArrowException):
        return None  # the scan will say what is wrong with it
    places = _places(footer, column)
    if not places or any(offset + length != following for (_, offset, length), (_, following, _) in pairwise(places)):
        return None
    start, (_, last, length) = places[0][1], places[-1]
    filters = memoryview(source.read(start, last + length - start))
    hashes = np.array([xxh64(value.encode()) for value in values], np.uint64)
    found, first = list[tuple[int, int]](), 0
    try:
        for rows, offset, length in places:
            if _any_in(_blocks(filters[offset - start : offset - start + length]), hashes):
                found.append((first, rows))
            first += rows
    except (FormatError, ValueError, LookupError, TypeError):
        return None  # no filter that is known; reading all rows is right as well
    return found


def _places(footer: pq.FileMetaData, column: str) -> list[tuple[int, int, int]]:
    """For each row group its number of rows, and offset and length of the filter; empty where one has none."""
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
    """The blocks of one filter, a row of eight words each; raises `FormatError` for another kind of filter."""
    header, size = decode_front(bytes(data[:_HEADER_BYTES_MAX]))
    bits = data[size:]
    if header[1].value != len(bits) or len(bits) % _BLOCK_BYTES or not len(bits) or not _is_split_block(header):
        raise FormatError(f"not a split block filter of XXH64 hashes. bytes={len(bits)}")
    return np.frombuffer(bits, "<u4").reshape(-1, 8)


def _is_split_block(header: Struct) -> bool:
    """Whether algorithm, hash and compression are each the first of their unions, the only ones there are."""
    return all(list(header[field].value) == [1] for field in (2, 3, 4))


def _any_in(blocks: npt.NDArray[np.uint32], hashes: npt.NDArray[np.uint64]) -> bool:
    """Whether one of the hashed values may be there."""
    at = ((hashes >> np.uint64(32)) * np.uint64(len(blocks))) >> np.uint64(32)
    low = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    bits = np.uint32(1) << ((low[:, None] * _SALT) >> np.uint32(27))
    return bool(((blocks[at.astype(np.int64)] & bits) == bits).all(axis=1).any())


def xxh64(data: bytes) -> int:
    """The 64-bit xxHash of some bytes, with seed 0."""
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

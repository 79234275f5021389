"""Java's `List<String>.hashCode` of record keys, vectorized.

A string's hash is the sum of `unit[i] * 31^(n-1-i)` over its UTF-16 units, modulo 2^32. A list's hash starts at 1 and
folds `31 * h + hash`. 31 has an inverse modulo 2^32, so two prefix sums of `unit[j] * 31^-j` give the hash of any part
of a buffer. Keys of equal length use Horner's rule on the columns of a matrix.

Hudi finds the values in a key by searching for `:` and `,`, and misparses values with these characters. `hudi_values`
reproduces that, because a key in another bucket would live twice.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crdt_mor.ground.late_imports import pc

Hashes = npt.NDArray[np.uint32]
_Offsets = npt.NDArray[np.int64]
_Units = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]

_SLICE_ROWS: Final = 16_384  # fits the processor's cache
_COMMA, _COLON = ord(","), ord(":")
_PLACEHOLDERS: Final = ("__null__", "__empty__")
_INVERSE_OF_31: Final = pow(31, -1, 2**32)


def key_hashes(
    keys: pa.StringArray, fields: tuple[str, ...], *, composite: bool, hashed: tuple[str, ...] = ()
) -> Hashes:
    """Return the list hash of each record key's values. hashed: the hashed fields; empty: all."""
    assert keys.null_count == 0, "a record key is never null"
    result = np.empty(len(keys), np.uint32)
    for start in range(0, len(keys), _SLICE_ROWS):
        part = keys.slice(start, _SLICE_ROWS)
        result[start : start + len(part)] = _slice_hashes(part, fields, composite, hashed or fields)
    return result


def _slice_hashes(keys: pa.StringArray, fields: tuple[str, ...], composite: bool, hashed: tuple[str, ...]) -> Hashes:
    units, offsets = _utf16(keys)
    if composite and len(fields) > 1:
        result, odd = _composite_hashes(units, offsets, fields, hashed)
    else:
        result = np.uint32(31) + _string_hashes(units, offsets)
        odd = _odd_rows(keys, fields[0]) if (units == _COMMA).any() else np.empty(0, np.intp)
    for row in odd:
        result[row] = list_hash(hudi_values(keys[row].as_py(), hashed))
    return result


def _odd_rows(keys: pa.StringArray, field: str) -> npt.NDArray[np.intp]:
    """Return the rows whose single key Hudi would parse as composite."""
    named = pc.match_substring(keys, f"{field}:")
    return np.flatnonzero(pc.and_(named, pc.match_substring(keys, ",")).to_numpy(zero_copy_only=False))


# --- strings ------------------------------------------------------------------------------------------------------


def _utf16(keys: pa.StringArray) -> tuple[_Units, _Offsets]:
    """Return the concatenated UTF-16 units of all keys, and the keys' offsets."""
    _, offset_buffer, data = keys.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    raw = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.empty(0, np.uint8)
    offsets -= offsets[0]
    if raw.size == 0 or raw.max() < 0x80:
        return raw, offsets
    widths = ((raw & 0xC0) != 0x80).astype(np.int64) + (raw >= 0xF0)  # UTF-16 units per byte
    before = np.concatenate(([0], np.cumsum(widths)))
    return np.frombuffer(raw.tobytes().decode("utf-8").encode("utf-16-le"), np.uint16), before[offsets]


def _string_hashes(units: _Units, offsets: _Offsets) -> Hashes:
    lengths = np.diff(offsets)
    if lengths.size and (length := int(lengths[0])) * lengths.size == units.size and bool((lengths == length).all()):
        return _horner(units.reshape(lengths.size, length))
    return _stretch_hashes(units, offsets[:-1], offsets[1:])


def _horner(rows: _Units) -> Hashes:
    result = np.zeros(rows.shape[0], np.uint32)
    for column in rows.T.astype(np.uint32, order="C"):
        result *= np.uint32(31)
        result += column
    return result


def _stretch_hashes(units: _Units, starts: _Offsets, ends: _Offsets) -> Hashes:
    return _hashes_from(_prefix_sums(units), starts, ends)


def _prefix_sums(units: _Units) -> Hashes:
    sums = np.zeros(units.size + 1, np.uint32)
    np.cumsum(units * _powers(_INVERSE_OF_31, units.size), dtype=np.uint32, out=sums[1:])
    return sums


def _hashes_from(sums: Hashes, starts: _Offsets, ends: _Offsets) -> Hashes:
    # An empty part at 0 needs 31^-1. Its sum is 0, so any power works.
    powers = _powers(31, sums.size)
    hashes: Hashes = (sums[ends] - sums[starts]) * powers[np.maximum(ends - 1, 0)]
    return hashes


def _powers(base: int, count: int) -> Hashes:
    return _power_table(base, 1 << max(16, count.bit_length()))[:count]


@lru_cache(maxsize=8)
def _power_table(base: int, size: int) -> Hashes:
    table = np.full(size, base, np.uint32)
    table[0] = 1
    np.cumprod(table, dtype=np.uint32, out=table)
    table.flags.writeable = False
    return table


# --- composite keys -----------------------------------------------------------------------------------------------


def _composite_hashes(
    units: _Units, offsets: _Offsets, fields: tuple[str, ...], hashed: tuple[str, ...]
) -> tuple[Hashes, npt.NDArray[np.intp]]:
    """Return the list hashes of `f1:v1,f2:v2` texts, in the text's order, and the rows with `:` or `,` in values."""
    commas, colons = np.flatnonzero(units == _COMMA), np.flatnonzero(units == _COLON)
    first_comma = np.searchsorted(commas, offsets)
    first_colon = np.searchsorted(colons, offsets)
    plain = (np.diff(first_comma) == len(fields) - 1) & (np.diff(first_colon) == len(fields))
    sums = _prefix_sums(units)
    rows = np.flatnonzero(plain)
    result = np.ones(plain.size, np.uint32)
    folded = np.ones(rows.size, np.uint32)
    begins, good = offsets[rows], np.ones(rows.size, bool)
    for index, name in enumerate(fields):
        last = index == len(fields) - 1
        ends = offsets[rows + 1] if last else commas[first_comma[rows] + index]
        colon = colons[first_colon[rows] + index]
        good &= (colon == begins + len(name)) & (colon < ends)
        good &= _hashes_from(sums, begins, np.maximum(colon, begins)) == np.uint32(string_hash(name))
        if name in hashed:
            folded = folded * np.uint32(31) + _value_hashes(units, sums, np.minimum(colon + 1, ends), ends)
        begins = ends + 1
    result[rows] = folded
    plain[rows[~good]] = False
    return result, np.flatnonzero(~plain)


def _value_hashes(units: _Units, sums: Hashes, starts: _Offsets, ends: _Offsets) -> Hashes:
    """Return the hashes of values. Placeholders of null and of the empty text hash to 0."""
    hashes = _hashes_from(sums, starts, ends)
    for placeholder in _PLACEHOLDERS:
        maybe = np.flatnonzero((hashes == np.uint32(string_hash(placeholder))) & (ends - starts == len(placeholder)))
        if maybe.size:
            text = units[starts[maybe][:, None] + np.arange(len(placeholder))]
            equal = (text == np.frombuffer(placeholder.encode(), np.uint8)).all(axis=1)
            hashes[maybe[equal]] = 0
    return hashes


# --- one at a time ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 16)  # parts of composite keys repeat
def string_hash(text: str) -> int:
    result = 0
    for unit in np.frombuffer(text.encode("utf-16-le", "surrogatepass"), np.uint16).tolist():
        result = (31 * result + unit) & 0xFFFFFFFF
    return result


def list_hash(values: list[str | None]) -> int:
    result = 1
    for value in values:
        result = (31 * result + (0 if value is None else string_hash(value))) & 0xFFFFFFFF
    return result


def hudi_values(key: str, fields: tuple[str, ...]) -> list[str | None]:
    """Return the values that Hudi finds in a key, or the key itself if its search fails."""
    if "," not in key or ":" not in key:
        return [key]
    values: list[str | None] = []
    at = 0
    while at < len(key):
        colon = key.find(":", at)
        if colon < 0:
            return [key]
        end = _value_end(key, colon)
        if key[at:colon] in fields:
            value = key[colon + 1 : end]
            values.append(None if value == "__null__" else "" if value == "__empty__" else value)
        at = end + 1
    return values or [key]


def _value_end(key: str, colon: int) -> int:
    """Return a value's end: the last comma before the next colon that follows a comma."""
    after = key.find(":", colon + 1)
    while after >= 0:
        comma = key.rfind(",", colon, after)
        if comma >= 0:
            return comma
        after = key.find(":", after + 1)
    return len(key)

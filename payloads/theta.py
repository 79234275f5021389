"""Theta sketches with all their hashes, many at once: such a sketch is a sorted set.

no value     header                         words of 64 bits, in the compact, ordered form of Apache
one          header, hash                   DataSketches, serial version 3; the first byte is the number
several      header, count, hash, hash, …   of words before the hashes, and 3 in an estimating sketch
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa

from crdt_mor.payloads.flat import flat, last_of

HEADERS = np.array([0x93CC1E0000030301, 0x93CC1A0000030301, 0x93CC1A0000030302], "<u8")
EMPTY = HEADERS[:1].tobytes()


def hashes(states: pl.Series) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the number of hashes per sketch, a mask of estimating sketches, and all hashes concatenated."""
    offsets, data = states.to_arrow().buffers()[1:]
    ends = np.frombuffer(offsets, np.int64, len(states) + 1) // 8
    words, starts = np.frombuffer(data or b"", "<u8"), ends[:-1]
    before = (words[starts] & 0xFF).astype(np.int64)
    is_hash = np.ones(len(words), dtype=bool)
    for i in range(3):
        is_hash[starts[before > i] + i] = False
    return np.diff(ends) - before, before > 2, words[is_hash]


def sketches(row: np.ndarray, hash_values: np.ndarray, count: int) -> pl.Series:
    """Build `count` sketches from hashes sorted by `row`, the position of their sketch, distinct in each."""
    sizes = np.bincount(row, minlength=count)
    several = sizes > 1
    before = 1 + several
    ends = np.concatenate(([0], np.cumsum(before + sizes)))
    words = np.empty(ends[-1], "<u8")
    words[ends[:-1]] = HEADERS[np.minimum(sizes, 2)]
    words[ends[:-1][several] + 1] = sizes[several]
    words[np.arange(len(hash_values)) + np.cumsum(before)[row]] = hash_values
    buffers = [None, pa.py_buffer(8 * ends), pa.py_buffer(words)]
    return pl.Series(pl.from_arrow(pa.Array.from_buffers(pa.large_binary(), count, buffers)))


def unions(lists: pl.Series, most: int) -> tuple[pl.Series, np.ndarray]:
    """Return the union of the sketches in each list, and the positions of unions with too many hashes or an estimate.

    The unions at these positions are wrong: the caller must estimate them.
    """
    states = flat(lists)
    sizes, estimates, hash_values = hashes(states["item"])
    key = states["row"].to_numpy()
    lines = pl.DataFrame({"row": np.repeat(key, sizes), "hash": hash_values}).sort("row", "hash", maintain_order=True)
    lines = lines.filter(last_of("row", "hash"))
    row = lines["row"].to_numpy()
    large = np.bincount(row, minlength=len(lists)) > most
    large[key[estimates]] = True
    return sketches(row, lines["hash"].to_numpy(), len(lists)), np.flatnonzero(large)

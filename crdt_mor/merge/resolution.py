"""The result of merging a file slice: one bit per base row and log row that is visible.

It depends only on files that never change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

Mask = npt.NDArray[np.bool_]


def only(places: npt.ArrayLike, count: int) -> Mask:
    mask: Mask = np.zeros(count, dtype=bool)
    mask[np.asarray(places)] = True
    return mask


def all_but(places: npt.ArrayLike, count: int) -> Mask:
    mask: Mask = np.ones(count, dtype=bool)
    mask[np.asarray(places)] = False
    return mask


@dataclass(frozen=True, slots=True)
class Bits:
    """One bit per row. packed: eight bits per byte, least significant first (Arrow columnar format)."""

    packed: bytes
    rows: int
    ones: int

    @classmethod
    def of(cls, mask: Mask) -> Bits:
        return cls(np.packbits(mask, bitorder="little").tobytes(), len(mask), int(mask.sum()))

    @property
    def series(self) -> pl.Series:
        bits = pa.Array.from_buffers(pa.bool_(), self.rows, [None, pa.py_buffer(self.packed)])
        return pl.Series(pl.from_arrow(bits))


@dataclass(frozen=True, slots=True)
class Resolution:
    """Of a slice with a base: the visible base rows, and the winning log rows in block order."""

    base: Bits
    logs: Bits

    @property
    def height(self) -> int:
        return self.base.ones + self.logs.ones

    @property
    def nbytes(self) -> int:
        return len(self.base.packed) + len(self.logs.packed)

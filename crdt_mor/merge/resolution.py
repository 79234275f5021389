"""What a merge has found out of a file slice: which rows of its base and of its logs a reader sees, one bit a row.

It is a function of files that never change. Of a slice that was merged once, another scan decodes the columns that it
asks for, and reads no keys: of two of ten columns that is a third of the processor time, or less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

Mask = npt.NDArray[np.bool_]


def only(places: npt.ArrayLike, count: int) -> Mask:
    """Of so many rows, whether each is at one of these places."""
    mask: Mask = np.zeros(count, dtype=bool)
    mask[np.asarray(places)] = True
    return mask


def all_but(places: npt.ArrayLike, count: int) -> Mask:
    """Of so many rows, whether each is at none of these places."""
    mask: Mask = np.ones(count, dtype=bool)
    mask[np.asarray(places)] = False
    return mask


@dataclass(frozen=True, slots=True)
class Bits:
    """One bit for each of some rows. packed: eight of them a byte, the first the least (Arrow's columnar format)."""

    packed: bytes
    rows: int
    ones: int

    @classmethod
    def of(cls, mask: Mask) -> Bits:
        """The bits of a mask."""
        return cls(np.packbits(mask, bitorder="little").tobytes(), len(mask), int(mask.sum()))

    @property
    def series(self) -> pl.Series:
        """The mask again, in the memory of the bits."""
        bits = pa.Array.from_buffers(pa.bool_(), self.rows, [None, pa.py_buffer(self.packed)])
        return pl.Series(pl.from_arrow(bits))


@dataclass(frozen=True, slots=True)
class Resolution:
    """Of a slice with a base: whether each row of it stands, and each row of the logs, block after block, has won."""

    base: Bits
    logs: Bits

    @property
    def height(self) -> int:
        """How many rows a reader sees."""
        return self.base.ones + self.logs.ones

    @property
    def nbytes(self) -> int:
        """How many bytes of memory it takes."""
        return len(self.base.packed) + len(self.logs.packed)

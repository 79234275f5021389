"""Text keys in order, several times as fast as polars sorts text: as machine words, eight bytes at a time.

What all keys begin with is skipped; the next eight bytes of a key make one number, greater where the text is. Only keys
that are equal so far are looked at again, eight bytes further on (radix sort, most significant digit first).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

Numbers = npt.NDArray[np.int64]

_FEW = 1024
"""Up to so many keys polars' own sort is as fast as the passes over words, and much faster for a handful."""

_WORD = 8
_VIEW = 16
"""Bytes of a view: four of length, then up to twelve of text, padded with zeros (Arrow's columnar format)."""


def text_order(keys: pl.Series) -> pl.Series:
    """The positions of `keys` (no nulls) in ascending order of their UTF-8 bytes, equal ones in any.

    For keys in any order; polars sorts those that are almost in order just as fast.
    """
    if len(keys) <= _FEW:
        return keys.arg_sort().cast(pl.Int64)
    data, lengths = keys.cast(pl.Binary), keys.str.len_bytes().to_numpy()
    at, end = _common(keys), int(lengths.max())
    words = _words(data, at)
    order: Numbers = pl.Series(words).arg_sort().to_numpy().astype(np.int64)  # on all cores
    places, run = _ties(np.arange(len(order)), words[order])
    while len(places) and at < end:
        at += _WORD
        words = _words(data.gather(order[places]), at)
        within = np.lexsort((words, run))
        order[places], words = order[places][within], words[within]
        places, run = _ties(places, words, run)
    # Equal but for zero bytes at the end.
    order[places] = order[places][np.lexsort((lengths[order[places]], run))]
    return pl.Series(order)


def _ties(places: Numbers, words: npt.NDArray[np.uint64], run: Numbers | None = None) -> tuple[Numbers, Numbers]:
    """Of sorted keys at some places those that are equal to a neighbour, and the number of the run that each is in."""
    new = words[1:] != words[:-1]
    if run is not None:
        new |= run[1:] != run[:-1]
    number = np.cumsum(np.append(False, new))
    tied = ~(np.append(True, new) & np.append(new, True))
    return places[tied], number[tied]


def _common(keys: pl.Series) -> int:
    """How many bytes all keys have in common at their beginning."""
    least, greatest = str(keys.min()).encode(), str(keys.max()).encode()
    return next((i for i, (a, b) in enumerate(zip(least, greatest, strict=False)) if a != b), len(least))


def _words(data: pl.Series, at: int) -> npt.NDArray[np.uint64]:
    """Of each value its eight bytes from `at` on as a number, zeros where it has none."""
    short = data.bin.slice(at, _WORD).to_arrow(compat_level=pl.CompatLevel.newest())
    views = np.frombuffer(short.buffers()[1], dtype=np.uint8).reshape(-1, _VIEW)[short.offset :][: len(short)]
    return np.ascontiguousarray(views[:, 4 : 4 + _WORD]).view(">u8").ravel().astype(np.uint64)

"""Text keys as machine words, which sort and match several times faster than text.

The common prefix of all keys is skipped. The next eight bytes of a key make a number with the same order as the text.

    text_order    any keys: equal words are compared again eight bytes further on (radix sort, most significant digit
                  first)
    words_of      keys that fit: the numbers stand for the keys, in order and one to one
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_FEW = 1024
"""Up to this many keys, polars' own sort is as fast."""

_MANY = 60_000
"""From this many keys on, sorting words is faster than a hash table of texts, which no longer fits the CPU cache."""

_WORD = 8
_VIEW = 16
"""Bytes of a view: four of length, then up to twelve of text, padded with zeros (Arrow columnar format)."""

_INLINE = 12
"""The longest text, in bytes, inside a view."""


def text_order(keys: pl.Series) -> pl.Series:
    """Return the positions of `keys` (no nulls) in ascending UTF-8 order; equal keys in any order."""
    if len(keys) < 2:
        return pl.Series(np.arange(len(keys)))
    if len(keys) <= _FEW:
        return keys.arg_sort().cast(pl.Int64)
    data, lengths = keys.cast(pl.Binary), keys.str.len_bytes().to_numpy()
    at, end = _common([keys.min(), keys.max()]), int(lengths.max())
    words = _words(data, at)
    order = _order(words)
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


@dataclass(frozen=True, slots=True)
class Keys:
    """Distinct keys (no nulls). ascending: their positions in ascending text order, or None if unknown."""

    texts: pl.Series
    ascending: Numbers | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def are_words(self) -> bool:
        return self.ascending is not None or words_of(self.texts) is not None


def words_of(keys: pl.Series) -> Words | None:
    """Convert keys (no nulls) to numbers that compare as the texts do.

    Returns None for no keys, for other types, for texts longer than eight bytes after the common prefix, and for texts
    that end with a zero byte, the padding of a word.
    """
    if keys.dtype != pl.String or not len(keys):
        return None
    words = _words_alike([keys], [keys.min(), keys.max()])
    return None if words is None else words[0]


def distinct_keys(keys: pl.Series) -> Keys:
    is_last, ascending = last_of_each(keys)
    return Keys(keys.filter(is_last), ascending)


def last_of_each(keys: pl.Series) -> tuple[pl.Series, Numbers | None]:
    """Return a mask of the last occurrence of each key, and their ascending order, as in `Keys`."""
    words = words_of(keys) if len(keys) > _MANY else None
    if words is None:
        return keys.is_last_distinct(), None
    order = _order(words)
    sorted_words = words[order]
    first_of_run = np.flatnonzero(np.append(True, sorted_words[1:] != sorted_words[:-1]))
    last = np.maximum.reduceat(order, first_of_run)
    is_last = np.zeros(len(keys), dtype=bool)
    is_last[last] = True
    return pl.Series(is_last), (np.cumsum(is_last) - 1)[last]


def places_of(wanted: Keys, keys: pl.Series) -> tuple[Numbers, Numbers] | None:
    """Locate `wanted` keys in ascending `keys`: the positions, ascending, and the wanted key at each position.

    Returns None if `keys` do not ascend or have no words.
    """
    texts, ascending = wanted.texts, wanted.ascending
    if not (keys.dtype == texts.dtype == pl.String and len(keys) and len(texts) and keys.is_sorted()):
        return None
    ends = [texts.min(), texts.max()] if ascending is None else [texts[int(ascending[i])] for i in (0, -1)]
    words = _words_alike([keys, texts], [keys[0], keys[-1], *ends])
    if words is None or not (words[0][1:] > words[0][:-1]).all():
        return None
    order = _order(words[1]) if ascending is None else ascending
    within = words[1][order]
    places = np.searchsorted(words[0], within)
    places[places == len(keys)] = 0
    hit = words[0][places] == within
    return places[hit], order[hit]


def _words_alike(columns: Sequence[pl.Series], ends: Sequence[object]) -> list[Words] | None:
    sizes = [texts.str.len_bytes().to_numpy() for texts in columns]
    shortest, longest = min(some.min() for some in sizes), max(some.max() for some in sizes)
    at = _common(ends)
    if longest - at > _WORD or (shortest != longest and any(texts.str.ends_with("\0").any() for texts in columns)):
        return None
    return [_words_in_views(t, at) if longest <= _INLINE else _words(t.cast(pl.Binary), at) for t in columns]


def _order(words: Words) -> Numbers:
    return pl.Series(words).arg_sort().to_numpy().astype(np.int64)


def _words_in_views(keys: pl.Series, at: int) -> Words:
    """Return `_words` of texts inside their views. Bytes before `at` may be included, as they are common to all."""
    return _words_from(keys, 4 + min(at, _INLINE - _WORD))


def _ties(places: Numbers, words: Words, run: Numbers | None = None) -> tuple[Numbers, Numbers]:
    """Return the sorted positions that equal a neighbour, and the run number of each."""
    new = words[1:] != words[:-1]
    if run is not None:
        new |= run[1:] != run[:-1]
    number = np.cumsum(np.append(False, new))
    tied = ~(np.append(True, new) & np.append(new, True))
    return places[tied], number[tied]


def _common(texts: Sequence[object]) -> int:
    encoded = [str(text).encode() for text in texts]
    least, greatest = min(encoded), max(encoded)
    return next((i for i, (a, b) in enumerate(zip(least, greatest, strict=False)) if a != b), len(least))


def _words(data: pl.Series, at: int) -> Words:
    return _words_from(data.bin.slice(at, _WORD), 4)


def _words_from(texts: pl.Series, at: int) -> Words:
    result: Words = np.empty(len(texts), np.uint64)
    row = 0
    for chunk in texts.to_frame().to_arrow(compat_level=pl.CompatLevel.newest()).column(0).chunks:
        if not len(chunk):
            continue
        views = np.ndarray(len(chunk), ">u8", chunk.buffers()[1], chunk.offset * _VIEW + at, _VIEW)
        result[row : row + len(chunk)] = views
        row += len(chunk)
    return result

"""Text keys as machine words, several times as fast to sort and to find as text is.

What all keys begin with is skipped; the next eight bytes of a key make one number, greater where the text is.

    text_order    any keys: those that are equal so far are looked at again, eight bytes further on (radix sort, most
                  significant digit first)
    words_of      keys that are no longer than that: the numbers stand for them, in order and one by one
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
"""Up to so many keys polars' own sort is as fast as the passes over words, and much faster for a handful."""

_MANY = 60_000
"""From so many keys on it is faster to sort words than to make a hash table of texts, which no longer fits a cache,
as the order that is then known finds the keys in a base as well."""

_WORD = 8
_VIEW = 16
"""Bytes of a view: four of length, then up to twelve of text, padded with zeros (Arrow's columnar format)."""

_INLINE = 12
"""The most bytes of a text that are in its view."""


def text_order(keys: pl.Series) -> pl.Series:
    """The positions of `keys` (no nulls) in ascending order of their UTF-8 bytes, equal ones in any.

    For keys in any order; polars sorts those that are almost in order just as fast.
    """
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
    """Distinct keys (no nulls). ascending: their positions in ascending order of text; None where it is not known."""

    texts: pl.Series
    ascending: Numbers | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def are_words(self) -> bool:
        """Whether numbers stand for these keys."""
        return self.ascending is not None or words_of(self.texts) is not None


def words_of(keys: pl.Series) -> Words | None:
    """Keys (no nulls) as numbers that are equal and less just where the texts are.

    None where there are none: no keys, or keys that are no texts, or longer than eight bytes behind what all of them
    begin with, or some end with a zero byte, with which a word is filled up.
    """
    if keys.dtype != pl.String or not len(keys):
        return None
    words = _words_alike([keys], [keys.min(), keys.max()])
    return None if words is None else words[0]


def distinct_keys(keys: pl.Series) -> Keys:
    """Each of the keys once."""
    is_last, ascending = last_of_each(keys)
    return Keys(keys.filter(is_last), ascending)


def last_of_each(keys: pl.Series) -> tuple[pl.Series, Numbers | None]:
    """Whether each key is the last one of its kind; and how those that are ascend, as in `Keys`."""
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
    """Where `wanted` keys are among `keys` that ascend: their places, which ascend, and which wanted key each is.

    None where `keys` do not ascend, or words do not stand for them.
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
    """Columns of texts as numbers, as `words_of` makes them of all texts together, of which `ends` are the ends."""
    sizes = [texts.str.len_bytes().to_numpy() for texts in columns]
    shortest, longest = min(some.min() for some in sizes), max(some.max() for some in sizes)
    at = _common(ends)
    if longest - at > _WORD or (shortest != longest and any(texts.str.ends_with("\0").any() for texts in columns)):
        return None
    return [_words_in_views(t, at) if longest <= _INLINE else _words(t.cast(pl.Binary), at) for t in columns]


def _order(words: Words) -> Numbers:
    """The positions of `words` in ascending order, equal ones in any; by all cores."""
    return pl.Series(words).arg_sort().to_numpy().astype(np.int64)


def _words_in_views(keys: pl.Series, at: int) -> Words:
    """As `_words`, of texts that are in their views: what is before `at` may be in the numbers, as all have it."""
    return _words_from(keys, 4 + min(at, _INLINE - _WORD))


def _ties(places: Numbers, words: Words, run: Numbers | None = None) -> tuple[Numbers, Numbers]:
    """Of sorted keys at some places those that are equal to a neighbour, and the number of the run that each is in."""
    new = words[1:] != words[:-1]
    if run is not None:
        new |= run[1:] != run[:-1]
    number = np.cumsum(np.append(False, new))
    tied = ~(np.append(True, new) & np.append(new, True))
    return places[tied], number[tied]


def _common(texts: Sequence[object]) -> int:
    """How many bytes all of some texts have in common at their beginning."""
    encoded = [str(text).encode() for text in texts]
    least, greatest = min(encoded), max(encoded)
    return next((i for i, (a, b) in enumerate(zip(least, greatest, strict=False)) if a != b), len(least))


def _words(data: pl.Series, at: int) -> Words:
    """Of each value its eight bytes from `at` on as a number, zeros where it has none."""
    return _words_from(data.bin.slice(at, _WORD), 4)


def _words_from(texts: pl.Series, at: int) -> Words:
    """Of each view of a text the eight bytes from `at` on as a number, the first byte counting most."""
    result: Words = np.empty(len(texts), np.uint64)
    row = 0
    for chunk in texts.to_frame().to_arrow(compat_level=pl.CompatLevel.newest()).column(0).chunks:
        if not len(chunk):
            continue
        views = np.ndarray(len(chunk), ">u8", chunk.buffers()[1], chunk.offset * _VIEW + at, _VIEW)
        result[row : row + len(chunk)] = views
        row += len(chunk)
    return result

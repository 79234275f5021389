"""The base file of a slice, read in one of two ways.

    BaseScan      read on demand: the scan drops keys and applies a predicate; each call is a scan
    DecodedBase   all rows in memory, with the positions of touched keys; for merges that must look at touched rows (an
                  ordering column, a partial update), so that the file is decoded once instead of twice

Both return the rows of given keys, and the rows without given keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import polars as pl

from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge.blocks import COMMIT_TIME, Columns, distinct
from crdt_mor.merge.contributions import LINE_KEY, scan, scan_ranges
from crdt_mor.merge.key_condition import KeyCondition
from crdt_mor.merge.key_words import Keys, Numbers, places_of
from crdt_mor.merge.resolution import Mask, all_but

IN_SCAN_KEYS_MAX = 200_000
"""The largest number of keys that a scan drops itself: it builds a hash table of the keys for every row group. With
more keys, finding positions in decoded rows is faster: for a million rows in eight row groups, 250 ms instead of 280
for 400,000 keys, 290 instead of 455 for 800,000.
"""

IN_SCAN_WORDS_MAX = 30_000
"""The same limit for keys that are machine words."""

SMALL_BYTES = 1 << 20
"""The largest base, in bytes, or set of bases in memory, with all columns decoded at once."""

BASE_TIME = "base_time"
_PLACE, _NUMBER, _HASH = "place", "number", "hash"


@dataclass(frozen=True, slots=True)
class BaseScan:
    """A base file that is read on demand."""

    source: ParquetSource
    columns: Columns
    key: str
    predicate: pl.Expr | None = None
    part: tuple[int, int] | None = None
    """The first row and the number of rows, if the slice owns only a part of the file."""
    ahead: Future[pl.DataFrame] | None = None
    ranges: tuple[tuple[int, int], ...] | None = None
    """See `Slice.base_ranges`."""
    only_keys: KeyCondition | None = None

    @property
    def _rows(self) -> pl.LazyFrame:
        if self.ranges is not None:
            return scan_ranges(self.source, self.columns, self.ranges)
        rows = scan(self.source, self.columns)
        return rows if self.part is None else rows.slice(*self.part)

    def prefetched(self, select: Sequence[str], pool: Executor) -> BaseScan:
        return replace(self, ahead=pool.submit(self.matching(select).collect))

    def matching(self, select: Sequence[str]) -> pl.LazyFrame:
        return self._matching.select(distinct(select, [self.key]))

    @property
    def _matching(self) -> pl.LazyFrame:
        return self._rows if self.predicate is None else self._rows.filter(self.predicate)

    def rows(self, keys: pl.Series, need: Sequence[pl.Expr]) -> pl.DataFrame:
        hit = self._rows.filter(pl.col(self.key).is_in(keys.implode()))
        return hit.select(pl.col(self.key).alias(LINE_KEY), *need).collect()

    def times_since(self, time: str) -> pl.DataFrame:
        rows = self._rows.filter(pl.col(COMMIT_TIME) >= time)
        return rows.select(pl.col(self.key).alias(LINE_KEY), pl.col(COMMIT_TIME).alias(BASE_TIME)).collect()

    def rows_without(self, drop: Keys, select: Sequence[str]) -> pl.DataFrame:
        if self.ahead is not None:
            return DecodedBase.of(self.ahead.result(), self.key, drop).untouched_rows(select)
        return rows_without_each([self], [drop], select)[0]

    def all_rows(self, select: Sequence[str]) -> pl.LazyFrame:
        assert self.is_whole
        return self._rows.select(select)

    def rows_in(self, mask: pl.Series, select: Sequence[str]) -> pl.LazyFrame:
        if self.predicate is None:
            return self.all_rows(select).filter(pl.lit(mask))
        rows = scan(self.source, self.columns, _PLACE).filter(self.predicate)
        return rows.filter(pl.lit(mask).gather(pl.col(_PLACE))).select(select)

    @property
    def is_small(self) -> bool:
        held = self.source.contents
        return (sum(map(len, held)) if held else self.source.size()) <= SMALL_BYTES

    @property
    def is_whole(self) -> bool:
        return self.part is None and self.ranges is None

    def scan_without(self, drop: Keys, select: Sequence[str]) -> tuple[pl.LazyFrame, bool]:
        whole = self.is_whole and self.predicate is None
        many = len(drop) > IN_SCAN_KEYS_MAX or (len(drop) > IN_SCAN_WORDS_MAX and drop.are_words())
        if many or not whole:  # polars cannot drop keys while it scans a part
            return self.matching(select), True
        rest = self._rows.filter(~pl.col(self.key).is_in(drop.texts.implode())) if len(drop) else self._rows
        return rest.select(select), False

    @property
    def height(self) -> int:
        return int(self._rows.select(pl.len()).collect().item())

    def decode(self, keys: Keys, need: Sequence[str]) -> DecodedBase:
        """Decode all rows with requested keys, whether or not they meet the predicate, and locate `keys`."""
        rows = self._rows
        if self.only_keys is not None and self.only_keys.values <= IN_SCAN_WORDS_MAX:
            rows = rows.filter(self.only_keys.condition)
        return DecodedBase.of(rows.select(distinct(need, [self.key])).collect(), self.key, keys)


@dataclass(frozen=True, slots=True)
class DecodedBase:
    """A base in memory, with the positions of touched keys.

    places: the positions of rows with a touched key, ascending.
    numbers: for each of these rows, the index of its key in `keys`.
    """

    frame: pl.DataFrame
    keys: pl.Series
    places: Numbers
    numbers: Numbers

    @classmethod
    def of(cls, frame: pl.DataFrame, key: str, touched: Keys) -> DecodedBase:
        found = places_of(touched, frame[key]) or _places_by_hash(touched.texts, frame[key])
        return cls(frame, touched.texts, *found)

    def rows(self, keys: pl.Series, need: Sequence[pl.Expr]) -> pl.DataFrame:
        hit = self._hit(keys)
        narrow = self.frame.select(need)[hit[_PLACE]] if need else pl.DataFrame()
        return narrow.with_columns(hit[LINE_KEY]).select(LINE_KEY, *narrow.columns)

    def mask_without(self, drop: Keys) -> Mask:
        drops_all = len(drop) == len(self.keys)
        places = self.places if drops_all else self._hit(drop.texts)[_PLACE].to_numpy()
        return all_but(places, self.frame.height)

    def untouched_rows(self, select: Sequence[str]) -> pl.DataFrame:
        return self.frame.select(select).filter(pl.Series(all_but(self.places, self.frame.height)))

    def _hit(self, keys: pl.Series) -> pl.DataFrame:
        placed = pl.DataFrame({LINE_KEY: self.keys.gather(pl.Series(self.numbers)), _PLACE: self.places})
        return placed.join(keys.alias(LINE_KEY).to_frame(), on=LINE_KEY, how="semi")


def _places_by_hash(touched: pl.Series, keys: pl.Series) -> tuple[Numbers, Numbers]:
    hashes = keys.hash().alias(_HASH).to_frame().lazy().with_row_index(_PLACE)
    numbers = touched.hash().alias(_HASH).to_frame().lazy().with_row_index(_NUMBER)
    joined = hashes.join(numbers, on=_HASH, how="inner").select(_PLACE, _NUMBER).collect().sort(_PLACE)
    same = keys.gather(joined[_PLACE]) == touched.gather(joined[_NUMBER])
    exact = joined.filter(same).cast(pl.Int64)
    return exact[_PLACE].to_numpy(), exact[_NUMBER].to_numpy()


def prefetch_each(bases: Sequence[BaseScan], select: Sequence[str]) -> list[BaseScan]:
    frames = pl.collect_all([base.matching(select) for base in bases])
    ahead = [Future[pl.DataFrame]() for _ in frames]
    for future, frame in zip(ahead, frames, strict=True):
        future.set_result(frame)
    return [replace(base, ahead=future) for base, future in zip(bases, ahead, strict=True)]


def rows_without_each(bases: Sequence[BaseScan], drops: Sequence[Keys], select: Sequence[str]) -> list[pl.DataFrame]:
    """Return `BaseScan.rows_without` for several bases, decoded in parallel by polars."""
    scans = [base.scan_without(drop, select) for base, drop in zip(bases, drops, strict=True)]
    statistics = any(base.predicate is not None for base in bases)
    frames = pl.collect_all([rows for rows, _ in scans], optimizations=pl.QueryOptFlags(predicate_pushdown=statistics))
    return [
        DecodedBase.of(frame, base.key, drop).untouched_rows(select) if all_there else frame
        for frame, (_, all_there), base, drop in zip(frames, scans, bases, drops, strict=True)
    ]


def rows_and_masks(
    bases: Sequence[BaseScan], drops: Sequence[Keys], select: Sequence[str]
) -> list[tuple[pl.DataFrame, Mask]]:
    """For several whole bases, return the rows without the dropped keys, and the mask of these rows.

    The keys are decoded first, then the other columns of the remaining rows.
    """
    key = bases[0].key
    if all(base.is_small for base in bases):
        frames = pl.collect_all([base.all_rows(distinct(select, [key])) for base in bases])
        found = [_mask_without(frame[key], drop) for frame, drop in zip(frames, drops, strict=True)]
        return [(frame.select(select).filter(pl.Series(s)), s) for frame, s in zip(frames, found, strict=True)]
    keys = pl.collect_all([base.all_rows([key]) for base in bases])
    stand = [_mask_without(frame[key], drop) for frame, drop in zip(keys, drops, strict=True)]
    masks = [pl.Series(some) for some in stand]
    others = [name for name in select if name != key]
    rests = rows_in_each(bases, masks, others) if others else [pl.DataFrame()] * len(bases)
    if key in select:
        shown = [frame[key].filter(mask) for frame, mask in zip(keys, masks, strict=True)]
        rests = [_with_keys(rest, some).select(select) for rest, some in zip(rests, shown, strict=True)]
    return list(zip(rests, stand, strict=True))


def _with_keys(rest: pl.DataFrame, keys: pl.Series) -> pl.DataFrame:
    """Put rows and keys side by side, in chunks of equal sizes. Otherwise polars copies each column into one chunk."""
    if not rest.width:
        return keys.to_frame()
    ends = accumulate(rest.to_series(0).chunk_lengths(), initial=0)
    parts = [keys.slice(start, end - start).rechunk() for start, end in pairwise(ends)]  # mostly of one chunk each
    return rest.hstack([pl.concat(parts, rechunk=False)])


def _mask_without(keys: pl.Series, drop: Keys) -> Mask:
    found = places_of(drop, keys)
    if found is None and len(drop) <= IN_SCAN_KEYS_MAX:
        return (~keys.is_in(drop.texts.implode())).to_numpy()
    places, _ = found or _places_by_hash(drop.texts, keys)
    return all_but(places, len(keys))


def rows_in_each(bases: Sequence[BaseScan], masks: Sequence[pl.Series], select: Sequence[str]) -> list[pl.DataFrame]:
    kept = [base.rows_in(mask, select) for base, mask in zip(bases, masks, strict=True)]
    statistics = any(base.predicate is not None for base in bases)
    return pl.collect_all(kept, optimizations=pl.QueryOptFlags(predicate_pushdown=statistics))


Base = BaseScan | DecodedBase

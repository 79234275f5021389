"""Merge or decode the logs of several slices together, then read their base files.

A slice with a `Slice.resolution` was merged before and its visible rows are known. The logs of all other slices are
merged in one call, because a merge has a fixed cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from crdt_mor.merge.base_rows import BaseScan, prefetch_each, rows_and_masks, rows_in_each, rows_without_each
from crdt_mor.merge.blocks import Columns, DataBlock, Slice, is_partial
from crdt_mor.merge.contributions import AT, KIND, LINE_KEY, ROW, decode, gather, have_own_times
from crdt_mor.merge.key_condition import KeyCondition
from crdt_mor.merge.key_words import Keys
from crdt_mor.merge.matching import are_large, keys_by_filter
from crdt_mor.merge.resolution import Bits, Mask, Resolution, only
from crdt_mor.merge.rule import LATEST, MergeRule
from crdt_mor.merge.visible import Merged, frames_of, is_late, needed_for

Cuttable = TypeVar("Cuttable", pl.DataFrame, pl.Series)


def can_be_at_once(files: Slice, rule: MergeRule) -> bool:
    """Return True if `resolve_at_once` accepts an unresolved slice: base and logs, last line wins."""
    plain = rule.kind == "latest" and files.base is not None and bool(files.blocks) and files.base_rows is None
    return plain and not (any(map(is_partial, files.blocks)) or have_own_times(files.blocks) or is_late(files))


class MergedLogs(NamedTuple):
    """A slice with merged logs.

    live: the winning rows of the logs. log_mask: their positions among all log rows; None if only some keys were
        requested. base_choice: the base rows to keep, or the keys to drop.
    """

    live: pl.DataFrame
    log_mask: Bits | None
    base: BaseScan
    base_choice: Bits | Keys


def resolve_at_once(
    slices: Sequence[Slice],
    columns: Columns,
    *,
    select: Sequence[str],
    predicate: pl.Expr | None = None,
    only_keys: KeyCondition | None = None,
    ahead: bool = False,
) -> list[MergedLogs]:
    """Merge the logs of all slices; the results are the input of `read_at_once`.

    Either every slice passes `can_be_at_once` and no key occurs in two of them, or all slices are resolved.
    ahead: base rows that meet the predicate may be loaded before the merge.
    """
    need = needed_for(select, predicate)
    bases = [_base_scan(files, columns, predicate) for files in slices]
    known = [files.resolution for files in slices if files.resolution is not None]
    if known:
        return _as_resolved(slices, known, bases, columns, need)
    blocks, key = [block for files in slices for block in files.blocks], columns.merge_key
    if ahead and predicate is not None and only_keys is None and are_large(blocks):
        bases = prefetch_each(bases, need)
        only_keys = keys_by_filter(blocks, bases, LATEST, columns)
    contributions = gather(blocks, LATEST, columns, key, need, sized=True, only_keys=only_keys)
    last = contributions.lines[LINE_KEY].is_last_distinct()  # too few for their order to pay off
    best = contributions.lines.filter(last)
    won = only(best.filter(best[KIND] == ROW)[AT].to_numpy(), contributions.rows.height)
    live = contributions.rows.select(need).filter(pl.Series(won))
    sizes = iter(zip(blocks, contributions.sizes, strict=True))
    sizes_of = [list(islice(sizes, len(files.blocks))) for files in slices]
    heights = [sum(size for block, size in some if isinstance(block, DataBlock)) for some in sizes_of]
    keys = _cut(best[LINE_KEY], last.to_numpy(), [sum(size for _, size in some) for some in sizes_of])
    bits = [Bits.of(some) if only_keys is None else None for some in np.split(won, np.cumsum(heights)[:-1])]
    return [MergedLogs(*one) for one in zip(_cut(live, won, heights), bits, bases, map(Keys, keys), strict=True)]


def _as_resolved(
    slices: Sequence[Slice],
    known: Sequence[Resolution],
    bases: Sequence[BaseScan],
    columns: Columns,
    need: Sequence[str],
) -> list[MergedLogs]:
    rows = decode([b for files in slices for b in files.blocks if isinstance(b, DataBlock)], columns, need)
    won = pl.concat([one.logs.series for one in known])
    live = rows.filter(won)
    lives = _cut(live, won.to_numpy(), [one.logs.rows for one in known])
    of_each = zip(lives, bases, known, strict=True)
    return [MergedLogs(live, one.logs, base, one.base) for live, base, one in of_each]


def read_at_once(
    resolved: Sequence[MergedLogs], *, select: Sequence[str], predicate: pl.Expr | None = None
) -> list[Merged]:
    """Read the bases together and return the same results as `merge` for each slice."""
    need, bases = needed_for(select, predicate), [one.base for one in resolved]
    masks: list[Mask | None] = [None] * len(resolved)
    bits = [one.base_choice for one in resolved if isinstance(one.base_choice, Bits)]
    drops = [one.base_choice for one in resolved if isinstance(one.base_choice, Keys)]
    if any(base.ahead is not None for base in bases):
        rests = [base.rows_without(drop, need) for base, drop in zip(bases, drops, strict=True)]
    elif bits:
        rests = rows_in_each(bases, [some.series for some in bits], need)
    elif predicate is None and all(base.is_whole for base in bases):
        rests, masks = map(list, zip(*rows_and_masks(bases, drops, need), strict=True))
    else:
        rests = rows_without_each(bases, drops, need)
    return [
        Merged(
            frames_of(one.live, rest, select, predicate),
            None if mask is None or one.log_mask is None else Resolution(Bits.of(mask), one.log_mask),
        )
        for one, rest, mask in zip(resolved, rests, masks, strict=True)
    ]


def _base_scan(files: Slice, columns: Columns, predicate: pl.Expr | None) -> BaseScan:
    assert files.base is not None, "else it cannot be at once"
    return BaseScan(files.base, columns, columns.merge_key, predicate, ranges=files.base_ranges)


def _cut(chosen: Cuttable, is_chosen: np.ndarray, counts: npt.ArrayLike) -> list[Cuttable]:
    """Select rows, and split them after each of the `counts`."""
    before = np.concatenate([[0], np.cumsum(is_chosen)])[np.cumsum(np.append(0, counts))].tolist()
    return [chosen.slice(first, end - first) for first, end in pairwise(before)]

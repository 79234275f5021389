"""Compaction by causal stability: which contributions become base rows, and which are carried.

    requested ──────────── S ──┊── p2 ──┊── p3 ──┊── barrier        S = p1, p2, …: the writes still pending
                  stable         gap 1    gap 2    gap 3

Everything below S has ended and nothing can be requested there any more; and in a gap nothing can land any more either.
  compact_all      overwrite-latest: the base folds everything, as each row keeps its requested time and a straggler
                   with an earlier one still loses to it; only deletes that won and are not stable are carried
  compact_stable   every other rule: the base folds what is stable; the rest is carried, folded per key and gap to at
                   most one delete and then one row or tombstone, since a pending write may still land between gaps
Deletes among the stable are spent, except ordered tombstones that won: stability says nothing about ordering values.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import polars as pl

from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.merge.base import Scanned
from crdt_mor.merge.blocks import (
    COMMIT_TIME,
    META_COLUMNS,
    RECORD_KEY,
    Columns,
    DataBlock,
    DeleteBlock,
    Slice,
    is_partial,
)
from crdt_mor.merge.contributions import KEY, KIND, ORDER, TIME, TOMBSTONE, gather, raw, scan
from crdt_mor.merge.fold import collapse
from crdt_mor.merge.hudi_patches import settle_patches
from crdt_mor.merge.rule import MergeRule
from crdt_mor.merge.snapshot import merge, promote, resolve

Carry = list[DataBlock | DeleteBlock]


def compact_all(
    files: Slice, rule: MergeRule, columns: Columns, stable_before: str | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The base rows, sorted by key; and the carried deletes, `_hoodie_record_key` and `time`.

    `stable_before` is S; None: nothing is pending, so that no delete needs to be carried.
    """
    assert rule.kind == "latest"
    rows, dead = _fold(files, rule, columns, timed=stable_before is not None)
    if stable_before is None:
        return rows, pl.DataFrame(schema={RECORD_KEY: pl.String, TIME: pl.String})
    carried = dead.filter(pl.col(TIME) >= stable_before).select(pl.col(KEY).alias(RECORD_KEY), TIME)
    return rows, carried.sort(RECORD_KEY)


def compact_stable(
    files: Slice, rule: MergeRule, columns: Columns, pending: Sequence[str]
) -> tuple[pl.DataFrame, Carry]:
    """The base rows, sorted by key; and the carried blocks in START_COMMIT_TIME order.

    A block's instant is where it belongs in that order: the delete block of a gap at the earliest contribution of the
    gap, data blocks at their latest row, with `own_times`.
    """
    stable, unstable = _split(files.blocks, columns, pending[0] if pending else None)
    if rule.kind != "columns" and any(is_partial(block) for block in unstable):
        raise UnsupportedFeatureError(
            "partial updates that Hudi wrote are compacted while nothing is pending: wait for the other writes, or let "
            f"Hudi compact the table. pending={list(pending)}"
        )
    below = Slice(files.base, files.base_latest, stable)
    if rule.kind == "columns":
        merged = pl.concat(merge(below, rule, columns.by_text(), select=columns.select_all()))
        rows = _sorted(rule.settle(merged, seen=not pending))
        graves: Carry = []
    else:
        rows, dead = _fold(below, rule, columns, timed=True)
        graves = _tombstones(dead.filter(pl.col(KIND) == TOMBSTONE), _latest(below))
    return rows, [*graves, *_carry(unstable, rule, columns, pending)]


def _fold(files: Slice, rule: MergeRule, columns: Columns, *, timed: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """All rows of a slice, sorted by key, and the lines of the deletes that won."""
    every = columns.select_all()
    files = promote(settle_patches(files, rule, columns), rule, columns, RECORD_KEY, every)
    base = None if files.base is None else Scanned(files.base, columns, RECORD_KEY)
    found = resolve(files, rule, columns, RECORD_KEY, every, base, timed=timed)
    rest = found.untouched(every)
    # The base first: it is sorted already, of which the sort takes advantage.
    rows = [*([rest] if rest is not None else []), found.live_rows().select(every)]
    return _sorted(pl.concat(rows)), found.dead


def _sorted(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.sort(RECORD_KEY)


def _split(
    blocks: Sequence[DataBlock | DeleteBlock], columns: Columns, stable_before: str | None
) -> tuple[tuple[DataBlock | DeleteBlock, ...], tuple[DataBlock | DeleteBlock, ...]]:
    """The contributions requested before S, and the others; blocks with times of their own are cut in two."""
    if stable_before is None:
        return tuple(blocks), ()
    below: Carry = []
    above: Carry = []
    for block in blocks:
        if isinstance(block, DeleteBlock) and TIME in block.keys.columns:
            early = block.keys[TIME] < stable_before
            below.append(DeleteBlock(block.instant, block.keys.filter(early)))
            above.append(DeleteBlock(block.instant, block.keys.filter(~early)))
        elif isinstance(block, DataBlock) and block.own_times:
            rows = _rows(block, columns)
            early = rows[COMMIT_TIME] < stable_before
            for side, part in ((below, rows.filter(early)), (above, rows.filter(~early))):
                if part.height:
                    side.append(DataBlock(str(part[COMMIT_TIME].max()), part, block.given, own_times=True))
        else:
            (below if block.instant < stable_before else above).append(block)
    return tuple(below), tuple(above)


def _rows(block: DataBlock, columns: Columns) -> pl.DataFrame:
    """Only the columns that the block has, so that what it gives stays the same."""
    if isinstance(block.rows, pl.DataFrame):
        return block.rows
    data = raw(block.rows)
    have = set(pl.read_parquet_schema(data))
    return scan([data], columns).select(c for c in columns.schema if c in have).collect()


def _latest(files: Slice) -> str:
    """A stable time that is not before any contribution of a stable slice."""
    return max([files.base_latest or "", *(block.instant for block in files.blocks)])


def _tombstones(dead: pl.DataFrame, instant: str) -> Carry:
    """Winning tombstones. Among stable contributions the tie is decided, so that one stable instant serves them all."""
    if not dead.height:
        return []
    keys = dead.select(pl.col(KEY).alias(RECORD_KEY), ORDER).sort(RECORD_KEY)
    return [DeleteBlock(instant, keys)]


def _carry(
    blocks: Sequence[DataBlock | DeleteBlock], rule: MergeRule, columns: Columns, pending: Sequence[str]
) -> Carry:
    if not blocks:
        return []
    found = gather(blocks, rule, columns, RECORD_KEY, rule.stored(columns.select_all()), timed=True)
    times = found.lines[TIME].unique().sort()
    gap_of = {time: bisect_right(pending, time) for time in times}
    gaps = np.array([gap_of[t] for t in found.lines[TIME]], dtype=np.int64)
    result: Carry = []
    for gap in sorted(set(gap_of.values())):
        lines = found.lines.filter(pl.Series(gaps == gap))
        folded = collapse(found, lines, rule, RECORD_KEY)
        times_here = lines[TIME]
        if folded.deletes.height:
            keys = folded.deletes.select(RECORD_KEY).sort(RECORD_KEY)
            result.append(DeleteBlock(str(times_here.min()), keys))
        if folded.tombstones.height:
            keys = folded.tombstones.select(RECORD_KEY, ORDER).sort(RECORD_KEY)
            result.append(DeleteBlock(str(times_here.max()), keys))
        for part in folded.rows:
            if part.rows.height:
                instant = str(part.rows[COMMIT_TIME].max())
                rows = rule.show(part.rows).sort(RECORD_KEY)
                given = part.given and tuple(c for c in rows.columns if c not in META_COLUMNS)
                result.append(DataBlock(instant, rows, given, own_times=True))
    return sorted(result, key=lambda block: block.instant)

"""Compaction by causal stability: contributions become base rows or are carried.

    requested ──────────── S ──┊── p2 ──┊── p3 ──┊── barrier        S = p1, p2, …: the writes still pending
                  stable         gap 1    gap 2    gap 3

Everything below S has ended, and no new write can be requested there. Nothing new can land in a gap either.
  compact_all      overwrite-latest: the base folds everything. Each row keeps its requested time, so a straggler with
                   an earlier time still loses to it. Only winning deletes that are not stable are carried
  compact_stable   every other rule: the base folds stable contributions. The rest is carried, folded per key and gap
                   to at most one delete and then one row or tombstone, as a pending write may still land between gaps
  compact_logs     a log compaction, under any rule: the base stays, and all log contributions are carried, folded as
                   far as no pending write can land between them
Stable deletes are dropped, except winning ordered tombstones: stability implies nothing about ordering values.
Stable rows that have expired at the barrier are dropped; under `ordering` a tombstone remains.
Base rows lack partition path and file name, which the writer of the file adds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.merge.base_rows import BaseScan, DecodedBase
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
from crdt_mor.merge.contributions import AT, KIND, LINE_KEY, ORDER, ROW, TIME, TOMBSTONE, gather, raw, scan_contents
from crdt_mor.merge.fold import collapse, winners
from crdt_mor.merge.hudi_patches import with_whole_rows
from crdt_mor.merge.key_words import Keys, text_order
from crdt_mor.merge.orders import merge_ordered
from crdt_mor.merge.parts import in_parts
from crdt_mor.merge.rule import LATEST, MergeRule
from crdt_mor.merge.visible import latest_in, merge, promote, resolve

PART_BASE_ROWS_MIN: Final = 98_304
"""The smallest number of base rows in a part: each row group of a compacted file (3/4 to 3/2 of 131,072 rows) is a
part.
"""

Carry = list[DataBlock | DeleteBlock]


@dataclass(frozen=True, slots=True)
class CompactedSlice:
    """The result of compacting a slice.

    parts: the base rows, sorted by key. Any thread may call a part, once, which merges it.
    carry: the carried blocks in START_COMMIT_TIME order; called after all parts are merged.
    """

    parts: Sequence[Callable[[], pl.DataFrame]]
    carry: Callable[[], Carry]


def compact_all(
    files: Slice, rule: MergeRule, columns: Columns, stable_before: str | None, expired: pl.Expr | None = None
) -> CompactedSlice:
    """Compact an overwrite-latest table. Only deletes are carried, in one block, each with its own time.

    expired: rows to drop, if stable.
    """
    assert rule.kind == "latest"
    dead: list[pl.DataFrame] = []
    if expired is not None and stable_before is not None:
        expired &= pl.col(COMMIT_TIME) < stable_before
    parts = _fold(files, rule, columns, dead, timed=stable_before is not None, expired=expired)

    def carry() -> Carry:
        assert len(dead) == len(parts), "the carry is taken after all parts are merged"
        if stable_before is None:
            return []
        lines = pl.concat(dead).filter(pl.col(TIME) >= stable_before)
        keys = lines.select(pl.col(LINE_KEY).alias(RECORD_KEY), TIME).sort(RECORD_KEY)
        return [DeleteBlock(str(keys[TIME].min()), keys)] if keys.height else []

    return CompactedSlice(parts, carry)


def compact_stable(
    files: Slice, rule: MergeRule, columns: Columns, pending: Sequence[str], expired: pl.Expr | None = None
) -> CompactedSlice:
    stable, unstable = _split(files.blocks, columns, pending[0] if pending else None)
    if rule.kind != "columns" and any(is_partial(block) for block in unstable):
        raise UnsupportedFeatureError(
            "Hudi's partial updates can be compacted only while no write is pending. Wait for the other writes, or "
            f"compact the table with Hudi. pending={list(pending)}"
        )
    below = Slice(files.base, files.base_latest, stable)
    dead: list[pl.DataFrame] = []
    parts: Sequence[Callable[[], pl.DataFrame]]
    if rule.has_orders:
        parts = [partial(_merge_ordered, below, rule, columns, dead)]
    elif rule.kind == "columns":
        parts = [partial(_merge_columns, below, rule, columns, seen=not pending)]
    else:
        parts = _fold(below, rule, columns, dead, timed=True, expired=expired)

    def carry() -> Carry:
        assert rule.kind == "columns" or len(dead) == len(parts), "the carry is taken after all parts are merged"
        return [*_tombstones(dead, _latest(below)), *_carry(unstable, rule, columns, pending)]

    return CompactedSlice(parts, carry)


def compact_logs(files: Slice, rule: MergeRule, columns: Columns, pending: Sequence[str]) -> Carry | None:
    """Return the carry of a log compaction, in START_COMMIT_TIME order.

    Each row, and under `latest` each delete, keeps its own requested time.

    Returns None if the logs cannot be folded without the base. This happens only with Hudi's blocks: partial updates,
    and under `ordering` logs older than commits in the base, whose deletes lie between base rows.
    """
    if rule.kind == "latest":
        return None if any(is_partial(block) for block in files.blocks) else _carry_latest(files, rule, columns)
    if rule.kind == "ordering" and (_is_older_than_base(files, columns) or any(map(is_partial, files.blocks))):
        return None
    return _carry(files.blocks, rule, columns, pending)


def _is_older_than_base(files: Slice, columns: Columns) -> bool:
    latest = _base_latest(files)
    times = gather(files.blocks, LATEST, columns, RECORD_KEY, [], timed=True).lines[TIME]
    oldest = times.min()
    return oldest is not None and (latest is None or str(oldest) < latest)


def _base_latest(files: Slice) -> str | None:
    return files.base_latest if files.base_latest is not None or files.base is None else latest_in(files.base)


def _carry_latest(files: Slice, rule: MergeRule, columns: Columns) -> Carry:
    """Return the last contribution of each key, with its own requested time. Later ones are compared with nothing else.

    Rows that may lose to the base, because their writes were pending when it was made, get a block per write. The
    block's instant makes crdt_mor's readers compare them. Hudi's Spark reader compares all rows of a block with the
    base, using the time of the last row.
    """
    contributions = gather(files.blocks, rule, columns, RECORD_KEY, columns.select_all(), timed=True)
    best = winners(contributions.lines, rule).lines
    deletes = best.filter(pl.col(KIND) != ROW).select(pl.col(LINE_KEY).alias(RECORD_KEY), TIME).sort(RECORD_KEY)
    carry: Carry = [DeleteBlock(str(time), keys) for (time,), keys in deletes.group_by(TIME, maintain_order=True)]
    rows = contributions.rows[best.filter(pl.col(KIND) == ROW)[AT]].sort(RECORD_KEY)
    is_late = rows[COMMIT_TIME] < (_base_latest(files) or "")
    late = rows.filter(is_late).partition_by(COMMIT_TIME, maintain_order=True)
    for part in (*late, rows.filter(~is_late)):
        if part.height:
            carry.append(DataBlock(str(part[COMMIT_TIME].max()), part, own_times=True))
    return sorted(carry, key=lambda block: block.instant)


def _merge_columns(files: Slice, rule: MergeRule, columns: Columns, *, seen: bool) -> pl.DataFrame:
    merged = pl.concat(merge(files, rule, columns.by_text(), select=columns.select_own()))
    return rule.settle(merged, seen=seen).sort(RECORD_KEY)


def _merge_ordered(files: Slice, rule: MergeRule, columns: Columns, dead: list[pl.DataFrame]) -> pl.DataFrame:
    every, columns = columns.select_own(), columns.by_text()
    files = promote(files, rule, columns, RECORD_KEY, every)
    base = None if files.base is None else BaseScan(files.base, columns, RECORD_KEY)
    ordered = merge_ordered(files, rule, columns, RECORD_KEY, every, base)
    dead.append(ordered.floors)
    frames = [ordered.rows, *([] if ordered.rest is None else [ordered.rest])]
    return pl.concat(frames).sort(RECORD_KEY)


def _fold(
    files: Slice,
    rule: MergeRule,
    columns: Columns,
    dead: list[pl.DataFrame],
    *,
    timed: bool,
    expired: pl.Expr | None,
) -> list[Callable[[], pl.DataFrame]]:
    every, columns = columns.select_own(), columns.by_text()

    def fold(part: Slice) -> pl.DataFrame:
        base = None if part.base is None else BaseScan(part.base, columns, RECORD_KEY, part=part.base_rows)
        resolved = resolve(part, rule, columns, RECORD_KEY, every, base, timed=timed)
        rows = resolved.rows.select(every).rechunk()
        live = rows[resolved.winners.gather(text_order(rows[RECORD_KEY].gather(resolved.winners)))]
        below = resolved.base.decode(resolved.drop, every) if isinstance(resolved.base, BaseScan) else resolved.base
        merged = live if below is None else _merged(below, resolved.drop, live)
        if expired is None:
            dead.append(resolved.deletes)
            return merged
        dead.append(_with_buried(resolved.deletes, merged.filter(expired), rule.ordering))
        return merged.filter(~expired)

    files = promote(with_whole_rows(files, rule, columns), rule, columns, RECORD_KEY, every)
    return [partial(fold, part) for part in in_parts(files, PART_BASE_ROWS_MIN, rule, columns, every)]


def _with_buried(deletes: pl.DataFrame, gone: pl.DataFrame, ordering: str | None) -> pl.DataFrame:
    """Add tombstones of dropped rows. A row without an ordering value beats no later one."""
    if ordering is None:
        return deletes
    lines = gone.filter(pl.col(ordering).is_not_null()).select(
        pl.col(RECORD_KEY).alias(LINE_KEY), pl.lit(TOMBSTONE, pl.Int8).alias(KIND), pl.col(ordering).alias(ORDER)
    )
    return pl.concat([deletes.select(lines.columns), lines])


def _merged(base: DecodedBase, drop: Keys, live: pl.DataFrame) -> pl.DataFrame:
    rows = pl.concat([base.frame.select(live.columns), live], rechunk=True)
    standing = np.flatnonzero(base.mask_without(drop))
    keys = base.frame[RECORD_KEY].gather(standing)
    if not keys.is_sorted():  # as files of ours are
        by_key = text_order(keys)
        standing, keys = standing[by_key.to_numpy()], keys.gather(by_key)
    between = keys.search_sorted(live[RECORD_KEY]).to_numpy().astype(np.int64)
    return rows[pl.Series(np.insert(standing, between, np.arange(base.frame.height, rows.height)))]


def _split(
    blocks: Sequence[DataBlock | DeleteBlock], columns: Columns, stable_before: str | None
) -> tuple[tuple[DataBlock | DeleteBlock, ...], tuple[DataBlock | DeleteBlock, ...]]:
    """Split contributions into those requested before S and the others. A block with own times is cut in two."""
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
                    instant = str(part[COMMIT_TIME].max())
                    side.append(DataBlock(instant, part, block.given, own_times=True, nulls=block.nulls))
        else:
            (below if block.instant < stable_before else above).append(block)
    return tuple(below), tuple(above)


def _rows(block: DataBlock, columns: Columns) -> pl.DataFrame:
    if isinstance(block.rows, pl.DataFrame):
        return block.rows
    data = raw(block.rows)
    have = set(pq.read_schema(pa.BufferReader(data)).names)
    return scan_contents([data], columns).select(c for c in columns.schema if c in have).collect()


def _latest(files: Slice) -> str:
    return max([files.base_latest or "", *(block.instant for block in files.blocks)])


def _tombstones(dead: Sequence[pl.DataFrame], instant: str) -> Carry:
    """Put winning tombstones into one block at `instant`. Ties among stable contributions are already decided."""
    lines = [part.filter(pl.col(KIND) == TOMBSTONE) for part in dead]
    if not any(part.height for part in lines):
        return []
    keys = pl.concat(lines).select(pl.col(LINE_KEY).alias(RECORD_KEY), ORDER).sort(RECORD_KEY)
    return [DeleteBlock(instant, keys)]


def _each_at_its_time(tombstones: pl.DataFrame) -> Carry:
    """Return tombstones in a block per requested time, which decides between equal ordering values."""
    keys = tombstones.select(RECORD_KEY, ORDER, TIME).sort(TIME, RECORD_KEY)
    return [
        DeleteBlock(str(time), some.select(RECORD_KEY, ORDER))
        for (time,), some in keys.group_by(TIME, maintain_order=True)
    ]


def _carry(
    blocks: Sequence[DataBlock | DeleteBlock], rule: MergeRule, columns: Columns, pending: Sequence[str]
) -> Carry:
    if not blocks:
        return []
    contributions = gather(blocks, rule, columns, RECORD_KEY, rule.stored(columns.select_all()), timed=True)
    times = contributions.lines[TIME].unique().sort()
    gap_of = {time: bisect_right(pending, time) for time in times}
    gaps = np.array([gap_of[t] for t in contributions.lines[TIME]], dtype=np.int64)
    result: Carry = []
    for gap in sorted(set(gap_of.values())):
        lines = contributions.lines.filter(pl.Series(gaps == gap))
        folded = collapse(contributions, lines, rule, RECORD_KEY)
        times_here = lines[TIME]
        if folded.deletes.height:
            keys = folded.deletes.select(RECORD_KEY).sort(RECORD_KEY)
            result.append(DeleteBlock(str(times_here.min()), keys))
        if folded.tombstones.height and rule.has_orders:
            result += _each_at_its_time(folded.tombstones)
        elif folded.tombstones.height:
            keys = folded.tombstones.select(RECORD_KEY, ORDER).sort(RECORD_KEY)
            result.append(DeleteBlock(str(times_here.max()), keys))
        for part in folded.rows:
            if part.rows.height:
                instant = str(part.rows[COMMIT_TIME].max())
                rows = rule.show(part.rows).sort(RECORD_KEY)
                given = part.given and tuple(c for c in rows.columns if c not in META_COLUMNS)
                result.append(DataBlock(instant, rows, given, own_times=True, nulls=part.nulls))
    return sorted(result, key=lambda block: block.instant)

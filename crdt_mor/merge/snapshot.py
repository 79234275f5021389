"""The merge: one file slice in, the rows that a reader should see out.

    1. the logs decide       every row and delete of the logs as a narrow line; one winner a key       (fold.py)
    2. the base objects      only where it can: a log older than what the base folded in, an ordering column
    3. the rest passes       base rows of keys that the logs replace are dropped inside the Parquet scan, all other
                             rows pass through it untouched: never hashed, sorted or copied

A predicate is pushed into step 3's scan, and applied to merged rows after merging. In a slice without a base the
largest block plays it (a first load goes to logs). Knows columns and keys; neither files' names nor the timeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.merge.base import BASE_TIME, NUMBER, PLACE, Base, Scanned
from crdt_mor.merge.blocks import COMMIT_TIME, Columns, DataBlock, DeleteBlock, Slice, distinct
from crdt_mor.merge.contributions import AT, KEY, KIND, ORDER, ROW, TIME, Contributions, gather, raw, row_groups
from crdt_mor.merge.contributions import scan as scan_parquet
from crdt_mor.merge.fold import cleared, winners
from crdt_mor.merge.hudi_patches import settle_patches
from crdt_mor.merge.patches import Patches, patches
from crdt_mor.merge.rule import MergeRule
from crdt_mor.merge.states import take
from crdt_mor.parquet import ParquetSource

PLAYS_BASE_BYTES_MIN = 1 << 20
"""A smaller block is cheaper merged than promoted."""

NO_SAY = ""
"""`base_latest` of a log block that is promoted to be the base. Those of its rows that other blocks touch are kept as a
log block, too, so no row of the base needs to be compared with a row of the logs."""

_BASE_ORDER, _CUT = "base_ordering", "cut"

_NEWER = (pl.col(BASE_TIME) > pl.col(TIME)) | ((pl.col(BASE_TIME) == pl.col(TIME)) & (pl.col(KIND) != ROW))
"""At one requested time the delete comes first, and a row meets only itself."""


def merge(
    files: Slice, rule: MergeRule, columns: Columns, *, select: Sequence[str], predicate: pl.Expr | None = None
) -> list[pl.DataFrame]:
    """The snapshot of one file slice: at least one frame, exactly the columns `select`, rows in any order."""
    return _merge(files, rule, columns, columns.merge_key, list(select), predicate)


def passed_through(
    base: ParquetSource, columns: Columns, *, select: Sequence[str], predicate: pl.Expr | None, limit: int | None
) -> pl.DataFrame:
    """A base file without logs: columns, predicate and limit go all the way down."""
    rows = scan_parquet(base, columns)
    rows = (rows if predicate is None else rows.filter(predicate)).select(select)
    return (rows if limit is None else rows.head(limit)).collect()


def count(files: Slice, rule: MergeRule, columns: Columns) -> int:
    """How many rows `merge` would give; reads key columns alone (and the ordering column where it must)."""
    if not files.blocks:
        base = files.base
        return int(scan_parquet(base, columns).select(pl.len()).collect().item()) if base is not None else 0
    return sum(frame.height for frame in merge(files, rule, columns, select=[columns.merge_key]))


def touched(blocks: Sequence[DataBlock | DeleteBlock], columns: Columns) -> pl.Series:
    """The distinct keys that `blocks` write or delete, as `columns.merge_key` has them."""
    key = columns.merge_key
    return gather(blocks, MergeRule(), columns, key, [key]).lines[KEY].unique().alias(key)


def written(
    blocks: Sequence[DataBlock | DeleteBlock], columns: Columns, select: Sequence[str]
) -> tuple[pl.DataFrame, pl.Series]:
    """The rows of `blocks` as they are, and the keys that they delete."""
    key = columns.merge_key
    found = gather(blocks, MergeRule(), columns, key, select)
    deleted = found.lines.filter(pl.col(KIND) != ROW)[KEY]
    return found.rows.select(select), deleted.alias(key)


def _merge(
    files: Slice, rule: MergeRule, columns: Columns, key: str, select: list[str], predicate: pl.Expr | None
) -> list[pl.DataFrame]:
    need = distinct(select, predicate.meta.root_names() if predicate is not None else [])
    files = settle_patches(files, rule, columns)
    files = promote(files, rule, columns, key, distinct(need, rule.stored(need)))
    base = None if files.base is None else Scanned(files.base, columns, key, predicate, files.base_rows)
    with ThreadPoolExecutor(1) if base is not None and predicate is not None else nullcontext() as pool:
        if base is not None and pool is not None:
            base = base.begun(need, pool)
        if rule.kind == "columns":
            merged, rest = _merge_columns(files, rule, columns, key, need, base)
        else:
            found = resolve(files, rule, columns, key, need, base)
            merged, rest = found.live_rows(), found.untouched(need)
    if predicate is not None:
        merged = merged.filter(predicate)
    frames = [merged.select(select), *([rest.select(select)] if rest is not None else [])]
    return [f for f in frames if f.height] or frames[:1]


def promote(files: Slice, rule: MergeRule, columns: Columns, key: str, need: Sequence[str]) -> Slice:
    """A slice without a base file gets one: its largest run of blocks that continue each other.

    After a first load that run comes first, and nothing more is needed. Where it does not, those of its rows that other
    blocks touch are kept as a log block, too, so that they are merged in their place in the order.
    """
    if files.base is not None or not files.blocks:
        return files
    parquet = [_parquet(block) for block in files.blocks]
    sizes = [len(data) for data in parquet]
    first, end = _largest(files.blocks, sizes)
    if sum(sizes[first:end]) < max(PLAYS_BASE_BYTES_MIN, sum(sizes) // 2):
        return files
    block = files.blocks[first]
    assert isinstance(block, DataBlock)
    assert all(sizes[first:end]), "a run is of Parquet alone"
    contents = [raw(data) for data in parquet[first:end]]
    base = ParquetSource.in_memory(*contents)
    before, after = files.blocks[:first], files.blocks[end:]
    if not before:
        return Slice(base, block.instant, after)
    others = gather((*before, *after), MergeRule(), columns, key, [key]).lines[KEY].unique()
    wanted = distinct(need, [key, COMMIT_TIME], [rule.ordering] if rule.ordering else [])
    hit = scan_parquet(base, columns).filter(pl.col(key).is_in(others.implode())).select(wanted)
    given = block.given or tuple(c for c in pq.read_schema(pa.BufferReader(contents[0])).names if c in columns.stored)
    mine = replace(block, rows=hit.collect(), given=given)
    return Slice(base, NO_SAY, (*before, mine, *after))


def _largest(blocks: Sequence[DataBlock | DeleteBlock], sizes: Sequence[int]) -> tuple[int, int]:
    """Where the largest block begins, and where what continues it ends."""
    starts = [i for i, b in enumerate(blocks) if not (isinstance(b, DataBlock) and b.continues)]
    return max(pairwise([*starts, len(blocks)]), key=lambda run: sum(sizes[slice(*run)]))


def _parquet(block: DataBlock | DeleteBlock) -> bytes | memoryview:
    """The Parquet of a block; nothing, where it has none."""
    return block.rows if isinstance(block, DataBlock) and not isinstance(block.rows, pl.DataFrame) else b""


@dataclass(frozen=True, slots=True)
class Resolved:
    """Who won: base rows of the keys in `drop` are void; `live` (positions in `rows`) replace them.

    `dead` are the lines of deletes that won: plain ones for `latest`, tombstones for `ordering`.
    """

    drop: pl.Series
    rows: pl.DataFrame
    live: pl.Series
    dead: pl.DataFrame
    base: Base | None

    def live_rows(self) -> pl.DataFrame:
        """The winning rows of the logs."""
        keep = np.zeros(self.rows.height, dtype=bool)
        keep[self.live.to_numpy()] = True
        return self.rows.filter(pl.Series(keep))

    def untouched(self, select: Sequence[str]) -> pl.DataFrame | None:
        """Step 3: the rows of the base that stand."""
        return None if self.base is None else self.base.without(self.drop, select)


def resolve(
    files: Slice,
    rule: MergeRule,
    columns: Columns,
    key: str,
    need: Sequence[str],
    scanned: Scanned | None,
    *,
    timed: bool = False,
) -> Resolved:
    """Steps 1 and 2, for `latest` and `ordering`. `scanned`: the base of `files`."""
    assert rule.kind != "columns"
    late = _is_late(files)
    found = gather(files.blocks, rule, columns, key, need, timed=timed or late)
    best = winners(found.lines, rule)
    ordering = rule.ordering
    drop = best[KEY] if ordering is None else found.lines[KEY].unique()
    base: Base | None = scanned
    compete = late or (ordering is not None and files.base_latest != NO_SAY)
    if scanned is not None and base is not None and found.lines.height and compete:
        if ordering is None:
            lost = _newer_in_base(scanned, best, files.base_latest)
        else:
            if scanned.predicate is None:  # one decode, where the scan would be asked twice
                base = scanned.decode(drop, distinct(need, [ordering], [COMMIT_TIME] if late else []))
            lost = _base_wins(base, ordering, found, best, late)
        best = best.join(lost.to_frame(KEY), on=KEY, how="anti", maintain_order="left")
        spared = _spared(base, found, best) if late and ordering is not None else lost.clear()
        drop = drop.to_frame(KEY).join(pl.concat([lost, spared]).to_frame(KEY), on=KEY, how="anti")[KEY]
    is_row = best[KIND] == ROW
    return Resolved(drop, found.rows, best.filter(is_row)[AT], best.filter(~is_row), base)


def _is_late(files: Slice) -> bool:
    """Whether some log may be older than what the base folded in."""
    if files.base is None or files.base_latest == NO_SAY:
        return False
    latest = files.base_latest if files.base_latest is not None else _latest_in(files.base)
    oldest = min((_oldest(b) for b in files.blocks), default="~")
    return latest is None or oldest < latest


def _oldest(block: DataBlock | DeleteBlock) -> str:
    if isinstance(block, DeleteBlock) and TIME in block.keys.columns and block.keys.height:
        return str(block.keys[TIME].min())
    # Rows with their own times are never older than the fold of what was stable when they were carried.
    return block.instant


def _latest_in(base: ParquetSource) -> str | None:
    """The greatest requested time in a base file that does not say, by its statistics; None if they do not either."""
    groups = row_groups(base, COMMIT_TIME)
    return None if groups is None else max((str(group.greatest) for group in groups), default="")


def _newer_in_base(base: Scanned, best: pl.DataFrame, latest: str | None) -> pl.Series:
    """`latest`: the keys whose base row beats the winner of the logs. Base rows older than all of `best` are not read.

    latest: no row of the base is newer, if that is known.
    """
    late = best if latest is None else best.filter(pl.col(TIME) <= latest)
    oldest = late[TIME].min()
    if not isinstance(oldest, str):
        return late[KEY]  # which is empty
    return base.since(oldest).join(late.select(KEY, KIND, TIME), on=KEY, how="inner").filter(_NEWER)[KEY]


def _base_wins(base: Base, ordering: str, found: Contributions, best: pl.DataFrame, late: bool) -> pl.Series:
    """`ordering`: the keys whose base row beats the winner of the logs."""
    need = [pl.col(ordering).alias(_BASE_ORDER), *([pl.col(COMMIT_TIME).alias(BASE_TIME)] if late else [])]
    rows = base.rows(best[KEY], need)
    rows = rows.join(best.select(KEY, KIND, ORDER, *([TIME] if late else [])), on=KEY, how="inner")
    mine, theirs = pl.col(_BASE_ORDER), pl.col(ORDER)
    greater = mine.is_not_null() & (theirs.is_null() | (mine > theirs).fill_null(False))
    wins = rows.filter(greater | (mine.eq_missing(theirs) & (_NEWER if late else pl.lit(False))))
    cut = cleared(found.lines)
    if not cut.height:
        return wins[KEY]
    if not late:
        return wins.join(cut, on=KEY, how="anti")[KEY]
    cuts = wins.join(cut.select(KEY, pl.col(TIME).alias(_CUT)), on=KEY, how="left")
    return cuts.filter(pl.col(_CUT).is_null() | (pl.col(BASE_TIME) >= pl.col(_CUT)))[KEY]


def _spared(base: Base, found: Contributions, best: pl.DataFrame) -> pl.Series:
    """Keys of base rows that are newer than a late plain delete with no version after it."""
    alone = cleared(found.lines).join(best, on=KEY, how="anti").select(KEY, TIME)
    rows = base.rows(alone[KEY], [pl.col(COMMIT_TIME).alias(BASE_TIME)])
    return rows.join(alone, on=KEY, how="inner").filter(pl.col(BASE_TIME) >= pl.col(TIME))[KEY]


def _merge_columns(
    files: Slice, rule: MergeRule, columns: Columns, key: str, need: list[str], scanned: Scanned | None
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Merged rows (not yet filtered), and the untouched rows of the base (filtered)."""
    found, below = gather(files.blocks, rule, columns, key, rule.stored(need)), rule.below(need)
    folded = patches(found, found.lines, rule, key)
    if scanned is None:
        return _overlay(folded, need, None, None), None
    if files.base_latest == NO_SAY or _all_from_logs(folded, need):
        return _overlay(folded, need, None, None), scanned.without(folded.keys, need)
    # Where few rows are touched, one decode serves them and the others; else it is not worth its other columns.
    few = scanned.predicate is None and 2 * len(folded.keys) < scanned.height
    base = scanned.decode(folded.keys, distinct(need, below) if few else below)
    every = base.placed.height == base.frame.height
    rest = None if every else base.others(need) if few else scanned.without(folded.keys, need)
    folded = folded.renumbered(base.placed[NUMBER].to_numpy())
    under = np.full(len(folded.keys), -1, dtype=np.int64)
    under[: base.placed.height] = base.placed[PLACE].to_numpy()
    return _overlay(folded, need, base.frame, np.where(folded.reset, -1, under)), rest


def _all_from_logs(folded: Patches, need: Sequence[str]) -> bool:
    """Whether the base has no say in any column of the touched rows."""
    return not folded.rule.members_of(need) and all((folded.row_of(c) >= 0).all() for c in need)


def _overlay(folded: Patches, need: Sequence[str], base: pl.DataFrame | None, under: np.ndarray | None) -> pl.DataFrame:
    """Merged rows: what a payload makes of base and logs; else the value of the row that gave it last, else the
    base's, else null."""
    merged: dict[str, pl.Series] = {}
    for member in folded.rule.members_of(need):
        states = folded.states(member, base, under)
        merged |= {series.name: series for series in member.unpack(states, need)}
    others = [column for column in need if column not in merged]
    if len(others) > len(merged) and all(folded.row_of(c) is folded.newest for c in others):
        return _beside_newest(folded, merged, others).select(need)
    for column in others:
        index, series = folded.row_of(column), folded.found.rows[column]
        if base is not None and under is not None and (index < 0).any():
            below = np.where(under >= 0, under + series.len(), -1)
            index = np.where(index >= 0, index, below)
            series = pl.concat([series, base[column]])
        merged[column] = take(series, index)
    rows = pl.DataFrame([merged[column] for column in need])
    live = folded.newest >= 0
    return rows if live.all() else rows.filter(pl.Series(live))


def _beside_newest(folded: Patches, merged: dict[str, pl.Series], others: Sequence[str]) -> pl.DataFrame:
    """Whole rows of the logs, in their order, which is faster than to gather column by column; `merged` beside them."""
    found = folded.found.rows
    live = np.flatnonzero(folded.newest >= 0)
    key_of = np.full(found.height, -1, dtype=np.int64)
    key_of[folded.newest[live]] = live
    keep = key_of >= 0
    rows = found.select(others) if keep.all() else found.select(others).filter(pl.Series(keep))
    return rows.with_columns(take(series, key_of[keep]) for series in merged.values())

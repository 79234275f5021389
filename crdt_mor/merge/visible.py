"""Merge a file slice into the rows that a reader sees.

    1. the logs decide       every row and delete of the logs as a narrow line; one winner a key       (fold.py)
    2. the base objects      only if it can: a log older than a commit in the base, or an ordering column
    3. the rest passes       base rows with replaced keys are dropped inside the Parquet scan; all other rows pass
                             through it without being hashed, sorted or copied

A predicate is pushed into the scan of step 3, and applied to visible rows after merging. Without a base file, the
largest block plays the base (a first load goes to logs).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise
from typing import NamedTuple

import polars as pl

from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge.base_rows import BASE_TIME, Base, BaseScan, DecodedBase, rows_and_masks
from crdt_mor.merge.blocks import (
    COMMIT_TIME,
    NEVER_COMPARED,
    Columns,
    DataBlock,
    DeleteBlock,
    Slice,
    distinct,
    is_partial,
)
from crdt_mor.merge.contributions import (
    AT,
    KIND,
    LINE_KEY,
    ORDER,
    ROW,
    TIME,
    Contributions,
    gather,
    given_names,
    have_own_times,
    raw,
    row_groups,
    scan_ranges,
)
from crdt_mor.merge.contributions import scan as scan_parquet
from crdt_mor.merge.fold import cleared, winners
from crdt_mor.merge.hudi_patches import with_whole_rows
from crdt_mor.merge.key_condition import KeyCondition
from crdt_mor.merge.key_words import Keys, distinct_keys
from crdt_mor.merge.matching import keys_by_filter
from crdt_mor.merge.orders import merge_ordered
from crdt_mor.merge.overlay import merge_columns
from crdt_mor.merge.resolution import Bits, Mask, Resolution, only
from crdt_mor.merge.rule import LATEST, MergeRule

PLAYS_BASE_BYTES_MIN = 1 << 20
"""The smallest block or run, in bytes, that plays the base."""

_BASE_ORDER, _CUT = "base_ordering", "cut"

_NEWER = (pl.col(BASE_TIME) > pl.col(TIME)) | ((pl.col(BASE_TIME) == pl.col(TIME)) & (pl.col(KIND) != ROW))
"""At equal requested times the delete comes first, and a row meets only itself."""


class Merged(NamedTuple):
    """The rows of a slice, in frames.

    resolution: the visible rows; None if not all rows were merged, or if one bit per row cannot express them.
    """

    frames: list[pl.DataFrame]
    resolution: Resolution | None = None


def merge(
    files: Slice,
    rule: MergeRule,
    columns: Columns,
    *,
    select: Sequence[str],
    predicate: pl.Expr | None = None,
    only_keys: KeyCondition | None = None,
) -> list[pl.DataFrame]:
    """Return the snapshot of a file slice: at least one frame, with the columns `select`, rows in any order.

    only_keys: the part of the predicate about the merge key. A payload sees no values of other keys.
    """
    return merged(files, rule, columns, select=select, predicate=predicate, only_keys=only_keys).frames


def merged(
    files: Slice,
    rule: MergeRule,
    columns: Columns,
    *,
    select: Sequence[str],
    predicate: pl.Expr | None = None,
    only_keys: KeyCondition | None = None,
) -> Merged:
    """Merge a slice as `merge` does, and return its resolution too."""
    key, need = columns.merge_key, needed_for(select, predicate)
    is_whole = files.base is not None and files.base_rows is None and files.base_ranges is None
    is_resolved = predicate is None and only_keys is None and is_whole and not any(map(is_partial, files.blocks))
    files = with_whole_rows(files, rule, columns)
    files = promote(files, rule, columns, key, distinct(need, rule.stored(need)), only_keys)
    base = (
        None
        if files.base is None
        else BaseScan(
            files.base, columns, key, predicate, files.base_rows, ranges=files.base_ranges, only_keys=only_keys
        )
    )
    with ThreadPoolExecutor(1) if base is not None and predicate is not None else nullcontext() as pool:
        if base is not None and pool is not None:
            base = base.prefetched(need, pool)
            only_keys = only_keys or keys_by_filter(files.blocks, [base], rule, columns)
            base = replace(base, only_keys=only_keys)
        if rule.has_orders:
            ordered = merge_ordered(files, rule, columns, key, need, base, only_keys)
            return Merged(frames_of(ordered.rows, ordered.rest, select, predicate))
        if rule.kind == "columns":
            return Merged(
                frames_of(*merge_columns(files, rule, columns, key, need, base, only_keys), select, predicate)
            )
        resolved = resolve(files, rule, columns, key, need, base, only_keys=only_keys)
        untouched, stand = resolved.untouched(need)
        won = resolved.mask()
        frames = frames_of(resolved.rows.filter(pl.Series(won)), untouched, select, predicate)
        if stand is None or not is_resolved:
            return Merged(frames)
        return Merged(frames, Resolution(Bits.of(stand), Bits.of(won)))


def passed_through(
    base: ParquetSource,
    columns: Columns,
    *,
    select: Sequence[str],
    predicate: pl.Expr | None,
    limit: int | None,
    ranges: Sequence[tuple[int, int]] | None = None,
) -> pl.DataFrame:
    """Scan a base file without logs. Columns, predicate and limit reach the Parquet reader. `ranges`: see `Slice`."""
    rows = scan_parquet(base, columns) if ranges is None else scan_ranges(base, columns, ranges)
    rows = (rows if predicate is None else rows.filter(predicate)).select(select)
    return (rows if limit is None else rows.head(limit)).collect()


def touched(blocks: Sequence[DataBlock | DeleteBlock], columns: Columns) -> pl.Series:
    key = columns.merge_key
    return gather(blocks, LATEST, columns, key, [key]).lines[LINE_KEY].unique().alias(key)


def touched_of_each(groups: Sequence[Sequence[DataBlock | DeleteBlock]], columns: Columns) -> list[pl.Series]:
    """Return the keys of each group of blocks, perhaps repeated, decoded together: each call has a fixed cost."""
    key, blocks = columns.merge_key, [*chain.from_iterable(groups)]
    if have_own_times(blocks):  # their lines are in another order
        return [touched(group, columns) for group in groups]
    found = gather(blocks, LATEST, columns, key, [key], sized=True)
    keys, sizes, start = found.lines[LINE_KEY].alias(key), iter(found.sizes), 0
    result = list[pl.Series]()
    for group in groups:
        count = sum(islice(sizes, len(group)))
        result.append(keys.slice(start, count))
        start += count
    return result


def written(
    blocks: Sequence[DataBlock | DeleteBlock], columns: Columns, select: Sequence[str]
) -> tuple[pl.DataFrame, pl.Series]:
    key = columns.merge_key
    contributions = gather(blocks, LATEST, columns, key, select)
    deleted = contributions.lines.filter(pl.col(KIND) != ROW)[LINE_KEY]
    return contributions.rows.select(select), deleted.alias(key)


def versions(
    blocks: Sequence[DataBlock | DeleteBlock], columns: Columns, select: Sequence[str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    found = gather(blocks, LATEST, columns, columns.merge_key, select, timed=True)
    at = pl.when(pl.col(KIND) == ROW).then(pl.col(AT))
    return found.rows.select(select), found.lines.select(LINE_KEY, TIME, at.alias(AT))


def needed_for(select: Sequence[str], predicate: pl.Expr | None) -> list[str]:
    return distinct(select, predicate.meta.root_names() if predicate is not None else [])


def frames_of(
    merged: pl.DataFrame, rest: pl.DataFrame | None, select: Sequence[str], predicate: pl.Expr | None
) -> list[pl.DataFrame]:
    if predicate is not None:
        merged = merged.filter(predicate)
    frames = [f if f.columns == list(select) else f[[*select]] for f in (merged, rest) if f is not None]
    return [f for f in frames if f.height] or frames[:1]


def promote(
    files: Slice,
    rule: MergeRule,
    columns: Columns,
    key: str,
    need: Sequence[str],
    only_keys: KeyCondition | None = None,
) -> Slice:
    """Put the largest run of blocks that continue each other in the place of a missing base file.

    After a first load the run comes first, and nothing more is needed. Otherwise its rows with keys of other blocks are
    also kept as a log block and merged in order.
    """
    # In a base with orders, a null of a column that a row sets is a null.
    if files.base is not None or not files.blocks or (rule.has_orders and rule.nulls == "keep"):
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
    others = gather((*before, *after), LATEST, columns, key, [key], only_keys=only_keys).lines[LINE_KEY].unique()
    wanted = distinct(need, [key, COMMIT_TIME], [rule.ordering] if rule.ordering else [])
    hit = scan_parquet(base, columns).filter(pl.col(key).is_in(others.implode())).select(wanted)
    # The frame contains columns that the block lacks; only this rule needs the block's own columns.
    given = tuple(given_names(block)) if rule.kind == "columns" else block.given
    touched_rows = replace(block, rows=hit.collect(), given=given)
    return Slice(base, NEVER_COMPARED, (*before, touched_rows, *after))


def _largest(blocks: Sequence[DataBlock | DeleteBlock], sizes: Sequence[int]) -> tuple[int, int]:
    starts = [i for i, b in enumerate(blocks) if not (isinstance(b, DataBlock) and b.continues)]
    return max(pairwise([*starts, len(blocks)]), key=lambda run: sum(sizes[slice(*run)]))


def _parquet(block: DataBlock | DeleteBlock) -> bytes | memoryview:
    return block.rows if isinstance(block, DataBlock) and not isinstance(block.rows, pl.DataFrame) else b""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The winners: the rows at `winners` in `rows` are visible; base rows with keys in `drop` are not.

    deletes: the lines of the winning deletes: plain ones under `latest`, tombstones under `ordering`.
    """

    drop: Keys
    rows: pl.DataFrame
    winners: pl.Series
    deletes: pl.DataFrame
    base: Base | None

    def mask(self) -> Mask:
        return only(self.winners.to_numpy(), self.rows.height)

    def untouched(self, select: Sequence[str]) -> tuple[pl.DataFrame | None, Mask | None]:
        """Step 3: return the remaining base rows, and their mask if all base rows were read."""
        if self.base is None:
            return None, None
        if isinstance(self.base, DecodedBase):
            stand = self.base.mask_without(self.drop)
            return self.base.frame.select(select).filter(pl.Series(stand)), stand
        if self.base.is_whole and self.base.predicate is None:
            return rows_and_masks([self.base], [self.drop], select)[0]
        return self.base.rows_without(self.drop, select), None


def resolve(
    files: Slice,
    rule: MergeRule,
    columns: Columns,
    key: str,
    need: Sequence[str],
    scanned: BaseScan | None,
    *,
    timed: bool = False,
    only_keys: KeyCondition | None = None,
) -> Resolved:
    """Steps 1 and 2, for `latest` and `ordering`. `scanned`: the base of `files`."""
    assert rule.kind != "columns"
    late = is_late(files)
    contributions = gather(files.blocks, rule, columns, key, need, timed=timed or late, only_keys=only_keys)
    best, drop = winners(contributions.lines, rule)
    ordering = rule.ordering
    if ordering is not None:
        drop = distinct_keys(contributions.lines[LINE_KEY])
    base: Base | None = scanned
    compete = late or (ordering is not None and files.base_latest != NEVER_COMPARED)
    if scanned is not None and base is not None and contributions.lines.height and compete:
        if ordering is None:
            lost = _newer_in_base(scanned, best, files.base_latest)
        else:
            if scanned.predicate is None:  # one decode instead of two scans
                base = scanned.decode(drop, distinct(need, [ordering], [COMMIT_TIME] if late else []))
            lost = _base_wins(base, ordering, contributions, best, late)
        best = best.join(lost.to_frame(LINE_KEY), on=LINE_KEY, how="anti", maintain_order="left")
        newer = _newer_than_delete(base, contributions, best) if late and ordering is not None else lost.clear()
        stays = pl.concat([lost, newer]).to_frame(LINE_KEY)
        if stays.height:
            drop = Keys(drop.texts.to_frame(LINE_KEY).join(stays, on=LINE_KEY, how="anti")[LINE_KEY])
    is_row = best[KIND] == ROW
    deletes = best.clear() if is_row.all() else best.filter(~is_row)
    return Resolved(drop, contributions.rows, best[AT].filter(is_row), deletes, base)


def is_late(files: Slice) -> bool:
    if files.base is None or files.base_latest == NEVER_COMPARED:
        return False
    latest = files.base_latest if files.base_latest is not None else latest_in(files.base)
    oldest = min((_oldest(b) for b in files.blocks), default="~")
    return latest is None or oldest < latest


def _oldest(block: DataBlock | DeleteBlock) -> str:
    if isinstance(block, DeleteBlock) and TIME in block.keys.columns and block.keys.height:
        return str(block.keys[TIME].min())
    # Carried rows older than the base are in blocks with their own times (`compaction.compact_logs`).
    return block.instant


def latest_in(base: ParquetSource) -> str | None:
    groups = row_groups(base, COMMIT_TIME)
    return None if groups is None else max((str(group.greatest) for group in groups), default="")


def _newer_in_base(base: BaseScan, best: pl.DataFrame, latest: str | None) -> pl.Series:
    """Under `latest`, return the keys with a base row that beats the logs' winner. Older rows are not read."""
    late = best if latest is None else best.filter(pl.col(TIME) <= latest)
    oldest = late[TIME].min()
    if not isinstance(oldest, str):
        return late[LINE_KEY]  # which is empty
    return (
        base.times_since(oldest)
        .join(late.select(LINE_KEY, KIND, TIME), on=LINE_KEY, how="inner")
        .filter(_NEWER)[LINE_KEY]
    )


def _base_wins(base: Base, ordering: str, contributions: Contributions, best: pl.DataFrame, late: bool) -> pl.Series:
    need = [pl.col(ordering).alias(_BASE_ORDER), *([pl.col(COMMIT_TIME).alias(BASE_TIME)] if late else [])]
    rows = base.rows(best[LINE_KEY], need)
    rows = rows.join(best.select(LINE_KEY, KIND, ORDER, *([TIME] if late else [])), on=LINE_KEY, how="inner")
    in_base, in_logs = pl.col(_BASE_ORDER), pl.col(ORDER)
    greater = in_base.is_not_null() & (in_logs.is_null() | (in_base > in_logs).fill_null(False))
    wins = rows.filter(greater | (in_base.eq_missing(in_logs) & (_NEWER if late else pl.lit(False))))
    cut = cleared(contributions.lines)
    if not cut.height:
        return wins[LINE_KEY]
    if not late:
        return wins.join(cut, on=LINE_KEY, how="anti")[LINE_KEY]
    cuts = wins.join(cut.select(LINE_KEY, pl.col(TIME).alias(_CUT)), on=LINE_KEY, how="left")
    return cuts.filter(pl.col(_CUT).is_null() | (pl.col(BASE_TIME) >= pl.col(_CUT)))[LINE_KEY]


def _newer_than_delete(base: Base, contributions: Contributions, best: pl.DataFrame) -> pl.Series:
    """Return the keys whose base row is newer than a late plain delete without a later version in the logs."""
    alone = cleared(contributions.lines).join(best, on=LINE_KEY, how="anti").select(LINE_KEY, TIME)
    rows = base.rows(alone[LINE_KEY], [pl.col(COMMIT_TIME).alias(BASE_TIME)])
    return rows.join(alone, on=LINE_KEY, how="inner").filter(pl.col(BASE_TIME) >= pl.col(TIME))[LINE_KEY]

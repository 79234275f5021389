"""Split a large file slice into key ranges that merge independently.

    base     | row groups 0-3 | row groups 4-7 | ...      sorted by key, as compaction writes it
    log 1    | keys <= k1     | k1 < keys <= k2 | ...     each block cut at the greatest key of the row groups
    log 2    | keys <= k1     | k1 < keys <= k2 | ...

No key is in two parts, so merging part by part gives the same rows under every rule. For the same reason, small slices
without common keys can be joined, which saves the fixed cost of a merge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge.blocks import RECORD_KEY, Columns, DataBlock, DeleteBlock, Slice
from crdt_mor.merge.contributions import decode, given_names, have_own_times, height, needed, row_groups
from crdt_mor.merge.hudi_patches import with_whole_rows
from crdt_mor.merge.rule import MergeRule
from crdt_mor.merge.visible import is_late

SCAN_PART_ROWS_MIN: Final = 4 * 131_072
"""The smallest number of base rows in a part of a scan."""

SCAN_CUT_ROWS_MIN: Final = 4 * SCAN_PART_ROWS_MIN
"""A smaller base, in rows, is merged as a whole: one scan that drops keys is faster than several parts."""

Block = DataBlock | DeleteBlock


def parts(
    files: Slice, rows: int, rule: MergeRule, columns: Columns, select: Sequence[str], enough: int | None = None
) -> list[Slice]:
    """Split a slice for a merge of the columns `select`; a small or unsorted slice is returned whole.

    enough: the number of visible rows that suffice, if not all, so that the first parts may do.
    """
    if files.base is None or not files.blocks:
        return [files]
    if enough is not None and enough < rows:
        return in_parts(files, min(max(enough, 1), SCAN_PART_ROWS_MIN), rule, columns, select)
    return [files] if rows < SCAN_CUT_ROWS_MIN else in_parts(files, SCAN_PART_ROWS_MIN, rule, columns, select)


def in_parts(files: Slice, rows_min: int, rule: MergeRule, columns: Columns, select: Sequence[str]) -> list[Slice]:
    ranges = _ranges(files.base, rows_min) if files.base is not None else []
    if len(ranges) < 2:
        return [files]
    files = with_whole_rows(files, rule, columns)  # before the columns that only it uses are dropped
    edges = pl.Series([part.greatest for part in ranges[:-1]])
    pieces = _cut_all(files.blocks, edges, rule, columns, select)
    return [
        replace(files, base_rows=(part.first, part.rows), blocks=tuple(of_block[i] for of_block in pieces))
        for i, part in enumerate(ranges)
    ]


def joined(slices: Sequence[Slice], rule: MergeRule) -> Slice | None:
    """Join whole slices, with their bases in memory. No key may be in two of them, and all or none have a base.

    Returns None if a log of one slice may be older than a commit in the base of another: such merges read more of the
    base. Also if the rule asks which columns a base has, because files may differ in them.
    """
    blocks = tuple(sorted((block for files in slices for block in files.blocks), key=lambda block: block.instant))
    bases = [files.base for files in slices if files.base is not None]
    if not bases:
        return Slice(blocks=blocks)
    if rule.has_orders:
        return None
    times = [files.base_latest for files in slices if files.base_latest is not None]
    latest = max(times) if len(times) == len(bases) else None
    if blocks and (latest is None or is_late(Slice(bases[0], latest, blocks))):
        return None
    contents = [content for base in bases for content in base.in_full().contents]
    return Slice(replace(bases[0], address=None, ranges=None, contents=tuple(contents)), latest, blocks)


class _Range(NamedTuple):
    first: int
    rows: int
    greatest: str


def _ranges(base: ParquetSource, rows_min: int) -> list[_Range]:
    """Split a base file into key ranges, each with at least `rows_min` rows; the last may have fewer.

    Returns an empty list unless statistics prove that the row groups are in key order and do not overlap.
    """
    groups = row_groups(base, RECORD_KEY) or []
    if any(before.greatest >= after.least for before, after in pairwise(groups)):
        return []
    result: list[_Range] = []
    first = rows = 0
    for i, group in enumerate(groups):
        rows += group.rows
        if rows - first >= rows_min or i == len(groups) - 1:
            result.append(_Range(first, rows - first, group.greatest))
            first = rows
    return result


def _cut_all(
    blocks: Sequence[Block], edges: pl.Series, rule: MergeRule, columns: Columns, select: Sequence[str]
) -> list[list[Block]]:
    data = [block for block in blocks if isinstance(block, DataBlock)]
    key = columns.merge_key if columns.stored.get(columns.merge_key) == pl.String else RECORD_KEY
    need = needed([*rule.stored(select), key], rule, columns.merge_key, have_own_times(blocks))
    rows = decode(data, columns, need)
    starts = iter(np.cumsum([0, *(height(block) for block in data)]).tolist())
    result: list[list[Block]] = []
    start = next(starts)
    for block in blocks:
        if isinstance(block, DeleteBlock):
            result.append([replace(block, keys=keys) for keys in _cut(block.keys, block.keys[RECORD_KEY], edges)])
            continue
        end = next(starts)
        rows_of_block = rows[start:end]
        # A block sets its own columns, but decoded rows contain the columns of all blocks.
        given = tuple(given_names(block)) if rule.kind == "columns" else block.given
        pieces = _cut(rows_of_block, rows_of_block[key], edges)
        result.append([replace(block, rows=piece, given=given) for piece in pieces])
        start = end
    return result


def _cut(rows: pl.DataFrame, keys: pl.Series, edges: pl.Series) -> list[pl.DataFrame]:
    if keys.is_sorted():  # as our writers leave them
        ends = [*keys.search_sorted(edges, side="right"), rows.height]
        return [rows[start:end] for start, end in pairwise([0, *ends])]
    number = edges.search_sorted(keys, side="left")
    return [rows.filter(number == i) for i in range(len(edges) + 1)]

"""Merge under the rule `columns`: overlay the logs' patches on the base rows.

`merge.patches` folds the logs of a slice. The base is read only where it can contribute.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from crdt_mor.merge.base_rows import BaseScan
from crdt_mor.merge.blocks import NEVER_COMPARED, Columns, Slice, distinct
from crdt_mor.merge.contributions import gather
from crdt_mor.merge.key_condition import KeyCondition
from crdt_mor.merge.key_words import Keys
from crdt_mor.merge.patches import Patches, patches
from crdt_mor.merge.rule import MergeRule
from crdt_mor.merge.states import shown, take


def merge_columns(
    files: Slice,
    rule: MergeRule,
    columns: Columns,
    key: str,
    need: list[str],
    scanned: BaseScan | None,
    only_keys: KeyCondition | None,
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    contributions, below = (
        gather(files.blocks, rule, columns, key, rule.stored(need), only_keys=only_keys),
        rule.below(need),
    )
    folded = patches(contributions, contributions.lines, rule, key)
    if scanned is None:
        return _overlay(folded, need, None, None), None
    if files.base_latest == NEVER_COMPARED or _all_from_logs(folded, need):
        return _overlay(folded, need, None, None), scanned.rows_without(Keys(folded.keys), need)
    # With few touched rows, one decode serves all rows; otherwise decoding all columns costs more than a scan.
    few = scanned.predicate is None and 2 * len(folded.keys) < scanned.height
    base = scanned.decode(Keys(folded.keys), distinct(need, below) if few else below)
    every = len(base.places) == base.frame.height
    rest = None if every else base.untouched_rows(need) if few else scanned.rows_without(Keys(folded.keys), need)
    folded = folded.renumbered(base.numbers)
    under = np.full(len(folded.keys), -1, dtype=np.int64)
    under[: len(base.places)] = base.places
    return _overlay(folded, need, base.frame, np.where(folded.reset, -1, under)), rest


def _all_from_logs(folded: Patches, need: Sequence[str]) -> bool:
    return not folded.rule.members_of(need) and all((folded.row_of(c) >= 0).all() for c in need)


def _overlay(folded: Patches, need: Sequence[str], base: pl.DataFrame | None, under: np.ndarray | None) -> pl.DataFrame:
    """Return visible rows. A payload column folds base and logs. Any other column takes the last log value, else the
    base's, else null.
    """
    merged, needed = dict[str, pl.Series](), frozenset(need)
    for member in folded.rule.members_of(need):
        states = folded.states(member, base, under)
        merged |= {series.name: series for series in shown(member, states, needed, folded.keys)}
    others = [column for column in need if column not in merged]
    if len(others) > len(merged) and all(folded.row_of(c) is folded.newest for c in others):
        return _beside_newest(folded, merged, others).select(need)
    for column in others:
        index, series = folded.row_of(column), folded.contributions.rows[column]
        if base is not None and under is not None and (index < 0).any():
            below = np.where(under >= 0, under + series.len(), -1)
            index = np.where(index >= 0, index, below)
            series = pl.concat([series, base[column]])
        merged[column] = take(series, index)
    rows = pl.DataFrame([merged[column] for column in need])
    live = folded.newest >= 0
    return rows if live.all() else rows.filter(pl.Series(live))


def _beside_newest(folded: Patches, merged: dict[str, pl.Series], others: Sequence[str]) -> pl.DataFrame:
    """Return the newest log rows, filtered as whole rows in order, with the columns `merged` beside them."""
    rows_of_logs = folded.contributions.rows
    live = np.flatnonzero(folded.newest >= 0)
    key_of = np.full(rows_of_logs.height, -1, dtype=np.int64)
    key_of[folded.newest[live]] = live
    keep = key_of >= 0
    rows = rows_of_logs.select(others) if keep.all() else rows_of_logs.select(others).filter(pl.Series(keep))
    return rows.with_columns(take(series, key_of[keep]) for series in merged.values())

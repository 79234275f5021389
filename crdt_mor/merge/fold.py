"""Fold the contributions of each key, for hundreds of thousands of keys at once.

    alive      contributions after the key's last plain delete; a deleted contribution never counts again
    winners    latest: the last line of a key; ordering: the greatest (ordering value, position) among the alive lines
    patches    columns: the last row that sets each column, or the payload's merge of all   (patches.py)

`collapse` folds a run of contributions into fewer equivalent ones: per key at most one plain delete, then one row or
tombstone. Transactions fold their statements this way, and compactions the log blocks that they carry. This is exact
because every rule is an associative fold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from crdt_mor.merge.blocks import META_COLUMNS
from crdt_mor.merge.contributions import AT, KIND, LINE_KEY, ORDER, PLAIN, ROW, TOMBSTONE, Contributions
from crdt_mor.merge.key_words import Keys, last_of_each
from crdt_mor.merge.patches import Patches, patches
from crdt_mor.merge.rule import MergeRule
from crdt_mor.merge.states import take


def cleared(lines: pl.DataFrame) -> pl.DataFrame:
    plain = lines.filter(pl.col(KIND) == PLAIN)
    return plain.filter(plain[LINE_KEY].is_last_distinct())


def alive(lines: pl.DataFrame) -> pl.DataFrame:
    if not (lines[KIND] == PLAIN).any():
        return lines
    placed = lines.with_row_index("place")
    last = cleared(placed).select(LINE_KEY, pl.col("place").alias("cut"))
    joined = placed.join(last, on=LINE_KEY, how="left", maintain_order="left")
    after = joined.filter((pl.col(KIND) != PLAIN) & (pl.col("cut").is_null() | (pl.col("place") > pl.col("cut"))))
    return after.select(lines.columns)


class Winners(NamedTuple):
    lines: pl.DataFrame
    keys: Keys


def winners(lines: pl.DataFrame, rule: MergeRule) -> Winners:
    """Return one line per key. Under `latest` it may be a plain delete; under `ordering` a tombstone, or missing."""
    if rule.kind == "ordering":
        # A stable sort keeps the fold order of equal values; null is least.
        lines = alive(lines).sort(ORDER, nulls_last=False, maintain_order=True)
    is_last, ascending = last_of_each(lines[LINE_KEY])
    best = lines.filter(is_last)
    return Winners(best, Keys(best[LINE_KEY], ascending))


class StoredRows(NamedTuple):
    """Rows that all set the columns `given`; None for whole rows. They contain states, see `MergeRule.show`.

    nulls: as in `DataBlock`.
    """

    given: tuple[str, ...] | None
    rows: pl.DataFrame
    nulls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Collapsed:
    """Folded contributions: plain deletes, then tombstones, then rows, in one frame per set of columns."""

    deletes: pl.DataFrame
    tombstones: pl.DataFrame
    rows: list[StoredRows]


def collapse(contributions: Contributions, lines: pl.DataFrame, rule: MergeRule, key: str) -> Collapsed:
    """Fold `lines` of `contributions` to at most one plain delete, then one row or tombstone per key."""
    if rule.kind == "columns":
        rows_by_given = _by_given(patches(contributions, lines, rule, key))
        return Collapsed(contributions.deletes[cleared(lines)[AT]], contributions.deletes.clear(), rows_by_given)
    best = winners(lines, rule).lines
    plain = best.filter(pl.col(KIND) == PLAIN) if rule.kind == "latest" else cleared(lines)
    rows = best.filter(pl.col(KIND) == ROW)
    return Collapsed(
        contributions.deletes[plain[AT]],
        contributions.deletes[best.filter(pl.col(KIND) == TOMBSTONE)[AT]],
        [StoredRows(None, contributions.rows[rows[AT]])],
    )


def _by_given(folded: Patches) -> list[StoredRows]:
    live = np.flatnonzero(folded.newest >= 0)
    if not live.size:
        return []
    contributions, rule = folded.contributions, folded.rule
    meta = [c for c in contributions.rows.columns if c in META_COLUMNS]
    whole = {c: take(contributions.rows[c], folded.row_of(c)) for c in (*meta, *folded.value)}
    marks = {c: folded.given[c] >= 0 for c in folded.given}
    for member in rule.members_of(list(contributions.given)):
        states = folded.states(member)
        present = states.is_not_null().to_numpy()
        whole |= {series.name: series for series in member.unpack(states, member.stored)}
        marks |= dict.fromkeys(member.stored, present)
    rows = pl.DataFrame(list(whole.values()), schema=list(whole))
    nulls = {c: (folded.value[c] >= 0) & rows[c].is_null().to_numpy() for c in contributions.nulls}
    if live.size < rows.height:
        rows, marks = rows[live], {c: mark[live] for c, mark in marks.items()}
        nulls = {c: mark[live] for c, mark in nulls.items()}
    columns = [c for c in contributions.rows.columns if c in marks]
    if rule.whole:
        return [StoredRows(tuple(columns), rows.select(*meta, *columns))]
    masks = [*(marks[c] for c in columns), *nulls.values()]
    sets, number = np.unique(np.stack(masks, axis=1), axis=0, return_inverse=True)
    result: list[StoredRows] = []
    for i, mark in enumerate(sets):
        given = tuple(c for c, yes in zip(columns, mark[: len(columns)], strict=True) if yes)
        set_null = tuple(c for c, yes in zip(nulls, mark[len(columns) :], strict=True) if yes)
        some = rows.select(*meta, *given).filter(pl.Series(number.reshape(-1) == i))
        result.append(StoredRows(given, some, set_null))
    return result

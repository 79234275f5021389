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
from crdt_mor.merge.contributions import AT, KIND, LINE_KEY, ORDER, PLAIN, ROW, TIME, TOMBSTONE, Contributions
from crdt_mor.merge.key_words import Keys, last_of_each
from crdt_mor.merge.patches import Patches, patches
from crdt_mor.merge.rule import MergeRule
from crdt_mor.merge.states import take


def cleared(lines: pl.DataFrame) -> pl.DataFrame:
    return last_of_kind(lines, PLAIN)


def last_of_kind(lines: pl.DataFrame, kind: int) -> pl.DataFrame:
    of_kind = lines.filter(pl.col(KIND) == kind)
    return of_kind.filter(of_kind[LINE_KEY].is_last_distinct())


def alive(lines: pl.DataFrame, kind: int = PLAIN) -> pl.DataFrame:
    """Return the lines after the last line of `kind` with their key."""
    if not (lines[KIND] == kind).any():
        return lines
    placed = lines.with_row_index("place")
    last = last_of_kind(placed, kind).select(LINE_KEY, pl.col("place").alias("cut"))
    joined = placed.join(last, on=LINE_KEY, how="left", maintain_order="left")
    after = joined.filter((pl.col(KIND) != kind) & (pl.col("cut").is_null() | (pl.col("place") > pl.col("cut"))))
    return after.select(lines.columns)


def in_ordering(lines: pl.DataFrame) -> pl.DataFrame:
    """Sort by (ordering value, position); null is least."""
    return lines.sort(ORDER, nulls_last=False, maintain_order=True)


class Winners(NamedTuple):
    lines: pl.DataFrame
    keys: Keys


def winners(lines: pl.DataFrame, rule: MergeRule) -> Winners:
    """Return one line per key. Under `latest` it may be a plain delete; under `ordering` a tombstone, or missing."""
    if rule.kind == "ordering":
        lines = in_ordering(alive(lines))
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
    if rule.has_orders:
        return _collapsed_by_order(contributions, lines, rule, key)
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


class Standing(NamedTuple):
    """Partial updates under an ordering column, see `merge.orders`: each key's floor, and the rows above it."""

    floors: pl.DataFrame
    rows: pl.DataFrame


def standing(lines: pl.DataFrame) -> Standing:
    ordered = in_ordering(alive(lines))
    return Standing(last_of_kind(ordered, TOMBSTONE), alive(ordered, TOMBSTONE))


def _collapsed_by_order(contributions: Contributions, lines: pl.DataFrame, rule: MergeRule, key: str) -> Collapsed:
    """Fold to the floors and the rows that set a column, one for each ordering value and requested time."""
    floors, rows = standing(lines)
    setting = np.zeros(contributions.rows.height, dtype=bool)
    for places in patches(contributions, rows, rule, key).value.values():
        setting[places[places >= 0]] = True
    tombstones = contributions.deletes[floors[AT]]
    timed = [TIME] if TIME in lines.columns else []
    kept = rows.filter(pl.Series(setting[rows[AT].to_numpy()]))
    kept = kept.with_columns(pl.col(AT).first().over(LINE_KEY, ORDER, *timed).alias(LINE_KEY))
    return Collapsed(
        contributions.deletes[cleared(lines)[AT]],
        tombstones.with_columns(floors[name] for name in timed),
        _by_given(patches(contributions, kept, rule, key)),
    )


def _by_given(folded: Patches) -> list[StoredRows]:
    live = np.flatnonzero(folded.newest >= 0)
    if not live.size:
        return []
    contributions, rule = folded.contributions, folded.rule
    meta = [c for c in contributions.rows.columns if c in META_COLUMNS]
    whole = {c: take(contributions.rows[c], folded.row_of(c)) for c in (*meta, *folded.value)}
    # No two rows of a key that differ in their ordering values may set the same columns: they share a block.
    marks = {c: places >= 0 for c, places in (folded.value if rule.has_orders else folded.given).items()}
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

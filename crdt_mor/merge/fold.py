"""Folding the contributions of one key, for a hundred thousand keys at once.

    alive      contributions after the key's last plain delete: what a delete removes never counts again
    winners    latest: the last line of a key; ordering: the greatest (ordering value, place) among the alive
    patches    partial: per column the last alive row that gives it

`collapse` folds a run of contributions into fewer that mean the same: at most one plain delete and then one row or
tombstone a key. That is what a transaction writes of its statements, and a compaction of what it carries; it is legal
because every rule is an associative fold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from crdt_mor.merge.blocks import META_COLUMNS
from crdt_mor.merge.contributions import AT, KEY, KIND, ORDER, PLAIN, ROW, TOMBSTONE, Contributions
from crdt_mor.merge.rule import MergeRule


def cleared(lines: pl.DataFrame) -> pl.DataFrame:
    """Each key's last plain delete."""
    plain = lines.filter(pl.col(KIND) == PLAIN)
    return plain.filter(plain[KEY].is_last_distinct())


def alive(lines: pl.DataFrame) -> pl.DataFrame:
    """The lines that no later plain delete removes; plain deletes themselves are not among them."""
    if not (lines[KIND] == PLAIN).any():
        return lines
    placed = lines.with_row_index("place")
    last = cleared(placed).select(KEY, pl.col("place").alias("cut"))
    joined = placed.join(last, on=KEY, how="left", maintain_order="left")
    after = joined.filter((pl.col(KIND) != PLAIN) & (pl.col("cut").is_null() | (pl.col("place") > pl.col("cut"))))
    return after.select(lines.columns)


def winners(lines: pl.DataFrame, rule: MergeRule) -> pl.DataFrame:
    """One line a key: for `latest` maybe a plain delete, for `ordering` maybe a tombstone or no line at all."""
    if rule.kind == "ordering":
        # A stable sort keeps the fold order among equal values; null is the least value.
        lines = alive(lines).sort(ORDER, nulls_last=False, maintain_order=True)
    return lines.filter(lines[KEY].is_last_distinct())


@dataclass(frozen=True, slots=True)
class Patches:
    """Per key (`keys`, in the order of every array here) which row gives each column; -1: none."""

    keys: pl.Series
    newest: np.ndarray
    value: dict[str, np.ndarray]
    given: dict[str, np.ndarray]

    def row_of(self, column: str) -> np.ndarray:
        """The row whose value this column takes; Hudi's columns come from the latest contribution."""
        return self.newest if column in META_COLUMNS else self.value[column]


def patches(found: Contributions, lines: pl.DataFrame, rule: MergeRule, key: str) -> Patches:
    """Fold `lines` (alive rows alone) column by column."""
    keys, code = _codes(lines[KEY])
    at = lines[AT].to_numpy()
    count = len(keys)
    newest = _last(code, at, count)
    value: dict[str, np.ndarray] = {}
    given: dict[str, np.ndarray] = {}
    memo: dict[bytes, np.ndarray] = {}
    for column, mask in found.given.items():
        if column == key:
            value[column] = given[column] = newest
            continue
        mine = mask[at]
        packed = np.packbits(mine).tobytes()
        if packed not in memo:
            memo[packed] = newest if mine.all() else _last(code[mine], at[mine], count)
        given[column] = value[column] = memo[packed]
        series = found.rows[column]
        if rule.nulls == "keep" and series.null_count():
            mine &= series.is_not_null().to_numpy()[at]
            value[column] = _last(code[mine], at[mine], count)
    return Patches(keys, newest, value, given)


def _codes(keys: pl.Series) -> tuple[pl.Series, np.ndarray]:
    """Distinct keys, and for every line the number of its key."""
    arrow = keys.rechunk().to_arrow()
    encoded = arrow.dictionary_encode()
    assert isinstance(encoded, pa.DictionaryArray)
    distinct = pl.from_arrow(encoded.dictionary)
    assert isinstance(distinct, pl.Series)
    return distinct.cast(keys.dtype).alias(KEY), encoded.indices.to_numpy(zero_copy_only=False)


def _last(code: np.ndarray, at: np.ndarray, count: int) -> np.ndarray:
    """The last position of each code; -1 for codes that do not occur. NumPy keeps the last of repeated indices."""
    last = np.full(count, -1, dtype=np.int64)
    last[code] = at
    return last


def take(series: pl.Series, index: np.ndarray) -> pl.Series:
    """`series` at `index`; null where the index is negative."""
    positions = pl.Series(index)
    if index.size and int(index.min()) < 0:
        positions = positions.set(positions < 0, None)
    return series.gather(positions)


class GivenRows(NamedTuple):
    """Rows that give the same columns; None: whole rows."""

    given: tuple[str, ...] | None
    rows: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Collapsed:
    """Folded contributions: plain deletes, then tombstones and rows; the rows by the set of columns they give."""

    deletes: pl.DataFrame
    tombstones: pl.DataFrame
    rows: list[GivenRows]


def collapse(found: Contributions, lines: pl.DataFrame, rule: MergeRule, key: str) -> Collapsed:
    """Fold `lines` of `found` to at most one plain delete and then one row or tombstone a key."""
    best = winners(lines, rule) if rule.kind != "partial" else alive(lines)
    plain = best.filter(pl.col(KIND) == PLAIN) if rule.kind == "latest" else cleared(lines)
    rows = best.filter(pl.col(KIND) == ROW)
    return Collapsed(
        found.deletes[plain[AT]],
        found.deletes[best.filter(pl.col(KIND) == TOMBSTONE)[AT]],
        [GivenRows(None, found.rows[rows[AT]])]
        if rule.kind != "partial"
        else _by_given(found, patches(found, rows, rule, key)),
    )


def _by_given(found: Contributions, folded: Patches) -> list[GivenRows]:
    """One frame for each set of columns that some key was given."""
    columns = list(folded.given)
    if not len(folded.keys):
        return []
    marks = np.stack([folded.given[c] >= 0 for c in columns], axis=1)
    sets, number = np.unique(marks, axis=0, return_inverse=True)
    meta = [c for c in found.rows.columns if c in META_COLUMNS]
    result: list[GivenRows] = []
    for i, mark in enumerate(sets):
        here = np.flatnonzero(number.reshape(-1) == i)
        given = tuple(c for c, yes in zip(columns, mark, strict=True) if yes)
        frame = pl.DataFrame([take(found.rows[c], folded.row_of(c)[here]) for c in (*meta, *given)])
        result.append(GivenRows(given, frame))
    return result

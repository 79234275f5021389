"""The causal order of assignments and operations, for OR-sets and multi-value registers.

An entry has `time`, `place` and `pending`, see `Dot`. It has seen the earlier rows of its own commit, and earlier
requested commits that were not pending when its commit began. A seen commit ended before this one began, and so before
any later one began. The last entry has therefore seen every commit that any earlier entry has seen, and decides alone
which entries remain.
"""

from __future__ import annotations

import polars as pl

from crdt_mor.payloads.flat import first_of, last_of

TIME = pl.col("time")
FIRST = 10**16
"""A requested time of 17 digits before that of any commit."""


def unseen(entries: pl.DataFrame, *group: str, by: tuple[str, ...] = ("time", "place")) -> pl.DataFrame:
    """Return the entries of each group that no other entry has seen, distinct, in the order of `by`.

    Entries of a group are neighbours, and already in order unless states are merged in another order than the table's.
    `by` identifies an entry.
    """
    lines = entries.with_columns(group=first_of(*group).cum_sum())
    if not lines.select((first_of("group") | _greater(*by)).all()).item():
        lines = lines.sort("group", *by).filter(last_of("group", *by))
    alone = lines.select(first_of("group") & last_of("group")).to_series()
    several = lines.filter(~alone).select(
        (pl.col("place") == _of_last("place", "group", "time"))
        & ((_of_last("time", "group") == TIME) | _of_last("pending", "group").str.contains(_text(TIME), literal=True))
    )
    stays = alone.to_numpy(writable=True)
    stays[~stays] = several.to_series().to_numpy()
    return lines.filter(stays)


def settled(entries: pl.DataFrame, *group: str) -> pl.DataFrame:
    """Return causally stable entries with only the causal context that later entries need.

    No entry will be joined before them. Only pending commits with entries in the group matter, and their places become
    0, because no more entries of them can arrive.
    """
    lines = entries.with_columns(group=first_of(*group).cum_sum(), place=pl.lit(0, pl.Int32), pending=pl.lit(""))
    others = lines.filter(_of_last("time", "group") != TIME)
    if others.is_empty():
        return lines
    pending = others.group_by("group").agg(pending=_text(TIME.unique().sort()).str.join(","))
    return lines.update(pending, on="group", maintain_order="left")


def dotted(item: str) -> pl.Expr:
    """Make entries for values that every later commit has seen, as if one commit before all others wrote them."""
    dot = [pl.lit(FIRST, pl.Int64).alias("time"), pl.lit(0, pl.Int32).alias("place"), pl.lit("").alias("pending")]
    return pl.struct(pl.col("item").alias(item), *dot)


def _text(time: pl.Expr) -> pl.Expr:
    return time.cast(pl.String)


def _greater(*columns: str) -> pl.Expr:
    """Return True for a line that is greater than the one before it."""
    greater = pl.lit(False)
    for column in reversed(columns):
        value, before = pl.col(column), pl.col(column).shift()
        greater = (value > before) | (value == before) & greater
    return greater


def _of_last(column: str, *group: str) -> pl.Expr:
    return pl.when(last_of(*group)).then(column).backward_fill()

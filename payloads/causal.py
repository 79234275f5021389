"""What an assignment or an operation has seen of others, and so supersedes: for OR-sets and multi-value registers.

An entry is a line of `time`, `place` and `pending`, see `Dot`. It has seen the earlier rows of its own commit, and of
the commits that were requested before its own those that were not pending when it began. What a commit has seen had
ended before it began, and so before any later one began: a commit that is seen by any later one is seen by the last. So
among commits the last entry alone decides which of the others remain.
"""

from __future__ import annotations

import polars as pl

from crdt_mor.payloads.flat import first_of, last_of

TIME = pl.col("time")
FIRST = 10**16
"""A requested time of 17 digits, like all, that is before the requested time of any commit."""


def unseen(entries: pl.DataFrame, *group: str, by: tuple[str, ...] = ("time", "place")) -> pl.DataFrame:
    """The entries of each group that no other entry has seen, each once, in the order of `by`, which tells them apart.

    The entries of a group are neighbours. They are in order already, unless states are merged in another order than the
    table's.
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
    """Causally stable entries, as `unseen` gives them, with no more causal context than later entries need.

    Nothing will be joined before them any more. So of the pending commits only those of other entries of the group
    matter, and as no more entries of their commits can come, their places are 0.
    """
    lines = entries.with_columns(group=first_of(*group).cum_sum(), place=pl.lit(0, pl.Int32), pending=pl.lit(""))
    others = lines.filter(_of_last("time", "group") != TIME)
    if others.is_empty():
        return lines
    pending = others.group_by("group").agg(pending=_text(TIME.unique().sort()).str.join(","))
    return lines.update(pending, on="group", maintain_order="left")


def dotted(item: str) -> pl.Expr:
    """Entries for values that every later commit has seen, as if one commit before all others had written them."""
    dot = [pl.lit(FIRST, pl.Int64).alias("time"), pl.lit(0, pl.Int32).alias("place"), pl.lit("").alias("pending")]
    return pl.struct(pl.col("item").alias(item), *dot)


def _text(time: pl.Expr) -> pl.Expr:
    return time.cast(pl.String)


def _greater(*columns: str) -> pl.Expr:
    """Whether a line is greater than the one before it."""
    greater = pl.lit(False)
    for column in reversed(columns):
        value, before = pl.col(column), pl.col(column).shift()
        greater = (value > before) | (value == before) & greater
    return greater


def _of_last(column: str, *group: str) -> pl.Expr:
    return pl.when(last_of(*group)).then(column).backward_fill()

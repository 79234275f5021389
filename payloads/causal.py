"""What an assignment or an operation has seen of others, and so supersedes: for OR-sets and multi-value registers.

An entry is a line of `at` and `pending`, see `Dot`. It has seen the earlier rows of its own commit, and of the commits
that were requested before its own those that were not pending when it began. What a commit has seen had ended before it
began, and so before any later one began: a commit that is seen by any later one is seen by the last. So among commits
the last entry alone decides which of the others remain.
"""

from __future__ import annotations

import polars as pl

from crdt_mor import Dot
from payloads.flat import last_of

TIME = pl.col("at").str.head(Dot.TIME)


def unseen(entries: pl.DataFrame, *group: str) -> pl.DataFrame:
    """Per group the entries that no other one has seen. Entries are ordered by `group` and `at`."""
    time, pending = _of_last("time", *group), _of_last("pending", *group)
    found = entries.with_columns(time=TIME).filter(
        pl.col("at") == _of_last("at", *group, "time"),
        (pl.col("time") == time) | pending.str.contains(pl.col("time"), literal=True),
    )
    return found.drop("time")


def settled(entries: pl.DataFrame, *group: str) -> pl.DataFrame:
    """Stable entries, ordered by `group` and `at`: of what was pending, only the other entries of the group matter.

    Nothing else will come before them.
    """
    others = entries.filter(pl.col("at") != _of_last("at", *group))
    conflicts = entries.join(others, on=group, how="semi").group_by(group)
    pending = conflicts.agg(pending=TIME.unique().sort().str.join(","))
    alone = entries.drop("pending").join(pending, on=group, how="left", maintain_order="left")
    return alone.with_columns(pl.col("pending").fill_null(""))


def _of_last(column: str, *group: str) -> pl.Expr:
    return pl.when(last_of(*group)).then(column).backward_fill()

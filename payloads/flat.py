"""The lists of many keys as one flat frame, where polars is fast and a loop over lists is slow.

[[b, a], [], [c]]   flat ──►   row  0 0 2       change ──►   row  0 0 2       gathered ──►   [[a, b], [], [c]]
                               item b a c                    item a b c
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pyarrow as pa

Change = Callable[[pl.DataFrame], pl.DataFrame]
"""Takes a frame with the columns `row` and `item` and gives such a frame; both are ordered by `row`."""


def flat(lists: pl.Series) -> pl.DataFrame:
    """One line for each item; `row` is the place of its list."""
    row = np.repeat(np.arange(len(lists), dtype=np.uint32), lists.list.len().fill_null(0).to_numpy())
    return pl.DataFrame({"row": row, "item": lists.list.explode(keep_nulls=False, empty_as_null=False)})


def gathered(items: pl.DataFrame, count: int) -> pl.Series:
    """The `count` lists of a flat frame."""
    sizes = np.bincount(items["row"].to_numpy(), minlength=count)
    offsets = pa.array(np.concatenate(([0], np.cumsum(sizes))), pa.int64())
    values = items["item"].to_arrow(compat_level=pl.CompatLevel.newest())  # which copies nothing
    return pl.Series(pl.from_arrow(pa.LargeListArray.from_arrays(offsets, values)))


def each(lists: pl.Expr, change: Change) -> pl.Expr:
    """Change the items of every list; null stays null."""
    changed = lists.map_batches(lambda series: gathered(change(flat(series)), len(series)), is_elementwise=True)
    return pl.when(lists.is_not_null()).then(changed)


def concatenated(states: pl.Expr, change: Change) -> pl.Expr:
    """In `group_by(...).agg(...)`: concatenate the lists of a key, and change their items, but not their type."""
    lists = states.list.explode(keep_nulls=False, empty_as_null=False).implode()
    return lists.map_batches(
        lambda series: gathered(change(flat(series)), len(series)), pl.self_dtype(), is_elementwise=True
    )


def first_of(*columns: str) -> pl.Expr:
    """Whether a line is the first of those with its values of `columns`; lines with equal values are neighbours."""
    return pl.any_horizontal(pl.col(c).ne_missing(pl.col(c).shift()) for c in columns)


def last_of(*columns: str) -> pl.Expr:
    """Whether a line is the last of those with its values of `columns`; lines with equal values are neighbours."""
    return pl.any_horizontal(pl.col(c).ne_missing(pl.col(c).shift(-1)) for c in columns)


def by_row(lines: pl.DataFrame, column: str) -> pl.DataFrame:
    """Lines sorted by `row` and a column; equal lines stay in their order.

    Such a sort finds the runs that are sorted already, as lists of states are, and is twice as fast for it.
    """
    return lines.sort("row", column, maintain_order=True)


def sorted_distinct(items: pl.DataFrame) -> pl.DataFrame:
    """The items of each list in order, each item once, without null."""
    return by_row(items.drop_nulls("item"), "item").filter(last_of("row", "item"))

"""Many lists as one flat frame: polars is fast on frames, and a loop over lists is slow.

[[b, a], [], [c]]   flat ──►   row  0 0 2       change ──►   row  0 0 2       gathered ──►   [[a, b], [], [c]]
                               item b a c                    item a b c
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pyarrow as pa

Change = Callable[[pl.DataFrame], pl.DataFrame]
"""Maps a frame with the columns `row` and `item` to another; both are ordered by `row`."""


def flat(lists: pl.Series) -> pl.DataFrame:
    """Return one line per item; `row` is the position of its list."""
    row = np.repeat(np.arange(len(lists), dtype=np.uint32), lists.list.len().fill_null(0).to_numpy())
    return pl.DataFrame({"row": row, "item": lists.list.explode(keep_nulls=False, empty_as_null=False)})


def gathered(items: pl.DataFrame, count: int) -> pl.Series:
    sizes = np.bincount(items["row"].to_numpy(), minlength=count)
    offsets = pa.array(np.concatenate(([0], np.cumsum(sizes))), pa.int64())
    values = items["item"].to_arrow(compat_level=pl.CompatLevel.newest())  # which copies nothing
    return pl.Series(pl.from_arrow(pa.LargeListArray.from_arrays(offsets, values)))


def each(lists: pl.Expr, change: Change) -> pl.Expr:
    """Change the items of every list; null stays null."""
    changed = lists.map_batches(lambda series: gathered(change(flat(series)), len(series)), is_elementwise=True)
    return pl.when(lists.is_not_null()).then(changed)


def concatenated(states: pl.Expr, change: Change) -> pl.Expr:
    """For `group_by(...).agg(...)`: concatenate the lists of a key and change their items, but not their type."""
    lists = states.list.explode(keep_nulls=False, empty_as_null=False).implode()
    return lists.map_batches(
        lambda series: gathered(change(flat(series)), len(series)), pl.self_dtype(), is_elementwise=True
    )


def first_of(*columns: str) -> pl.Expr:
    """True for the first line with its values of `columns`; equal lines are neighbours."""
    return pl.any_horizontal(pl.col(c).ne_missing(pl.col(c).shift()) for c in columns)


def last_of(*columns: str) -> pl.Expr:
    """True for the last line with its values of `columns`; equal lines are neighbours."""
    return pl.any_horizontal(pl.col(c).ne_missing(pl.col(c).shift(-1)) for c in columns)


def by_row(lines: pl.DataFrame, column: str) -> pl.DataFrame:
    """Sort lines by `row` and a column, stably.

    A stable sort finds sorted runs, such as lists of states, and is twice as fast for them.
    """
    return lines.sort("row", column, maintain_order=True)


def sorted_distinct(items: pl.DataFrame) -> pl.DataFrame:
    """Sort the items of each list, distinct and without null."""
    return by_row(items.drop_nulls("item"), "item").filter(last_of("row", "item"))

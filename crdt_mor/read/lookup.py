"""Keys that a filter asks for: which rows of a base file may have them, and what a merge need look at.

Where the rows of a base file are in another order than that of their keys, the statistics of its row groups say nothing
of a key, as each has keys from all over; their Bloom filters do.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from crdt_mor.format.bloom import may_have
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge.blocks import RECORD_KEY, Columns
from crdt_mor.read.expressions import conjunction, conjuncts


def asked_keys(predicate: pl.Expr | None, keys: Sequence[str] | None, columns: Columns) -> pl.Expr | None:
    """The condition on the merge key that follows from a predicate, and from the keys of which alone it can hold."""
    key = columns.merge_key
    parts = [] if predicate is None else conjuncts(predicate)
    asked = [part for part in parts if set(part.meta.root_names()) == {key}]
    if keys is not None:
        wanted = pl.Series(keys, dtype=pl.String).cast(columns.schema[key], strict=False)
        asked.append(pl.col(key).is_in(wanted.implode()))
    return conjunction(asked)


def ranges_of(base: ParquetSource, keys: Sequence[str]) -> tuple[tuple[int, int], ...] | None:
    """The ranges of rows of a base file that may have some of the keys: the first row, and how many.

    Neighbouring row groups are one range. None where nothing but reading the keys can tell.
    """
    groups = may_have(base, RECORD_KEY, keys)
    if groups is None:
        return None
    ranges: list[tuple[int, int]] = []
    for first, rows in groups:
        if ranges and sum(ranges[-1]) == first:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + rows)
        else:
            ranges.append((first, rows))
    return tuple(ranges)

"""Choose the row groups of a base file that may contain matching rows.

Footer statistics answer conditions on columns, and on keys in files sorted by key. In other files Bloom filters answer.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate

import polars as pl
import pyarrow.parquet as pq

from crdt_mor.format.bloom import may_have
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge.blocks import RECORD_KEY
from crdt_mor.read.expressions import columns_in


def not_ruled_out(footer: pq.FileMetaData, condition: pl.Expr | None, types: Mapping[str, pl.DataType]) -> list[int]:
    """Return the row groups that statistics do not exclude."""
    every = list(range(footer.num_row_groups))
    if condition is None or not every:
        return every
    kinds = {name: types[name] for name in columns_in(condition)}
    # A private method of polars. In a release without the method, only polars itself skips row groups.
    skips = getattr(condition, "_skip_batch_predicate", lambda _: None)(kinds)
    if skips is None:
        return every
    series = [pl.Series("len", [footer.row_group(group).num_rows for group in every], pl.get_index_type())]
    try:
        for name, kind in kinds.items():
            low, high, nulls = zip(*(statistics(footer.row_group(group), name) for group in every), strict=True)
            series += [pl.Series(f"{name}_{end}", of, kind, strict=False) for end, of in (("min", low), ("max", high))]
            series.append(pl.Series(f"{name}_nc", nulls, pl.get_index_type()))
        skipped = pl.DataFrame(series).select(skips.fill_null(value=False).alias("skip"))["skip"]
    except pl.exceptions.PolarsError:  # nested types have no statistics
        return every
    return [group for group, skip in zip(every, skipped, strict=True) if not skip]


def may_have_keys(footer: pq.FileMetaData, groups: Collection[int], keys: Collection[str]) -> list[int]:
    """Return the row groups with a key between their minimum and maximum record key.

    Rows are sorted by the key's text, so an integer column's statistics say little: between 49 and 50 lies 4999999.
    """
    ordered = sorted(keys)

    def may_have(group: int) -> bool:
        least, greatest, _ = statistics(footer.row_group(group), RECORD_KEY)
        if not isinstance(least, str) or not isinstance(greatest, str):
            return True
        return bisect_left(ordered, least) < bisect_right(ordered, greatest)

    return [group for group in groups if may_have(group)]


def ranges_of(base: ParquetSource, keys: Sequence[str]) -> tuple[tuple[int, int], ...] | None:
    """Return the joined row ranges (first row, number of rows) that may contain the keys, by Bloom filter.

    Returns None without filters.
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


def within(footer: pq.FileMetaData, groups: Collection[int], ranges: Collection[tuple[int, int]] | None) -> list[int]:
    if ranges is None:
        return list(groups)
    starts = [0, *accumulate(footer.row_group(group).num_rows for group in range(footer.num_row_groups))]
    return [g for g in groups if any(first <= starts[g] < first + rows for first, rows in ranges)]


def statistics(group: pq.RowGroupMetaData, name: str) -> tuple[object, object, int | None]:
    """Return the minimum, maximum and number of nulls of a column; None if unknown."""
    for i in range(group.num_columns):
        chunk = group.column(i)
        if chunk.path_in_schema == name and (statistics := chunk.statistics) is not None:
            bounds = (statistics.min, statistics.max) if statistics.has_min_max else (None, None)
            return (*bounds, statistics.null_count if statistics.has_null_count else None)
    return None, None, None

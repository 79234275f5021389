"""Keys looked up in a base file whose rows are in another order than that of their keys.

The statistics of its row groups say nothing of a key, as each has keys from all over; their Bloom filters do.
"""

from __future__ import annotations

from collections.abc import Sequence

from crdt_mor.format.bloom import may_have
from crdt_mor.merge.blocks import RECORD_KEY
from crdt_mor.parquet import ParquetSource


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

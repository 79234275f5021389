"""Row orders of a base file other than by key.

    linear    by the first column, then by the second, …: a filter on the first skips most, on the last little
    z-order   by the bits of all columns in turn: a filter on any of them skips some, on all of them most

Nulls come first, NaN is the greatest float. Equal rows stay in key order. The result therefore depends on the rows
alone, and all executors of a plan write the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from crdt_mor.model.layout import Z_ORDER, Layout

Places = npt.NDArray[np.uint32]

PLACE = "_place"
_BITS = 64


def clustered_places(rows: pl.DataFrame, layout: Layout) -> pl.Series:
    """Return the positions of the rows in `layout` order. `rows` are sorted by key and contain only the layout's
    columns.
    """
    columns = rows.select(layout.columns)
    by = columns if layout.order != Z_ORDER else pl.DataFrame({"z": _z_values([*columns])})
    places = by.with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).alias(PLACE))
    return places.sort(by.columns, maintain_order=True)[PLACE]


def _z_values(columns: Sequence[pl.Series]) -> npt.NDArray[np.uint64]:
    """Return the interleaved bits of each row's positions in the columns, the first column's bit first."""
    bits = min(32, _BITS // len(columns))
    value = np.zeros(len(columns[0]), dtype=np.uint64)
    for number, column in enumerate(columns):
        share = _shares(column, bits)
        for bit in range(bits):
            at = bit * len(columns) + len(columns) - 1 - number
            value |= ((share >> np.uint64(bit)) & np.uint64(1)) << np.uint64(at)
    return value


def _shares(column: pl.Series, bits: int) -> npt.NDArray[np.uint64]:
    smaller = column.rank("min").cast(pl.Int64).fill_null(1 - column.null_count()) - 1 + column.null_count()
    return (smaller.to_numpy().astype(np.uint64) << np.uint64(bits)) // np.uint64(max(1, len(column)))

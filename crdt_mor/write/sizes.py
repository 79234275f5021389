"""How much memory rows take, by which a write is cut in parts and is told to be little or much."""

from __future__ import annotations

import polars as pl
import pyarrow as pa


def bytes_of(rows: pa.Table | pa.RecordBatch) -> int:
    """The bytes of these rows, without those of what they are a slice of.

    Releases of pyarrow that cannot count the bytes of `string_view` raise `ArrowTypeError`; polars counts them there.
    """
    size = 0
    for column in rows.columns:
        try:
            size += column.nbytes
        except pa.ArrowTypeError:
            size += int(pl.Series(column).estimated_size())
    return size

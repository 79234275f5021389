"""How much memory rows take, by which a write is cut in parts and is told to be little or much."""

from __future__ import annotations

import pyarrow as pa


def bytes_of(rows: pa.Table | pa.RecordBatch) -> int:
    """The bytes of these rows, without those of what they are a slice of.

    Releases of pyarrow that cannot tell how much of a view of texts or lists is in use raise `ArrowTypeError`; of such
    a column all is counted that it keeps in memory.
    """
    size = 0
    for column in rows.columns:
        try:
            size += column.nbytes
        except pa.ArrowTypeError:
            size += column.get_total_buffer_size()
    return size

"""The public interface of the merge kernel. The modules behind it:

blocks.py         the input of a merge      contributions.py   from blocks to narrow lines
fold.py           folding a key's lines     visible.py         the rows that a reader sees
key_condition.py  the requested keys        parts.py           large slices as small ones, and back
compaction.py     new base rows, and carried contributions
precombine.py     the rows that a transaction writes
key_words.py      keys as machine words
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from crdt_mor.columns.types import narrow
from crdt_mor.merge.at_once import MergedLogs, can_be_at_once, read_at_once, resolve_at_once
from crdt_mor.merge.key_condition import KeyCondition
from crdt_mor.merge.key_words import text_order
from crdt_mor.merge.parts import joined, parts
from crdt_mor.merge.visible import (
    Merged,
    is_late,
    merge,
    merged,
    passed_through,
    touched,
    touched_of_each,
    versions,
    written,
)

__all__ = [
    "KeyCondition", "Merged", "MergedLogs", "can_be_at_once", "in_views", "is_late", "joined", "merge", "merged",
    "parts", "passed_through", "polars_type", "read_at_once", "resolve_at_once", "text_order", "to_arrow", "touched",
    "touched_of_each", "versions", "written",
]  # fmt: skip


def polars_type(arrow: pa.DataType) -> pl.DataType:
    frame = pl.from_arrow(pa.Table.from_batches([], pa.schema([pa.field("c", arrow)])))
    assert isinstance(frame, pl.DataFrame)
    return frame.schema["c"]


def to_arrow(frame: pl.DataFrame) -> pa.Table:
    """Convert a frame to stored Arrow types: `string` and `binary` instead of views, which pyarrow cannot process."""
    table = in_views(frame)
    target = pa.schema([field.with_type(narrow(field.type)) for field in table.schema])
    return table if table.schema == target else table.cast(target)


def in_views(frame: pl.DataFrame) -> pa.Table:
    """Convert a frame without copying: text in views, or `large_string` in lists and structs.

    pyarrow refuses views in a list whose items polars has sliced off.
    """
    nested = {name: kind for name, kind in frame.schema.items() if kind.is_nested()}
    if not nested:
        return frame.to_arrow(compat_level=pl.CompatLevel.newest())
    within = frame.select([*nested]).to_arrow(compat_level=pl.CompatLevel.oldest())
    flat = frame.drop([*nested]).to_arrow(compat_level=pl.CompatLevel.newest())
    columns = {name: within[name] if name in nested else flat[name] for name in frame.columns}
    return pa.table(columns)

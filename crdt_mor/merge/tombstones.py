"""Find the winning ordered tombstones of a file slice: invisible, they still block older versions.

A migrated table needs them too. Without them, an older version that arrives later would come back to life.
"""

from __future__ import annotations

import polars as pl

from crdt_mor.merge.base_rows import BaseScan
from crdt_mor.merge.blocks import RECORD_KEY, Columns, DeleteBlock, Slice
from crdt_mor.merge.contributions import KIND, LINE_KEY, ORDER, TOMBSTONE
from crdt_mor.merge.rule import MergeRule
from crdt_mor.merge.visible import resolve


def tombstones(files: Slice, rule: MergeRule, columns: Columns) -> pl.DataFrame:
    """Return the keys whose winner is a tombstone, as `_hoodie_record_key`, with their `ordering` values."""
    assert rule.ordering is not None
    none = pl.DataFrame(schema={RECORD_KEY: pl.String(), ORDER: columns.stored[rule.ordering]})
    if not any(isinstance(block, DeleteBlock) and ORDER in block.keys.columns for block in files.blocks):
        return none
    columns = columns.by_text()
    base = None if files.base is None else BaseScan(files.base, columns, RECORD_KEY)
    deletes = resolve(files, rule, columns, RECORD_KEY, [], base, timed=True).deletes
    lines = deletes.filter(pl.col(KIND) == TOMBSTONE)
    return lines.select(pl.col(LINE_KEY).alias(RECORD_KEY), pl.col(ORDER).cast(none.schema[ORDER]))

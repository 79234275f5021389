"""The ordered tombstones that win in a file slice: readers do not see them, and they keep blocking older versions.

A copy of a table has them as well. Without them a version that comes later and is older would come back to life in it.
"""

from __future__ import annotations

import polars as pl

from crdt_mor.merge.base_rows import Scanned
from crdt_mor.merge.blocks import RECORD_KEY, Columns, DeleteBlock, Slice
from crdt_mor.merge.contributions import KIND, LINE_KEY, ORDER, TOMBSTONE
from crdt_mor.merge.rule import MergeRule
from crdt_mor.merge.visible import resolve


def tombstones(files: Slice, rule: MergeRule, columns: Columns) -> pl.DataFrame:
    """The keys whose winner is a tombstone, as `_hoodie_record_key`, each with its value in `ordering`."""
    assert rule.ordering is not None
    none = pl.DataFrame(schema={RECORD_KEY: pl.String(), ORDER: columns.stored[rule.ordering]})
    if not any(isinstance(block, DeleteBlock) and ORDER in block.keys.columns for block in files.blocks):
        return none
    columns = columns.by_text()
    base = None if files.base is None else Scanned(files.base, columns, RECORD_KEY)
    dead = resolve(files, rule, columns, RECORD_KEY, [], base, timed=True).dead
    lines = dead.filter(pl.col(KIND) == TOMBSTONE)
    return lines.select(pl.col(LINE_KEY).alias(RECORD_KEY), pl.col(ORDER).cast(none.schema[ORDER]))

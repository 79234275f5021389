"""Convert rows of Hudi's log blocks whose meaning differs from ours.

A row is a delete if one of these columns marks it:

    _hoodie_is_deleted              true
    a column that the table names   the table's marker

Hudi's Spark writers turn such rows into delete records, other writers into rows of a log block. Rows of base files are
never deletes. Partial updates of Hudi omit the user's key column; its value is the record key.
"""

from __future__ import annotations

import io
from dataclasses import replace

import polars as pl

from crdt_mor.merge.blocks import RECORD_KEY, DataBlock, DeleteBlock
from crdt_mor.model.config import TableConfig


def with_key(block: DataBlock, config: TableConfig) -> DataBlock:
    fields = config.key.fields
    if block.given is None or len(fields) > 1 or config.key.composite or fields[0] in (RECORD_KEY, *block.given):
        return block
    rows = _frame(block).with_columns(pl.col(RECORD_KEY).alias(fields[0]))
    return replace(block, rows=rows, given=(fields[0], *block.given))


def split_deletes(block: DataBlock, schema: str, config: TableConfig) -> list[DataBlock | DeleteBlock]:
    markers = {name: marker for name, marker in config.delete_markers.items() if f'"{name}"' in schema}
    if not markers:
        return [block]
    marked = pl.any_horizontal(
        (pl.col(name).cast(pl.String) == marker).fill_null(False) for name, marker in markers.items()
    )
    rows = _frame(block)
    deleted = rows.filter(marked)
    if not deleted.height:
        return [block]
    ordering = config.merge.ordering
    keys = deleted.select(RECORD_KEY, *([pl.col(ordering).alias("ordering")] if ordering in deleted.columns else []))
    kept = rows.filter(~marked)
    return [DeleteBlock(block.instant, keys), *([replace(block, rows=kept)] if kept.height else [])]


def _frame(block: DataBlock) -> pl.DataFrame:
    return block.rows if isinstance(block.rows, pl.DataFrame) else pl.read_parquet(io.BytesIO(block.rows))

"""Convert rows of Hudi's log blocks whose meaning differs from ours.

A row is a delete if one of these columns marks it:

    _hoodie_is_deleted              true
    a column that the table names   the table's marker

Hudi's Spark writers turn such rows into delete records, other writers into rows of a log block. Rows of base files are
never deletes. Partial updates of Hudi omit the user's key column; its value is the record key.

Without meta columns (`hoodie.populate.meta.fields=false`) the record key comes from the key columns, and the partition
path from the folder; commit times of rows are unknown.
"""

from __future__ import annotations

import io
from dataclasses import replace

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge.blocks import META_COLUMNS, PARTITION_PATH, RECORD_KEY, DataBlock, DeleteBlock
from crdt_mor.merge.kernel import to_arrow
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


def base_with_keys(base: ParquetSource, partition: str, config: TableConfig) -> ParquetSource:
    with base.open() as file:
        rows = file.read()
    made = _made(rows, partition, config)
    whole = pa.table({**made, **{name: rows[name] for name in rows.column_names if name not in META_COLUMNS}})
    sink = pa.BufferOutputStream()
    pq.write_table(whole, sink, compression="lz4", store_schema=False)
    return ParquetSource.in_memory(sink.getvalue().to_pybytes(), name=base.name)


def block_with_keys(block: DataBlock, partition: str, config: TableConfig) -> DataBlock:
    rows = _frame(block)
    fields = [name for name in config.key.fields if name in rows.columns]
    made = pl.from_arrow(pa.table(_made(to_arrow(rows.select(fields)), partition, config)))
    assert isinstance(made, pl.DataFrame)
    return replace(block, rows=rows.with_columns(made.get_columns()))


def _made(rows: pa.Table, partition: str, config: TableConfig) -> dict[str, pa.Array]:
    missing = [name for name in config.key.fields if name not in rows.column_names]
    if missing:
        raise UnsupportedFeatureError(
            "a file lacks key columns, and the table has no meta columns, so the keys of its rows are unknown: "
            f"compact the table with Hudi. missing={missing} partition={partition!r}"
        )

    def repeated(text: str) -> pa.Array:
        return pa.repeat(pa.scalar(text, pa.string()), rows.num_rows)

    known = {RECORD_KEY: config.key.record_keys(rows), PARTITION_PATH: repeated(partition)}
    return {name: known.get(name, repeated("")) for name in META_COLUMNS}

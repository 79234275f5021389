"""Compute keys and partition paths for Hudi tables without meta columns (`hoodie.populate.meta.fields=false`).

The record key comes from the key columns, the partition path from the folder. Commit times of rows are unknown.
"""

from __future__ import annotations

import io
from dataclasses import replace

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge.blocks import META_COLUMNS, PARTITION_PATH, RECORD_KEY, DataBlock
from crdt_mor.merge.kernel import to_arrow
from crdt_mor.model.config import TableConfig


def base_with_keys(base: ParquetSource, partition: str, config: TableConfig) -> ParquetSource:
    with base.open() as file:
        rows = file.read()
    made = _made(rows, partition, config)
    whole = pa.table({**made, **{name: rows[name] for name in rows.column_names if name not in META_COLUMNS}})
    sink = pa.BufferOutputStream()
    pq.write_table(whole, sink, compression="lz4", store_schema=False)
    return ParquetSource.in_memory(sink.getvalue().to_pybytes(), name=base.name)


def block_with_keys(block: DataBlock, partition: str, config: TableConfig) -> DataBlock:
    rows = block.rows if isinstance(block.rows, pl.DataFrame) else pl.read_parquet(io.BytesIO(block.rows))
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

"""Tables of Hudi's without meta columns (`hoodie.populate.meta.fields=false`): keys and partition paths are made here.

Their files have the five columns, and nothing in them, so that Hudi's readers make the record key from the columns of
the key whenever they merge. The partition path is that of the folder. When a row was written stays unknown.
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
    """A base file, in memory, with the keys and the partition path of its rows."""
    with base.open() as file:
        rows = file.read()
    made = _made(rows, partition, config)
    whole = pa.table({**made, **{name: rows[name] for name in rows.column_names if name not in META_COLUMNS}})
    sink = pa.BufferOutputStream()
    pq.write_table(whole, sink, compression="lz4", store_schema=False)
    return ParquetSource.in_memory(sink.getvalue().to_pybytes(), name=base.name)


def block_with_keys(block: DataBlock, partition: str, config: TableConfig) -> DataBlock:
    """A block of rows with their keys and the partition path."""
    rows = block.rows if isinstance(block.rows, pl.DataFrame) else pl.read_parquet(io.BytesIO(block.rows))
    fields = [name for name in config.key.fields if name in rows.columns]
    made = pl.from_arrow(pa.table(_made(to_arrow(rows.select(fields)), partition, config)))
    assert isinstance(made, pl.DataFrame)
    return replace(block, rows=rows.with_columns(made.get_columns()))


def _made(rows: pa.Table, partition: str, config: TableConfig) -> dict[str, pa.Array]:
    """The meta columns of rows."""
    missing = [name for name in config.key.fields if name not in rows.column_names]
    if missing:
        raise UnsupportedFeatureError(
            "a file of this table lacks columns of its key, and the table has no meta columns, so that nobody can say "
            f"whose rows these are: let Hudi compact the table. missing={missing} partition={partition!r}"
        )

    def repeated(text: str) -> pa.Array:
        return pa.repeat(pa.scalar(text, pa.string()), rows.num_rows)

    known = {RECORD_KEY: config.key.record_keys(rows), PARTITION_PATH: repeated(partition)}
    return {name: known.get(name, repeated("")) for name in META_COLUMNS}

"""Staging: rows and deletes of one instant become one log file per touched file group.

    [delete block: plain deletes][delete block: ordered tombstones][data block per set of given columns]

Files appear whole under their final names and are invisible until the instant completes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import polars as pl
import pyarrow as pa

from crdt_mor.format.base import repeating_columns, write_parquet
from crdt_mor.format.log import delete_block, parquet_block
from crdt_mor.format.properties import partition_metadata
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import Instant
from crdt_mor.model.names import LogFileName, bucket_file_id, join_path
from crdt_mor.model.schema import META_COLUMNS, TableSchema
from crdt_mor.model.timeline import DataFile
from crdt_mor.store.base import Store

KEY = "_hoodie_record_key"
PARTITION = "_hoodie_partition_path"
BUCKET = "__bucket"
PARTITION_METADATA = ".hoodie_partition_metadata"


@dataclass(frozen=True, slots=True)
class Deletes:
    """Record keys to delete. `ordering`: the tombstones' ordering values; None for plain deletes."""

    instant: Instant
    keys: pa.Array
    ordering: pa.Array | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in stored types, meta columns included. `partial`: the columns are not all the table has.

    `repeating`: the columns worth a dictionary, where they are known.
    """

    instant: Instant
    rows: pa.Table
    partial: bool = False
    repeating: tuple[str, ...] | None = None


Group = tuple[str, int]
"""A file group of ours: partition path and bucket."""


def log_file(
    config: TableConfig, schema: TableSchema, partition: str, name: LogFileName, parts: Sequence[Deletes | Rows]
) -> tuple[bytes, DataFile]:
    """The bytes of a log file, and what the commit says of it."""
    full = avro_with_meta(schema, config.name)
    blocks = []
    for part in parts:
        if isinstance(part, Deletes):
            blocks.append(delete_block(part.instant, full, part.keys, partition, part.ordering))
            continue
        text = full
        if part.partial:
            text = avro_with_meta(schema.select(part.rows.column_names), config.name)
        parquet = write_parquet(part.rows, metadata={}, repeating=part.repeating, log_block=True)
        blocks.append(parquet_block(part.instant, text, parquet, partial=part.partial))
    data = b"".join(blocks)
    rows = sum(part.rows.num_rows for part in parts if isinstance(part, Rows))
    deletes = sum(len(part.keys) for part in parts if isinstance(part, Deletes))
    return data, DataFile(join_path(partition, str(name)), len(data), rows, deletes)


@lru_cache(maxsize=256)
def avro_with_meta(schema: TableSchema, table: str) -> str:
    """The Avro JSON of a log block's rows."""
    return schema.avro_with_meta(table)


def by_group(frame: pl.DataFrame) -> Iterator[tuple[Group, pl.DataFrame]]:
    """The rows of each file group, sorted by key."""
    frame = _sorted_by_group(frame)
    for group, start, end in _runs(frame):
        yield group, frame.slice(start, end - start)


def rows_by_group(
    rows: pl.DataFrame, instant: Instant, schema: TableSchema, *, partial: bool
) -> Iterator[tuple[Group, Rows]]:
    """The rows of each file group, sorted by key, with all five meta columns; converted to Arrow in one go."""
    rows = _sorted_by_group(rows)
    buckets = rows[BUCKET].to_numpy()
    file_ids = pl.Series([bucket_file_id(bucket) for bucket in range(int(buckets.max(initial=0)) + 1)])
    table = stored_table(
        rows.select(
            pl.lit(instant).alias("_hoodie_commit_time"),
            (pl.lit(f"{instant}_0_") + pl.int_range(pl.len()).cast(pl.String)).alias("_hoodie_commit_seqno"),
            pl.col(KEY),
            pl.col(PARTITION),
            file_ids.gather(buckets).alias("_hoodie_file_name"),
            pl.exclude(*META_COLUMNS, BUCKET),
        ),
        schema,
    )
    repeating = repeating_columns(table)
    for group, start, end in _runs(rows):
        yield group, Rows(instant, table.slice(start, end - start), partial, repeating)


def _sorted_by_group(frame: pl.DataFrame) -> pl.DataFrame:
    if not frame.height:
        return frame
    if frame[PARTITION].n_unique() > 1:
        return frame.sort(PARTITION, BUCKET, KEY)
    order = frame[KEY].arg_sort().to_numpy()
    return frame[order[np.argsort(frame[BUCKET].to_numpy()[order], kind="stable")]]


def _runs(frame: pl.DataFrame) -> Iterator[tuple[Group, int, int]]:
    """Where the rows of each file group begin and end."""
    if not frame.height:
        return
    partition, bucket = frame[PARTITION], frame[BUCKET].to_numpy()
    breaks = (np.diff(bucket) != 0) | (np.diff(partition.rle_id().to_numpy()) != 0)
    for start, end in pairwise([0, *(np.flatnonzero(breaks) + 1).tolist(), frame.height]):
        yield (str(partition[start]), int(bucket[start])), start, end


def stored_table(frame: pl.DataFrame, schema: TableSchema) -> pa.Table:
    """A frame as Arrow, in exactly the types that files hold."""
    types = dict(zip(schema.stored.names, schema.stored.types, strict=True))
    target = pa.schema([pa.field(name, types.get(name, pa.string())) for name in frame.columns])
    return frame.to_arrow(compat_level=pl.CompatLevel.newest()).cast(target)


def stored_array(series: pl.Series, kind: pa.DataType) -> pa.Array:
    """A series as Arrow, in the type that files hold."""
    return series.to_arrow(compat_level=pl.CompatLevel.newest()).cast(kind)


def ensure_partition(store: Store, partition: str, instant: Instant) -> None:
    """Hudi finds partitions by this file; the first writer's stays."""
    path = join_path(partition, PARTITION_METADATA)
    if store.stat(path) is None:
        store.put(path, partition_metadata(instant, len(partition.split("/")) if partition else 0))

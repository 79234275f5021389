"""Staging: rows and deletes of one instant become one log file per touched file group.

    [delete block: plain deletes][delete block: ordered tombstones][data blocks per set of given columns]

Files appear whole under their final names and are invisible until the instant completes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from crdt_mor.errors import SnapshotExpiredError
from crdt_mor.format.base import VIEWS, repeating_columns, write_parquet
from crdt_mor.format.log import delete_block, parquet_block
from crdt_mor.format.properties import partition_metadata
from crdt_mor.merge.blocks import PARTITION_PATH, RECORD_KEY
from crdt_mor.merge.kernel import in_views, text_order
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import LogFileName, bucket_file_id, join_path
from crdt_mor.model.schema import META_COLUMNS, TableSchema
from crdt_mor.model.timeline import DataFile
from crdt_mor.store.base import Chunks, Store
from crdt_mor.threads import in_threads

BUCKET = "__bucket"
PARTITION_METADATA = ".hoodie_partition_metadata"

BLOCK_ROWS_MAX: Final = 65_536
"""The most rows of a data block. More rows become several blocks, in key order, which are encoded side by side."""


@dataclass(frozen=True, slots=True)
class Deletes:
    """Record keys to delete. `ordering`: the tombstones' ordering values; None for plain deletes."""

    instant: InstantTime
    keys: pa.Array
    ordering: pa.Array | None = None


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows in stored types, meta columns included.

    `cut(start, count)`: some of them. `repeating`: columns worth a dictionary.
    """

    height: int
    columns: Sequence[str]
    repeating: Sequence[str]
    cut: Callable[[int, int], pa.Table]

    @classmethod
    def of(cls, frame: pl.DataFrame, schema: TableSchema) -> StoredRows:
        """All rows of a frame, in its order."""

        def cut(start: int, count: int) -> pa.Table:
            return stored_table(frame.slice(start, count), schema, {})

        return cls(frame.height, frame.columns, repeating_columns(frame), cut)

    def encoded(self) -> Iterator[memoryview]:
        """Parquet files with all of the rows, in their order, at least one, encoded side by side."""
        count = max(1, -(-self.height // BLOCK_ROWS_MAX))
        step = max(1, -(-self.height // count))

        def encode(start: int) -> memoryview:
            rows = self.cut(start, min(step, self.height - start))
            return write_parquet(rows, repeating=self.repeating, log_block=True)

        return in_threads(encode, range(0, max(1, self.height), step))


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that one commit writes. `partial`: the columns are not all the table has."""

    instant: InstantTime
    rows: StoredRows
    partial: bool = False


Group = tuple[str, int]
"""A file group of ours: partition path and bucket."""


def put_log(store: Store, path: str, content: Chunks, file: DataFile, *, durable: bool = True) -> DataFile:
    """Put a log file while it is made, unless it is there: `file` with its size."""
    size, _ = put_pieces(store, path, content, durable=durable)
    return replace(file, size=size)


def put_pieces(store: Store, path: str, content: Chunks, *, durable: bool = True) -> tuple[int, bool]:
    """Put an object while it is made: its size, and whether it is this one; else it was there before, and lasts now."""
    size = 0

    def measured() -> Chunks:
        nonlocal size
        for piece in content:
            size += len(piece)
            yield piece

    if store.put(path, measured(), durable=durable):
        return size, True
    stat = store.stat(path)
    if stat is None:
        raise SnapshotExpiredError.of_file(path)
    if durable:
        store.make_durable(path)
    return stat.size, False


def log_file(
    config: TableConfig, schema: TableSchema, partition: str, name: LogFileName, parts: Sequence[Deletes | Rows]
) -> tuple[Chunks, DataFile]:
    """The pieces of a log file, made as they are taken, and what the commit says of it but for its size."""
    rows = sum(part.rows.height for part in parts if isinstance(part, Rows))
    deletes = sum(len(part.keys) for part in parts if isinstance(part, Deletes))
    return _blocks(config, schema, partition, parts), DataFile(join_path(partition, str(name)), 0, rows, deletes)


def _blocks(config: TableConfig, schema: TableSchema, partition: str, parts: Sequence[Deletes | Rows]) -> Chunks:
    full = avro_with_meta(schema, config.name)
    for part in parts:
        if isinstance(part, Deletes):
            yield from delete_block(part.instant, full, part.keys, partition, part.ordering)
            continue
        text = full
        if part.partial:
            text = avro_with_meta(schema.select(part.rows.columns), config.name)
        for parquet in part.rows.encoded():
            yield from parquet_block(part.instant, text, parquet, partial=part.partial)


@lru_cache(maxsize=256)
def avro_with_meta(schema: TableSchema, table: str) -> str:
    """The Avro JSON of a log block's rows."""
    return schema.avro_with_meta(table)


def by_group(frame: pl.DataFrame) -> Iterator[tuple[Group, pl.Series]]:
    """Which rows each file group has, by position."""
    if not frame.height:
        return
    partitions, code = _partitions(frame[PARTITION_PATH])
    buckets = frame[BUCKET].to_numpy()
    count = int(buckets.max()) + 1
    code = code * count + buckets
    small = code.astype(np.uint16) if len(partitions) * count <= 1 << 16 else code  # of 16 bits numpy sorts by radix
    order = np.argsort(small, kind="stable")
    breaks = np.flatnonzero(np.diff(code[order])) + 1
    for rows in np.split(order, breaks):
        number = int(code[rows[0]])
        yield (partitions[number // count], number % count), pl.Series(rows)


def _partitions(paths: pl.Series) -> tuple[list[str], np.ndarray]:
    """The partition paths, and for each row the number of its own."""
    found = paths.unique(maintain_order=True)
    if len(found) == 1:
        return found.to_list(), np.zeros(len(paths), dtype=np.int64)
    numbered = found.to_frame().with_row_index("number")
    number = paths.to_frame().join(numbered, on=paths.name, how="left", maintain_order="left")["number"]
    return found.to_list(), number.to_numpy().astype(np.int64)


def sorted_keys(frame: pl.DataFrame, rows: pl.Series) -> pl.Series:
    """The positions `rows` of a frame, in the order of their keys."""
    return rows.gather(text_order(frame[RECORD_KEY].gather(rows)))


def group_rows(
    frame: pl.DataFrame,
    rows: pl.Series,
    group: Group,
    instant: InstantTime,
    first: int,
    schema: TableSchema,
    writer: int = 0,
) -> pa.Table:
    """Rows of one file group as its log file has them, all five meta columns in front.

    rows: their positions in `frame`, sorted by key. first: the sequence number of the first in what `writer` stages of
        the commit.
    """
    numbers = pl.int_range(first, first + len(rows)).cast(pl.String)
    return stored_table(
        frame.select(pl.col(RECORD_KEY), pl.exclude(*META_COLUMNS, BUCKET))[rows].select(
            (pl.lit(f"{instant}_{writer}_") + numbers).alias("_hoodie_commit_seqno"), pl.all()
        ),
        schema,
        {"_hoodie_commit_time": instant, PARTITION_PATH: group[0], "_hoodie_file_name": bucket_file_id(group[1])},
    )


def stored_table(frame: pl.DataFrame, schema: TableSchema, same: Mapping[str, str]) -> pa.Table:
    """A frame as Arrow, in the types that files hold, text in views, for which nothing is copied; the meta columns in
    front.

    same: meta columns that are not in `frame` and have one value in all rows, in the order of `META_COLUMNS`. They
        become dictionaries, of which a writer need not look at every row.
    """
    types = dict(zip(schema.stored.names, schema.stored.types, strict=True))
    stored = {name: types.get(name, pa.string()) for name in frame.columns}
    table = in_views(frame).cast(pa.schema([pa.field(name, VIEWS.get(kind, kind)) for name, kind in stored.items()]))
    zeros = np.zeros(frame.height, dtype=np.int32)
    for name, value in same.items():
        column = pa.DictionaryArray.from_arrays(zeros, pa.array([value], pa.string()))
        table = table.add_column(META_COLUMNS.index(name), name, column)
    return table


def ensure_partition(store: Store, partition: str, instant: InstantTime) -> None:
    """Hudi finds partitions by this file; the first writer's stays."""
    path = join_path(partition, PARTITION_METADATA)
    if store.stat(path) is None:
        store.put(path, partition_metadata(instant, len(partition.split("/")) if partition else 0))

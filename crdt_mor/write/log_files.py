"""Encode log files, the rows and deletes of a commit in a file group, while they are put.

    [delete block: plain deletes][delete block: ordered tombstones][data blocks for each set of columns]

A file appears whole under its name, and is invisible until its commit completes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from crdt_mor.columns.schema import META_COLUMNS, TableSchema
from crdt_mor.columns.texts import integers, repeated, text_scalar
from crdt_mor.errors import CommitUnknownError, SnapshotExpiredError, StorageUnavailableError
from crdt_mor.events.write import DroppedHistoryError, TakenOverError
from crdt_mor.format.base_file import VIEWS, repeating_columns, write_parquet
from crdt_mor.format.log import delete_block, parquet_block
from crdt_mor.ground.late_imports import pc
from crdt_mor.ground.threads import in_threads
from crdt_mor.hudi.partitions import metadata_put
from crdt_mor.merge.blocks import PARTITION_PATH, RECORD_KEY
from crdt_mor.merge.kernel import in_views, text_order
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import LogFileName, join_path
from crdt_mor.model.timeline_parts import DataFile, FileGroup
from crdt_mor.store.absences import surely
from crdt_mor.store.protocol import Chunks, Durable, Store

BUCKET = "__bucket"

BLOCK_ROWS_MAX: Final = 65_536
"""Most rows in a data block. More become several blocks, encoded in parallel."""


@dataclass(frozen=True, slots=True)
class Deletes:
    """Record keys to delete. `ordering`: the tombstones' ordering values; None for plain deletes."""

    instant: InstantTime
    keys: pa.Array
    ordering: pa.Array | None = None


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows in stored types with meta columns, converted to Arrow range by range.

    cut: returns the rows of a range, by start and count. repeating: the columns worth a dictionary.
    """

    height: int
    columns: Sequence[str]
    repeating: Sequence[str]
    cut: Callable[[int, int], pa.Table]

    @classmethod
    def of(cls, frame: pl.DataFrame, schema: TableSchema) -> StoredRows:
        def cut(start: int, count: int) -> pa.Table:
            return stored_table(frame.slice(start, count), schema)

        return cls(frame.height, frame.columns, repeating_columns(frame, BLOCK_ROWS_MAX), cut)

    def encoded(self) -> Iterator[memoryview]:
        count = max(1, -(-self.height // BLOCK_ROWS_MAX))
        step = max(1, -(-self.height // count))

        def encode(start: int) -> memoryview:
            rows = self.cut(start, min(step, self.height - start))
            return write_parquet(rows, repeating=self.repeating, log_block=True)

        return in_threads(encode, range(0, max(1, self.height), step))


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows written by a commit. `partial`: they lack columns of the table. `nulls`: as in `DataBlock`."""

    instant: InstantTime
    rows: StoredRows
    partial: bool = False
    nulls: tuple[str, ...] = ()


Group = tuple[str, int]
"""A file group: partition path and bucket."""


@contextmanager
def staging() -> Iterator[None]:
    """Turn a lost reply to a staging put into a failure of the store: nothing was published.

    A file that landed anyway is reused if staged again under this name, or swept. Errors of jobs taken over or dropped
    pass unchanged.
    """
    try:
        yield
    except (DroppedHistoryError, TakenOverError):
        raise
    except CommitUnknownError as error:
        raise StorageUnavailableError(
            "the store failed while this write staged files; nothing was published, and no reader sees the files. Try "
            f"again. cause={error}"
        ) from error


def put_log(store: Store, path: str, content: Chunks, file: DataFile, *, durable: Durable = True) -> DataFile:
    """Put a log file while it is encoded, unless it exists; return `file` with the size of the existing object."""
    size, _ = put_chunks(store, path, content, durable=durable)
    return replace(file, size=size)


def put_chunks(store: Store, path: str, content: Chunks, *, durable: Durable = True) -> tuple[int, bool]:
    """Put an object while its chunks are made; return its size, and True if this call put it.

    An existing object is made durable, because others build on it.
    """
    size = 0

    def measured() -> Chunks:
        nonlocal size
        for chunk in content:
            size += len(chunk)
            yield chunk

    if store.put(path, measured(), durable=durable):
        return size, True
    stat = surely(store, path, store.stat)
    if stat is None:
        raise SnapshotExpiredError.of_file(path)
    if durable:
        store.make_durable(path)
    return stat.size, False


def in_memory(file: DataFile, content: Chunks) -> tuple[DataFile, bytes]:
    data = b"".join(content)
    return replace(file, size=len(data)), data


def log_file(
    config: TableConfig, schema: TableSchema, partition: str, name: LogFileName, parts: Sequence[Deletes | Rows]
) -> tuple[Chunks, DataFile]:
    """Return the chunks of a log file, encoded on demand, and its entry in the commit without the size."""
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
            yield from parquet_block(part.instant, text, parquet, part.partial, part.nulls)


@lru_cache(maxsize=256)
def avro_with_meta(schema: TableSchema, table: str) -> str:
    return schema.avro_with_meta(table)


def by_group(frame: pl.DataFrame) -> Iterator[tuple[Group, pl.Series]]:
    if not frame.height:
        return
    partitions, code = _partitions(frame[PARTITION_PATH])
    buckets = frame[BUCKET].to_numpy()
    count = int(buckets.max()) + 1
    code = code * count + buckets
    small = code.astype(np.uint16) if len(partitions) * count <= 1 << 16 else code  # numpy sorts 16 bits by radix
    order = np.argsort(small, kind="stable")
    breaks = np.flatnonzero(np.diff(code[order])) + 1
    for rows in np.split(order, breaks):
        number = int(code[rows[0]])
        yield (partitions[number // count], number % count), pl.Series(rows)


def _partitions(paths: pl.Series) -> tuple[list[str], np.ndarray]:
    if paths.n_unique() == 1:
        return [paths[0]], np.zeros(len(paths), dtype=np.int64)
    distinct = paths.unique(maintain_order=True)
    numbered = distinct.to_frame().with_row_index("number")
    number = paths.to_frame().join(numbered, on=paths.name, how="left", maintain_order="left")["number"]
    return distinct.to_list(), number.to_numpy().astype(np.int64)


def sorted_keys(frame: pl.DataFrame, rows: pl.Series) -> pl.Series:
    return rows.gather(text_order(frame[RECORD_KEY].gather(rows)))


def in_groups(frame: pl.DataFrame, groups: Sequence[tuple[Group, pl.Series]]) -> pl.Series:
    """Return all row positions, group by group, each in key order.

    A single sort of all keys is faster than a sort per group. groups: from `by_group`, in any order.
    """
    by_key = text_order(frame[RECORD_KEY])
    if len(groups) < 2:
        return by_key
    number = np.empty(frame.height, dtype=np.uint16 if len(groups) <= 1 << 16 else np.int64)  # as in `by_group`
    for i, (_, positions) in enumerate(groups):
        number[positions.to_numpy()] = i
    ascending = by_key.to_numpy()
    return pl.Series(ascending[np.argsort(number[ascending], kind="stable")])


def numbered_rows(
    frame: pl.DataFrame, rows: pl.Series, instant: InstantTime, first: int, schema: TableSchema, task: int | None
) -> pa.Table:
    """Return rows in log file form, without the meta columns that are constant in a file.

    rows: positions in `frame`.
    first: the first sequence number. task: the part of a distributed write, which counts separately.
    """
    names = [RECORD_KEY, *(name for name in frame.columns if name not in (*META_COLUMNS, BUCKET))]
    picked = pl.DataFrame([frame.get_column(name) for name in names])[rows]
    return numbered(stored_table(picked, schema), instant, first, task)


def numbered(rows: pa.Table, instant: InstantTime, first: int, task: int | None) -> pa.Table:
    writer = 0 if task is None else task + 1
    numbers = integers(np.arange(first, first + rows.num_rows)).cast(pa.string())
    sequence = pc.binary_join_element_wise(text_scalar(f"{instant}_{writer}_"), numbers, text_scalar(""))
    return rows.add_column(0, "_hoodie_commit_seqno", sequence)


def rows_of_group(rows: pa.Table, group: FileGroup, instant: InstantTime) -> pa.Table:
    partition, file_id = group
    return with_constants(
        rows, {"_hoodie_commit_time": instant, PARTITION_PATH: partition, "_hoodie_file_name": file_id}
    )


def stored_table(frame: pl.DataFrame, schema: TableSchema) -> pa.Table:
    return in_views(frame).cast(_stored_columns(schema, tuple(frame.columns)))


@lru_cache(maxsize=256)
def _stored_columns(schema: TableSchema, names: Sequence[str]) -> pa.Schema:
    types = dict(zip(schema.stored.names, schema.stored.types, strict=True))
    stored = {name: types.get(name, pa.string()) for name in names}
    return pa.schema([pa.field(name, VIEWS.get(kind, kind)) for name, kind in stored.items()])


def with_constants(table: pa.Table, constants: Mapping[str, str]) -> pa.Table:
    """Add constant meta columns to a table, in the order of `META_COLUMNS`.

    They are dictionaries, so that the Parquet writer need not look at every row.
    """
    names, columns = table.column_names, table.columns
    for name, value in constants.items():
        names.insert(META_COLUMNS.index(name), name)
        columns.insert(META_COLUMNS.index(name), repeated(value, table.num_rows))
    return pa.Table.from_arrays(columns, names)


def ensure_partition(store: Store, partition: str, instant: InstantTime) -> None:
    """Put the file by which Hudi finds a partition, unless it exists.

    It is put after a first data file and before the write completes; `hudi.partitions` gives the reason.
    """
    put = metadata_put(partition, instant)
    if store.stat(put.path) is None:
        store.put(put.path, put.data)

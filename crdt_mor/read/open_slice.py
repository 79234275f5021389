"""Open the files of a slice and decode them to the blocks that the kernel merges.

    base file ─► its source       log files ─► log blocks ─► data blocks and delete blocks, by START_COMMIT_TIME

`format` decodes blocks; `merge` knows no files.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import polars as pl

from crdt_mor.columns.schema import META_COLUMNS
from crdt_mor.errors import SnapshotExpiredError
from crdt_mor.format.base_file import read_footer
from crdt_mor.format.log import BlockKind, LogBlock, decode_avro, decode_deletes, read_blocks, standing
from crdt_mor.format.log_compaction import places
from crdt_mor.ground.memory import keep_freed_memory
from crdt_mor.ground.pages import check_pages
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.ground.threads import in_threads
from crdt_mor.merge.blocks import RECORD_KEY, DataBlock, DeleteBlock, Slice
from crdt_mor.merge.visible import latest_in
from crdt_mor.model.committed import Committed
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.names import LogFileName, is_own_token
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline_parts import DataFile
from crdt_mor.read.damage import check_length, is_ours, naming_damage
from crdt_mor.read.hudi_rows import base_with_keys, block_with_keys, split_deletes, with_key
from crdt_mor.store.absences import surely
from crdt_mor.store.protocol import Bucket, Store, is_bucket
from crdt_mor.store.ranges import WHOLE_BYTES_MAX

REQUESTS_OF_SLICE = 8
"""Parallel requests per slice when a scan opens many slices."""

NOTHING_AT_HAND: Final[Mapping[str, bytes]] = MappingProxyType({})

NATURAL_ORDER = 0
"""Ordering value, an int, of a delete that removes all earlier rows, also in Hudi."""


def open_slice(
    store: Store,
    slice_: FileSlice,
    config: TableConfig,
    at_once: int = REQUESTS_OF_SLICE,
    at_hand: Mapping[str, bytes] = NOTHING_AT_HAND,
    *,
    checked: bool = False,
) -> Slice:
    """Return the decoded blocks of a file slice, in START_COMMIT_TIME order.

    Args:
        at_once: parallel requests to a bucket.
        at_hand: log files in memory, by path.
        checked: check the CRCs of the logs' pages, and raise `FormatError`.
    """
    keep_freed_memory()
    base, contents = _opened(store, slice_, config, at_once, at_hand)
    logs: list[tuple[int, DataFile, LogBlock]] = []
    for order, (log, data) in enumerate(zip(slice_.logs, contents, strict=True)):
        check_length(data, log, config)
        blocks_read = list(read_blocks(data, log.path))
        if checked:
            _check_pages(blocks_read)
        logs += [(order, log, block) for block in blocks_read]
    logs = _in_place(_counted(logs, slice_.committed))
    carried = [slice_.committed is None and _is_carried(log, block) for _, log, block in logs]
    data_blocks = Counter(block.path for _, _, block in logs if block.kind is not BlockKind.DELETE)
    blocks: list[tuple[InstantTime, int, DataBlock | DeleteBlock]] = []
    opened = open_blocks([block for _, _, block in logs], carried, config, slice_.partition)
    for i, decoded in enumerate(opened):
        order, log, block = logs[i]
        parts = decoded
        if is_ours(log, config):  # the commit stores the row count, and no key is in two blocks
            continues = i > 0 and not carried[i] and _continues(block, logs[i - 1][2], config)
            height = log.rows if data_blocks[block.path] == 1 else None
            parts = [replace(p, continues=continues, height=height) if isinstance(p, DataBlock) else p for p in decoded]
        blocks += [(block.instant, order, part) for part in parts]
    blocks.sort(key=lambda b: (b[0], b[1]))  # stable: blocks of one file keep their order
    latest: str | None = None
    if base is not None and config.virtual_keys:
        latest = EPOCH  # the rows have no commit times: as in Hudi's readers, all logs come after them
    elif base is not None:
        with naming_damage(store, slice_.without(at_hand)):
            # For a base file of Hudi this needs statistics of the commit time, a column that the merge may not fetch.
            latest = read_footer(base).latest_requested or latest_in(base)
    return Slice(base, latest, tuple(block for _, _, block in blocks))


def _check_pages(blocks: Iterable[LogBlock]) -> None:
    for block in blocks:
        if block.kind is BlockKind.PARQUET:
            place = f"{block.path} offset={block.offset}"
            check_pages(ParquetSource.in_memory(bytes(block.content), name=place))


def _counted(
    logs: list[tuple[int, DataFile, LogBlock]], committed: Committed | None
) -> list[tuple[int, DataFile, LogBlock]]:
    """Drop blocks undone by a rollback command or of other commits."""
    stands = standing([block for _, _, block in logs])
    left = [log for log, stands_ in zip(logs, stands, strict=True) if stands_]
    return left if committed is None else [log for log in left if committed.has(log[2].instant)]


def _in_place(logs: list[tuple[int, DataFile, LogBlock]]) -> list[tuple[int, DataFile, LogBlock]]:
    """Drop blocks replaced by Hudi's log compaction, and place its own."""
    placed = zip(logs, places([block for _, _, block in logs]), strict=True)
    return [
        (order, log, block if at == block.instant else replace(block, instant=at))
        for (order, log, block), at in placed
        if at is not None
    ]


def _is_carried(log: DataFile, block: LogBlock) -> bool:
    return isinstance(log.name, LogFileName) and block.instant != log.name.instant and not block.stands_for


def _opened(
    store: Store, slice_: FileSlice, config: TableConfig, at_once: int, at_hand: Mapping[str, bytes]
) -> tuple[ParquetSource | None, list[memoryview]]:
    """Return the base file and log contents, fetched in parallel."""
    if not is_bucket(store):
        logs = [_held(at_hand, log) or _view(store, log.path) for log in slice_.logs]
        return base_of(store, slice_, config), logs

    def ask(file: DataFile) -> ParquetSource | memoryview:
        if file is not slice_.base:
            return _held(at_hand, file) or _log_in_bucket(store, file, config)
        with naming_damage(store, slice_.without(at_hand)):
            source = base_of(store, slice_, config)
            assert source is not None
            read_footer(source)
        return source

    base: ParquetSource | None = None
    contents: list[memoryview] = []
    for answer in in_threads(ask, slice_.files, at_once):
        if isinstance(answer, ParquetSource):
            base = answer
        else:
            contents.append(answer)
    return base, contents


def _held(at_hand: Mapping[str, bytes], log: DataFile) -> memoryview | None:
    data = at_hand.get(log.path)
    return None if data is None else memoryview(data)


def _log_in_bucket(store: Bucket, log: DataFile, config: TableConfig) -> memoryview:
    if not is_ours(log, config):
        return _view(store, log.path)
    try:
        return memoryview(store.ranges_of(log.path, log.size).read(0, log.size))
    except FileNotFoundError as error:
        raise SnapshotExpiredError.of_file(log.path) from error


def _view(store: Store, path: str) -> memoryview:
    data = surely(store, path, store.view)
    if data is None:
        raise SnapshotExpiredError.of_file(path)
    return data


def base_of(store: Store, slice_: FileSlice, config: TableConfig) -> ParquetSource | None:
    if slice_.base is None:
        return None
    source = base_source(store, slice_.base)
    return base_with_keys(source, slice_.partition, config) if config.virtual_keys else source


def base_source(store: Store, base: DataFile) -> ParquetSource:
    """Open a base file; raise `SnapshotExpiredError` if it is gone.

    An overwrite's base file at its staging path (`hudi.overwrite`) is read into memory, because it may be renamed at
    any moment.
    """
    if is_bucket(store) and base.size and not base.staged and is_own_token(base.name.token):
        # Reading notices a missing file.
        return ParquetSource(base.path, ranges=store.ranges_of(base.path, base.size))
    source = store.parquet(base.path) if base.staged else surely(store, base.path, store.parquet)
    if source is None and base.staged:
        data = store.read(base.staged)
        if data is not None:
            return ParquetSource.in_memory(data, name=base.path)
        source = surely(store, base.path, store.parquet)
    if source is None:
        raise SnapshotExpiredError.of_file(base.path)
    return source


def fetch_end(store: Bucket, file: DataFile) -> None:
    kept = file.is_base or file.size <= WHOLE_BYTES_MAX
    if kept and file.size and not file.staged and is_own_token(file.name.token):
        with suppress(FileNotFoundError):
            store.ranges_of(file.path, file.size).read(file.size - 1, 1)


def _continues(block: LogBlock, before: LogBlock, config: TableConfig) -> bool:
    """Return True if a block continues the previous block's rows, of the same file and commit.

    In our own files each key of a commit is in one block, so the two share no key.
    """
    rows = block.kind is before.kind is BlockKind.PARQUET and not block.partial and not config.delete_markers
    return rows and (block.path, block.instant, block.schema) == (before.path, before.instant, before.schema)


def open_blocks(
    blocks: Sequence[LogBlock], carried: Sequence[bool], config: TableConfig, partition: str
) -> list[list[DataBlock | DeleteBlock]]:
    """Decode log blocks for the kernel; a log block may become two.

    `carried` marks blocks of a compaction's carry; their rows keep their own requested times.
    """
    of_deletes = [block for block in blocks if block.kind is BlockKind.DELETE]
    deletes = iter(decode_deletes(of_deletes) if of_deletes else [])
    return [
        _open_deletes(block, next(deletes), config)
        if block.kind is BlockKind.DELETE
        else _open_rows(block, carry, config, partition)
        for block, carry in zip(blocks, carried, strict=True)
    ]


def _open_rows(block: LogBlock, carry: bool, config: TableConfig, partition: str) -> list[DataBlock | DeleteBlock]:
    columns = _user_columns(block.schema) if block.partial else None
    rows: memoryview | pl.DataFrame = block.content
    if block.kind is BlockKind.AVRO:
        frame = pl.from_arrow(decode_avro(block))
        assert isinstance(frame, pl.DataFrame)
        rows = frame
    data = DataBlock(block.instant, rows, columns, own_times=carry, unset=config.unset_values, nulls=block.nulls)
    keyed = block_with_keys(data, partition, config) if config.virtual_keys else with_key(data, config)
    return split_deletes(keyed, block.schema, config) if config.delete_markers else [keyed]


@lru_cache(maxsize=256)
def _user_columns(schema: str) -> tuple[str, ...]:
    fields = [field["name"] for field in json.loads(schema)["fields"]]
    return tuple(name for name in fields if name not in META_COLUMNS)


def _open_deletes(block: LogBlock, deletes: pl.DataFrame, config: TableConfig) -> list[DataBlock | DeleteBlock]:
    merge = config.merge
    keys = deletes["record_key"].alias(RECORD_KEY).to_frame()
    ordering = deletes["ordering"]
    if merge.kind == "latest" and not merge.hudi_commit_time and ordering.dtype == pl.String:
        # In a carry, each delete keeps its own requested time.
        carried = bool({ordering.min(), ordering.max()} - {None, block.instant})
        return [DeleteBlock(block.instant, keys.with_columns(ordering.alias("time")) if carried else keys)]
    if merge.ordering is None or ordering.dtype == pl.Null:
        return [DeleteBlock(block.instant, keys)]
    keys = keys.with_columns(ordering)
    plain = pl.col("ordering").is_null()
    if ordering.dtype == pl.Int32 and not block.ordered:
        plain = plain | (pl.col("ordering") == NATURAL_ORDER)
    parts = [keys.filter(plain).drop("ordering"), keys.filter(~plain)]
    return [DeleteBlock(block.instant, part) for part in parts if part.height]

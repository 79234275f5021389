"""A log file, reread block by block: its bytes, whose they are, and that no key is in it twice."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import polars as pl
import pyarrow as pa

from crdt_mor.errors import FormatError
from crdt_mor.format.deletes import are_of_partition
from crdt_mor.format.log import BlockKind, LogBlock, decode_deletes, read_blocks
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.laws.merging import Merging
from crdt_mor.merge.blocks import COMMIT_TIME, PARTITION_PATH, RECORD_KEY
from crdt_mor.model.config import TableConfig
from crdt_mor.model.keys import buckets
from crdt_mor.model.names import COMMIT, bucket_of_file_id
from crdt_mor.model.timeline_parts import Completion, DataFile
from crdt_mor.services.verify_rows import Faults, ask_states
from crdt_mor.services.verify_schema import schema_fault
from crdt_mor.services.verify_told import Schemas

_FILE_NAME: Final = "_hoodie_file_name"


def ask_log(
    data: bytes | memoryview,
    file: DataFile,
    commit: Completion,
    config: TableConfig,
    merging: Merging,
    schemas: Schemas,
    faults: Faults,
) -> None:
    """Read all blocks of a log file of ours. commit: the one that wrote it, a compaction of a carry."""
    with faults.reading("Parquet in a block"):
        blocks = read_blocks(data, file.path)
        keys = [_keys_of(block, file, commit, config, merging, schemas, faults) for block in blocks]
    if faults.is_fatal:
        return
    carried = _is_carry(commit)
    for what, kind, said in (("rows", BlockKind.PARQUET, file.rows), ("deletes", BlockKind.DELETE, file.deletes)):
        of_kind = [some for block, some in zip(blocks, keys, strict=True) if block.kind is kind]
        count = sum(map(len, of_kind))
        if count != said:
            faults.fail("rows", f"its commit says another number of {what}. {what}={said} found={count}")
        _ask_once([] if carried else of_kind, what, faults)


def ask_log_of_hudi(data: bytes | memoryview, file: DataFile, faults: Faults) -> None:
    """Read the blocks of a log file that Hudi wrote; what is in them, the merge reads."""
    with faults.reading("Parquet in a block"), suppress(pa.ArrowNotImplementedError):
        for block in read_blocks(data, file.path):
            if block.kind is BlockKind.PARQUET:
                _rows_of(block)


def _is_carry(commit: Completion) -> bool:
    """Whether the logs of a commit are carries: a commit of ours that is no write has no others."""
    return commit.action == COMMIT


def _keys_of(
    block: LogBlock,
    file: DataFile,
    commit: Completion,
    config: TableConfig,
    merging: Merging,
    schemas: Schemas,
    faults: Faults,
) -> pl.Series:
    """The keys of a block's rows or deletes, once it is seen to be of this file."""
    if _is_carry(commit):
        if block.instant >= file.name.instant:
            faults.fail("another file", f"it has a block of a later instant. found={block.instant} {_at(block)}")
    elif block.instant != file.name.instant:
        faults.fail("another file", f"it has a block of another commit. found={block.instant} {_at(block)}")
    if (wrong := schemas.fault(block.record if block.kind is BlockKind.DELETE else block.schema)) is not None:
        raise FormatError(f"{wrong} {_at(block)}")
    if block.kind is BlockKind.PARQUET:
        stored = _rows_of(block)
        if (wrong := schema_fault(block.schema, stored.schema)) is not None:
            raise FormatError(f"{wrong} {_at(block)}")
        rows = pl.DataFrame(pl.from_arrow(stored))
        _ask_rows(rows, block, file, commit, faults)
        ask_states(merging, rows, faults)
        keys = rows[RECORD_KEY]
    elif block.kind is BlockKind.DELETE:
        keys = decode_deletes([block])[0]["record_key"]
        if not are_of_partition(block.content, file.partition, len(keys)):
            faults.fail("another file", f"it has deletes of another partition. {_at(block)}")
    else:
        raise FormatError(f"a block of a kind that this release does not write. kind={block.kind.name} {_at(block)}")
    _ask_bucket(keys, block, file, config, faults)
    return keys


def _rows_of(block: LogBlock) -> pa.Table:
    with ParquetSource.in_memory(bytes(block.content), name=block.path).open_checked() as parquet:
        return parquet.read()


def _ask_rows(rows: pl.DataFrame, block: LogBlock, file: DataFile, commit: Completion, faults: Faults) -> None:
    for name, expected in ((PARTITION_PATH, file.partition), (_FILE_NAME, file.name.file_id)):
        for found in rows[name].unique() if not (name == _FILE_NAME and _is_carry(commit)) else ():
            if found != expected:
                faults.fail("another file", f"it has the rows of another one. {name}={found!r} {_at(block)}")
    times = rows[COMMIT_TIME].unique()
    wrong = [t for t in times if t != block.instant and not (_is_carry(commit) and t < file.name.instant)]
    if wrong:
        faults.note("time", f"a row bears another time than its block. found={wrong[0]} {_at(block)}", len(wrong))


def _ask_bucket(keys: pl.Series, block: LogBlock, file: DataFile, config: TableConfig, faults: Faults) -> None:
    own = bucket_of_file_id(file.name.file_id)
    if own is None or config.buckets is None or not len(keys):
        return
    made = buckets(keys.to_arrow(), config.key, config.buckets)
    wrong = (made != own).nonzero()[0]
    if len(wrong):
        said = f"it has a key of another bucket. key={keys[int(wrong[0])]!r} bucket={made[wrong[0]]} {_at(block)}"
        faults.note("bucket", said, len(wrong))


def _ask_once(keys: Sequence[pl.Series], what: str, faults: Faults) -> None:
    """No key is in a file twice."""
    every = pl.concat(keys) if keys else pl.Series([], dtype=pl.String)
    twice = every.filter(every.is_duplicated())
    if len(twice):
        faults.note("key twice", f"a key has several {what} in one commit. key={twice[0]!r}", len(twice))


def _at(block: LogBlock) -> str:
    return f"offset={block.offset}"

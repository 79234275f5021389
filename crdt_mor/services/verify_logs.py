"""Check a log file: bytes, owner, and unique keys."""

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
    """Check all blocks of our log file. commit: its writer; a compaction for a carry."""
    with faults.reading("Parquet in a block"):
        blocks = read_blocks(data, file.path)
        found = [_keys_of(block, file, commit, config, merging, schemas, faults) for block in blocks]
    if faults.is_fatal:
        return
    for what, said in (("rows", file.rows), ("deletes", file.deletes)):
        count = sum(len(keys) for kind, keys in found if kind.endswith(what))
        if count != said:
            faults.fail("rows", f"the number of {what} differs from the commit. {what}={said} found={count}")
    for kind in dict.fromkeys(kind for kind, _ in found) if not _is_carry(commit) else ():
        _ask_once([keys for other, keys in found if other == kind], kind, faults)


def ask_log_of_hudi(data: bytes | memoryview, file: DataFile, faults: Faults) -> None:
    with faults.reading("Parquet in a block"), suppress(pa.ArrowNotImplementedError):
        for block in read_blocks(data, file.path):
            if block.kind is BlockKind.PARQUET:
                _rows_of(block)


def _is_carry(commit: Completion) -> bool:
    """Return True if the logs of a commit are carries: our compactions write no other logs."""
    return commit.action == COMMIT


def _keys_of(
    block: LogBlock,
    file: DataFile,
    commit: Completion,
    config: TableConfig,
    merging: Merging,
    schemas: Schemas,
    faults: Faults,
) -> tuple[str, pl.Series]:
    """Return a block's keys, and their kind: a key may have a row, a plain and an ordered delete in one commit."""
    if _is_carry(commit):
        if block.instant >= file.name.instant:
            faults.fail("another file", f"a block of a later instant. found={block.instant} {_at(block)}")
    elif block.instant != file.name.instant:
        faults.fail("another file", f"a block of another commit. found={block.instant} {_at(block)}")
    if (wrong := schemas.fault(block.record)) is not None:
        raise FormatError(f"{wrong} {_at(block)}")
    if block.kind is BlockKind.PARQUET:
        stored = _rows_of(block)
        if (wrong := schema_fault(block.schema, stored.schema)) is not None:
            raise FormatError(f"{wrong} {_at(block)}")
        rows = pl.DataFrame(pl.from_arrow(stored))
        _ask_rows(rows, block, file, commit, faults)
        ask_states(merging, rows, faults)
        kind, keys = "rows", rows[RECORD_KEY]
    elif block.kind is BlockKind.DELETE:
        kind, keys = "ordered deletes" if block.ordered else "plain deletes", decode_deletes([block])[0]["record_key"]
        if not are_of_partition(block.content, file.partition, len(keys)):
            faults.fail("another file", f"deletes of another partition. {_at(block)}")
    else:
        raise FormatError(f"this release writes no blocks of this kind. kind={block.kind.name} {_at(block)}")
    _ask_bucket(keys, block, file, config, faults)
    if kind == "rows" and merging.rule.has_orders:  # a key may have several, each with its own ordering value
        ordering = pl.col(str(merging.rule.ordering)).cast(pl.String)
        keys = rows.select(pl.format("{} with ordering value {}", RECORD_KEY, ordering)).to_series()
    return kind, keys


def _rows_of(block: LogBlock) -> pa.Table:
    with ParquetSource.in_memory(bytes(block.content), name=block.path).open_checked() as parquet:
        return parquet.read()


def _ask_rows(rows: pl.DataFrame, block: LogBlock, file: DataFile, commit: Completion, faults: Faults) -> None:
    for name, expected in ((PARTITION_PATH, file.partition), (_FILE_NAME, file.name.file_id)):
        for found in rows[name].unique() if not (name == _FILE_NAME and _is_carry(commit)) else ():
            if found != expected:
                faults.fail("another file", f"rows of another file. {name}={found!r} {_at(block)}")
    times = rows[COMMIT_TIME].unique()
    wrong = [t for t in times if t != block.instant and not (_is_carry(commit) and t < file.name.instant)]
    if wrong:
        faults.note("time", f"a row's time differs from its block. found={wrong[0]} {_at(block)}", len(wrong))


def _ask_bucket(keys: pl.Series, block: LogBlock, file: DataFile, config: TableConfig, faults: Faults) -> None:
    own = bucket_of_file_id(file.name.file_id)
    if own is None or config.buckets is None or not len(keys):
        return
    made = buckets(keys.to_arrow(), config.key, config.buckets)
    wrong = (made != own).nonzero()[0]
    if len(wrong):
        said = f"a key of another bucket. key={keys[int(wrong[0])]!r} bucket={made[wrong[0]]} {_at(block)}"
        faults.note("bucket", said, len(wrong))


def _ask_once(keys: Sequence[pl.Series], what: str, faults: Faults) -> None:
    every = pl.concat(keys) if keys else pl.Series([], dtype=pl.String)
    twice = every.filter(every.is_duplicated())
    if len(twice):
        faults.note("key twice", f"one commit contains several {what} of a key. key={twice[0]!r}", len(twice))


def _at(block: LogBlock) -> str:
    return f"offset={block.offset}"

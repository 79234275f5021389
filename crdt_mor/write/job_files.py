"""Place the staged files of a distributed write: one log file per file group, under its final name.

A group's only file is copied. Blocks of several tasks with many rows and disjoint keys are concatenated. Otherwise the
files are read back as statements and folded in the order of the tasks.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

import polars as pl

from crdt_mor.columns.schema import META_COLUMNS
from crdt_mor.errors import InvalidInputError, StorageUnavailableError
from crdt_mor.events import job
from crdt_mor.format.log import read_log
from crdt_mor.ground.threads import groups_in_threads
from crdt_mor.log import stopping
from crdt_mor.merge.blocks import PARTITION_PATH, RECORD_KEY, DataBlock, DeleteBlock
from crdt_mor.merge.kernel import touched
from crdt_mor.merge.precombine import DeleteWrite, RowsWrite
from crdt_mor.model.names import LogFileName, bucket_of_file_id, join_path
from crdt_mor.model.timeline_parts import DataFile, FileGroup
from crdt_mor.read.open_slice import open_blocks
from crdt_mor.store.absences import surely
from crdt_mor.store.at_once import FILES_AT_ONCE
from crdt_mor.write.job_values import Receipt, StagedFile
from crdt_mor.write.log_files import BUCKET, Group
from crdt_mor.write.open_write import OpenWrite
from crdt_mor.write.statements import Operation, Statement, has_places, refuse_repeats

JOINED_ROWS_MIN: Final = 8_192
"""Least average rows per task for concatenating blocks: a block costs a reader as much as some thousand rows."""


def place_files(write: OpenWrite, operation: Operation, receipts: Sequence[Receipt]) -> list[DataFile]:
    """Give each touched file group its log file, under a name that no other driver uses."""
    drivers = write.take_over()
    if stopping.blocking_token(write.require_pending(), write.token) is not None:
        return []  # completing finds the earlier commit
    groups: dict[Group, list[tuple[Receipt, StagedFile]]] = {}
    for receipt in sorted(receipts, key=lambda r: r.task):
        for staged in receipt.files:
            groups.setdefault(bucket_of(staged.file.group), []).append((receipt, staged))

    def place(group: Group) -> DataFile:
        parts = groups[group]
        if write.file_ids.misplaced(staged.file for _, staged in parts):
            return _fold(write, operation, parts)  # rows contain their file group
        if len(parts) == 1:
            return _copy(write, parts[0][1])
        return _join(write, [staged for _, staged in parts]) or _fold(write, operation, parts)

    def size(group: Group) -> int:
        return sum(staged.file.size for _, staged in groups[group]) if len(groups[group]) > 1 else 0

    # in threads on a disk too: its journal makes the files of several threads durable together
    limit = write.session.memory_limit
    files = list(groups_in_threads(place, sorted(groups), size, limit, FILES_AT_ONCE))
    if drivers > 1:
        write.session.run(job.remove_files_of_earlier_drivers(write.begun.requested, drivers))
    return files


def _copy(write: OpenWrite, staged: StagedFile) -> DataFile:
    name = replace(staged.file.name, token=write.write_token)
    file = replace(staged.file, path=join_path(staged.file.partition, str(name)))
    write.expect_file(file)
    store = write.session.store
    try:
        store.copy(staged.path, file.path)
    except StorageUnavailableError:
        write.require_pending()  # a rollback removes the staged files
        raise
    write.note_placed(file)
    stat = store.stat(file.path)
    _require_whole(write, staged, None if stat is None else stat.size)
    return file


def _require_whole(write: OpenWrite, staged: StagedFile, size: int | None) -> None:
    if size != staged.file.size:
        write.require_pending()
        raise InvalidInputError(
            "a staged file differs from the file its task wrote, as after a power cut: plan the write again. "
            f"file={staged.path} size={size} written={staged.file.size}"
        )


def _join(write: OpenWrite, parts: Sequence[StagedFile]) -> DataFile | None:
    """Concatenate the blocks of several tasks; None if they are small or may share a key.

    Files with deletes are folded, because deletes precede all rows of a file.
    """
    rows = sum(staged.file.rows for staged in parts)
    if rows < JOINED_ROWS_MIN * len(parts) or any(staged.file.deletes for staged in parts):
        return None
    contents = [_content(write, staged) for staged in parts]
    columns = write.statements.merging.columns
    opened = [_blocks(write, staged, data) for staged, data in zip(parts, contents, strict=True)]
    keys = pl.concat([touched(blocks, columns) for blocks in opened])
    if keys.n_unique() < len(keys):
        return None
    name = replace(parts[0].file.name, token=write.write_token)
    return write.put(DataFile(join_path(parts[0].file.partition, str(name)), 0, rows), contents)


def _fold(write: OpenWrite, operation: Operation, parts: Sequence[tuple[Receipt, StagedFile]]) -> DataFile:
    refuse_crowded(write, [receipt for receipt, _ in parts])
    statements = [statement for _, staged in parts for statement in reopen(write, staged)]
    if operation == "INSERT":
        keys = [s.rows.select(RECORD_KEY, PARTITION_PATH) for s in statements if isinstance(s, RowsWrite)]
        refuse_repeats(pl.concat(keys))
    (file,) = write.stage(statements, write.put)
    return file


def refuse_crowded(write: OpenWrite, receipts: Sequence[Receipt]) -> None:
    crowded = next((r for r in receipts if not has_places(r.task, r.rows)), None)
    if crowded is not None and _keeps_states(write):
        raise InvalidInputError(
            "too many tasks or rows to tell one task's writes of a key from another's: bring the rows of each file "
            f"group together first, by file_groups. task={crowded.task} rows={crowded.rows}"
        )


def _keeps_states(write: OpenWrite) -> bool:
    """Return True if a payload keeps a state, and may tell writes of a commit apart by their places."""
    return any(member.hidden is not None for member in write.statements.merging.rule.members)


def reopen(write: OpenWrite, staged: StagedFile) -> list[Statement]:
    group = of_group(staged.file.group)
    rule = write.statements.merging.rule
    statements: list[Statement] = []
    for block in _blocks(write, staged, _content(write, staged)):
        if not isinstance(block, DataBlock):
            statements.append(DeleteWrite(block.keys.drop("time", strict=False).with_columns(**group)))
            continue
        assert not isinstance(block.rows, pl.DataFrame)
        rows = pl.read_parquet(io.BytesIO(block.rows))
        states = rule.stored([name for name in rows.columns if name not in META_COLUMNS])
        columns = tuple(states) if write.session.config.merge.custom else None
        statements.append(RowsWrite(rows.select(*states, RECORD_KEY).with_columns(**group), columns, block.nulls))
    return statements


def _content(write: OpenWrite, staged: StagedFile) -> memoryview:
    data = surely(write.session.store, staged.path, write.session.store.view)
    if data is None:
        write.require_pending()
        raise InvalidInputError(f"a staged file is gone: plan the write again. file={staged.path}")
    _require_whole(write, staged, len(data))
    return data


def _blocks(write: OpenWrite, staged: StagedFile, data: memoryview) -> list[DataBlock | DeleteBlock]:
    assert isinstance(staged.file.name, LogFileName)
    blocks = read_log(data, staged.path)
    config, partition = write.session.config, staged.file.partition
    return list(chain.from_iterable(open_blocks(blocks, [False] * len(blocks), config, partition)))


def bucket_of(group: FileGroup) -> Group:
    partition, file_id = group
    bucket = bucket_of_file_id(file_id)
    assert bucket is not None, "writes refuse tables with other file groups"
    return partition, bucket


def of_group(group: FileGroup) -> dict[str, pl.Expr]:
    partition, bucket = bucket_of(group)
    return {PARTITION_PATH: pl.lit(partition), BUCKET: pl.lit(bucket, pl.Int32)}

"""A write whose rows are staged by many processes, and which is still one commit.

    driver    plan      the columns are checked and the schema grows, before anything runs; nothing has begun yet
    tasks     stage     the first to come begins the write, the others join it by its ticket; each puts whole log files
                        below `.hoodie/.crdt_mor/staged`, and returns a receipt
    driver    complete  gives the files that the receipts name their final names, and publishes one commit

Hudi's readers believe every log file of a completed instant by its name. So no task ever writes under a final name:
what failed, repeated, speculative and late tasks stage lies where nobody looks, and goes with the write, or is swept.

The write begins with its first task, since what runs before may take hours in which nobody could keep it alive. While
tasks run they touch its heartbeat. Each process may be another one, and all that they share is the `WriteJob`.

A file group gets one log file a commit, each key in it at most once. Where several tasks staged rows of one group, the
driver folds them in the order of the tasks, as if one process had written them all. So whoever brings the rows of a
group together first, by `file_groups`, saves the driver this work.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import polars as pl
import pyarrow as pa

from crdt_mor.errors import CommitUnknownError, InvalidInputError, StorageUnavailableError, WriterExpiredError
from crdt_mor.format.log import read_log
from crdt_mor.merge.blocks import DataBlock
from crdt_mor.merge.precombine import DeleteWrite, RowsWrite
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import EPOCH, Instant
from crdt_mor.model.names import LogFileName, bucket_of_file_id
from crdt_mor.model.schema import META_COLUMNS, TableSchema
from crdt_mor.model.timeline import DataFile, FileGroup, Pending, Timeline
from crdt_mor.ops import lifecycle
from crdt_mor.ops.heartbeat import beating
from crdt_mor.ops.protocol import find_completion
from crdt_mor.ops.read import in_threads, open_blocks
from crdt_mor.ops.session import Session
from crdt_mor.ops.stage import BUCKET, KEY, PARTITION, put_log
from crdt_mor.ops.write import (
    Operation,
    SchemaMode,
    Write,
    begin,
    has_places,
    keyed,
    refuse_repeats,
    require_bucketed,
    require_own_groups,
    require_writable,
)
from crdt_mor.store.base import Pieces


@dataclass(frozen=True, slots=True)
class Job:
    """What all processes of a distributed write know. `name`: nobody else's, and the nonce of its begin.

    repeated: the token was used before, so that nothing is written. table_id: the table's; None where it had none yet.
    """

    name: str
    operation: Operation
    plain: bool = False
    token: tuple[str, int] | None = None
    repeated: bool = False
    table_id: str | None = None


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A log file that waits for its final name, `file.path`, at `path`."""

    path: str
    file: DataFile


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one task staged of the write that was requested at `requested`; None: nothing, its token was used before."""

    task: int
    requested: Instant | None = None
    rows: int = 0
    files: tuple[StagedFile, ...] = ()


def plan(
    session: Session,
    operation: Operation,
    schema: pa.Schema,
    mode: SchemaMode,
    plain: bool,
    token: tuple[str, int] | None,
) -> Job:
    """Check what can be checked without rows; then `mode="merge"` grows the table's schema.

    The columns stay if the rows are refused later: growth that waited for them might meet another writer's by then.
    """
    require_writable(session)
    session.adopt()
    tail = session.tail()
    require_own_groups(tail)
    name = session.environment.nonce()
    if lifecycle.used_token(tail, token) is not None:
        lifecycle.check_token(tail, token)
        return Job(name, operation, plain, token, repeated=True, table_id=tail.table_id)
    rehearsal = Write(session, tail, Pending(EPOCH, name, tail.version))
    _state(rehearsal, schema.empty_table(), operation, mode, plain)
    rehearsal.publish_growth()
    return Job(name, operation, plain, token, table_id=tail.table_id)


def stage(session: Session, job: Job, read: Callable[[], pa.Table], task: int) -> Receipt:
    """Stage the rows that `read()` gives as log files that nobody sees yet."""
    session.require_table(job.table_id)
    if job.repeated:
        return Receipt(task)
    value, begun = begin(session, job.name)
    store = session.store
    store.touch(lifecycle.heartbeat_path(begun.requested))  # the process may be gone before its first beat
    try:
        with beating(store, begun.requested, session.expiry_ms):
            rows = read()
            write = Write(session, value, begun, task=task)

            def put(file: DataFile, data: Pieces) -> StagedFile:
                write.require_pending()
                path = f"{lifecycle.STAGED}/{begun.requested}-{session.environment.nonce()}"
                return StagedFile(path, put_log(store, path, data, file, durable=False))  # copying makes it durable

            statements = _state(write, rows, job.operation, "strict", job.plain) if rows.num_rows else []
            files = tuple(write.stage(statements, put))
            write.require_pending()
    except WriterExpiredError:  # who ended the write, by a commit or not, did not see what came here meanwhile
        _clear(session, job, begun)
        with suppress(StorageUnavailableError):
            store.delete(lifecycle.heartbeat_path(begun.requested))
        raise
    return Receipt(task, begun.requested, rows.num_rows, files)


def complete(
    session: Session, job: Job, receipts: Sequence[Receipt], token: tuple[str, int] | None
) -> lifecycle.Committed:
    """Publish what the receipts name as one commit; whatever else was staged of this write is removed."""
    session.require_table(job.table_id)
    token = token or job.token
    _refuse_tasks_twice(receipts)
    if job.repeated:
        tail = session.settled()
        assert token is not None
        return lifecycle.Committed(lifecycle.check_token(tail, token), tail, repeated=True)
    requested = _requested(receipts)
    done = session.run(find_completion(requested, session.tail())) if requested else None
    if done is not None:  # this very call was made before, and its reply was lost
        return lifecycle.Committed(done, session.settled(), repeated=True)
    if requested is None:
        value, begun = begin(session, job.name)
    else:
        ticket = session.run(lifecycle.read_ticket(job.name))
        if ticket is None or ticket[1].requested != requested:
            raise lifecycle.expired(requested)
        value, begun = ticket
    write = Write(session, value, begun, token)
    write.keep_alive()
    try:
        return write.commit(partial(_place, write, job, receipts), job.operation)
    finally:
        _clear(session, job, begun)


def abandon(session: Session, job: Job) -> None:
    """Roll the write back, if it has begun, and remove what its tasks staged."""
    ticket = session.run(lifecycle.read_ticket(job.name))
    if ticket is None:
        begun = session.tail().find_begun(job.name)
        if not isinstance(begun, Pending):
            return
        ticket = session.tail(), begun
    _abandon(session, *ticket)


def file_groups(config: TableConfig, schema: TableSchema, data: pa.Table) -> dict[str, pa.Array]:
    """Partition and bucket of each row."""
    require_bucketed(config)
    needed = dict.fromkeys([*config.key.fields, *config.key.partition_fields])
    absent = [name for name in needed if name not in data.column_names]
    if absent:
        raise InvalidInputError(f"the file group of a row follows from its key and partition columns. missing={absent}")
    found = keyed(config, schema.normalise(data.select(list(needed))))
    return {"partition": found[PARTITION].to_arrow().cast(pa.string()), "bucket": found[BUCKET].to_arrow()}


def _abandon(session: Session, value: Timeline, begun: Pending) -> None:
    with suppress(StorageUnavailableError, CommitUnknownError):  # others clean up after its expiry
        session.run(lifecycle.give_up(session.publisher, value, begun.requested, None))


def _clear(session: Session, job: Job, begun: Pending) -> None:
    with suppress(StorageUnavailableError, CommitUnknownError):  # else it is swept
        session.run(lifecycle.clear_staged(begun.requested, job.name))


def _state(
    write: Write, rows: pa.Table, operation: Operation, mode: SchemaMode, plain: bool
) -> list[RowsWrite | DeleteWrite]:
    if operation == "DELETE":
        write.delete(rows, plain)
    else:
        write.upsert(rows, operation, mode)
    return write.statements


# --- the driver's part ------------------------------------------------------------------------------------------------


def _requested(receipts: Sequence[Receipt]) -> Instant | None:
    found = {receipt.requested for receipt in receipts if receipt.requested is not None}
    if len(found) > 1:  # rolled back between two tasks, and begun again by the later one
        raise lifecycle.expired(min(found))
    return next(iter(found), None)


def _refuse_tasks_twice(receipts: Sequence[Receipt]) -> None:
    tasks = [receipt.task for receipt in receipts]
    if len(set(tasks)) < len(tasks):
        raise InvalidInputError(
            "two receipts of one task: keep the one whose attempt counts, the other's rows are the same. "
            f"task={next(t for t in tasks if tasks.count(t) > 1)}"
        )


def _place(write: Write, job: Job, receipts: Sequence[Receipt]) -> list[DataFile]:
    """Give every touched file group its one log file."""
    if lifecycle.used_token(write.require_pending(), write.token) is not None:
        return []  # completing finds the earlier commit
    groups: dict[FileGroup, list[tuple[Receipt, StagedFile]]] = {}
    for receipt in sorted(receipts, key=lambda r: r.task):
        for staged in receipt.files:
            groups.setdefault(staged.file.group, []).append((receipt, staged))

    def place(group: FileGroup) -> DataFile:
        parts = groups[group]
        if len(parts) > 1:
            return _fold(write, job, parts)
        staged = parts[0][1]
        write.make_room(staged.file)
        try:
            if not write.session.store.copy(staged.path, staged.file.path):
                write.session.store.settle(staged.file.path)
        except StorageUnavailableError:
            write.require_pending()  # given up a moment ago, it has lost what its tasks staged
            raise
        return staged.file

    return list(in_threads(place, sorted(groups)))


def _fold(write: Write, job: Job, parts: Sequence[tuple[Receipt, StagedFile]]) -> DataFile:
    """One log file of what several tasks staged of one file group."""
    crowded = next((r for r, _ in parts if not has_places(r.task, r.rows)), None)
    if crowded is not None and write.dotted:
        raise InvalidInputError(
            "too many tasks or rows to tell the writes of one key apart that came from different tasks: bring the rows "
            f"of each file group together first (file_groups says which). task={crowded.task} rows={crowded.rows}"
        )
    statements = [statement for _, staged in parts for statement in _reopen(write, staged)]
    if job.operation == "INSERT":
        refuse_repeats(pl.concat([s.rows.select(KEY, PARTITION) for s in statements if isinstance(s, RowsWrite)]))
    (file,) = write.stage(statements, write.put)
    return file


def _reopen(write: Write, staged: StagedFile) -> list[RowsWrite | DeleteWrite]:
    """What a staged log file says, as the statements that it was made of."""
    data = write.session.store.view(staged.path)
    if data is None:
        write.require_pending()
        raise InvalidInputError(f"a staged file is gone: write again. file={staged.path}")
    assert isinstance(staged.file.name, LogFileName)
    where = {
        PARTITION: pl.lit(staged.file.partition),
        BUCKET: pl.lit(bucket_of_file_id(staged.file.name.file_id), pl.Int32),
    }
    statements: list[RowsWrite | DeleteWrite] = []
    blocks = read_log(data, staged.path)
    for parts in open_blocks(blocks, [False] * len(blocks), write.config):
        for opened in parts:
            if not isinstance(opened, DataBlock):
                statements.append(DeleteWrite(opened.keys.drop("time", strict=False).with_columns(**where)))
                continue
            assert not isinstance(opened.rows, pl.DataFrame)
            rows = pl.read_parquet(io.BytesIO(opened.rows))
            states = write.states([name for name in rows.columns if name not in META_COLUMNS])
            given = tuple(states) if write.config.merge.custom else None
            statements.append(RowsWrite(rows.select(*states, KEY).with_columns(**where), given))
    return statements

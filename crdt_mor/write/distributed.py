"""A distributed write: its rows are staged by many processes, and which is still one commit.

    driver    plan      the columns are checked and the schema grows, before anything runs; nothing has begun yet
    tasks     stage     the first to come begins the write, the others join it by its ticket; each puts whole log files
                        below `.hoodie/.crdt_mor/staged`, and returns a receipt
    driver    complete  gives the files that the receipts name their final names, and publishes one commit

Hudi's readers believe every log file of a completed instant by its name. So no task ever writes under a final name:
what failed, repeated, speculative and late tasks stage lies where nobody looks, and goes with the write, or is swept.

The write begins with its first task, since what runs before may take hours in which nobody could keep it alive. While
tasks run they touch its heartbeat. Each process may be another one, and all that they share is the `WriteJob`.

A job is one write, however often its tasks and its driver are run: it begins once, and once it has ended in a commit,
whoever comes is given that commit.

Drivers that follow one another, or meet, may hold different receipts, so files of the same group but other bytes. Hence
a driver first *takes the write over*, by an event of the timeline: from then on it alone may complete, under a number
that stands in the name of every file that it places. No two drivers ever place files of one name, so what a commit says
of a file is true of the bytes under that name. And of the drivers before it none can complete any more, so it removes
what they placed; what one that was asleep places still later is swept.

A file group gets one log file a commit, each key in it at most once. Where several tasks staged rows of one group, the
driver folds them in the order of the tasks, as if one process had written them all. So whoever brings the rows of a
group together first, by `file_groups`, saves the driver this work.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import polars as pl
import pyarrow as pa

from crdt_mor.errors import CommitUnknownError, InvalidInputError, StorageUnavailableError, WriterExpiredError
from crdt_mor.format.log import read_log
from crdt_mor.laws.allowed import Carried
from crdt_mor.merge.blocks import PARTITION_PATH, RECORD_KEY, DataBlock
from crdt_mor.merge.precombine import DeleteWrite, RowsWrite
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import EPOCH, InstantTime, from_ms
from crdt_mor.model.names import LogFileName, bucket_of_file_id, join_path
from crdt_mor.model.schema import META_COLUMNS, TableSchema
from crdt_mor.model.timeline import DataFile, FileGroup, Pending
from crdt_mor.read.blocks import open_blocks
from crdt_mor.store.base import Chunks
from crdt_mor.threads import in_threads
from crdt_mor.timeline import events, jobs, rollback, tickets
from crdt_mor.timeline.heartbeat import beating
from crdt_mor.timeline.history import find_completion
from crdt_mor.timeline.paths import STAGED, heartbeat_path
from crdt_mor.timeline.session import Session
from crdt_mor.write.log_files import BUCKET, put_log
from crdt_mor.write.refusals import require_bucketed, require_own_groups, require_writable
from crdt_mor.write.statements import (
    OpenWrite,
    Operation,
    SchemaMode,
    has_places,
    join,
    keyed,
    refuse_repeats,
)


@dataclass(frozen=True, slots=True)
class Job:
    """What all processes of a distributed write know. `name`: nobody else's, and the nonce of its begin.

    repeated: the token was used before, so that nothing is written. table_id: the table's; None where it had none yet.
    planned: the table's clock before the job can have begun. payloads: the classes of the table's, which need not be
    imported where a task runs.
    """

    name: str
    operation: Operation
    plain: bool = False
    token: tuple[str, int] | None = None
    repeated: bool = False
    table_id: str | None = None
    planned: InstantTime = EPOCH
    payloads: Carried = field(default_factory=Carried, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A log file that waits for its final name, `file.path`, at `path`."""

    path: str
    file: DataFile


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one task staged of the write that was requested at `requested`; None: nothing, its token was used before.

    Without files it had no rows, or the write was complete already when it came.
    """

    task: int
    requested: InstantTime | None = None
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
    planned_at = max(tail.clock, from_ms(session.environment.now_ms()))
    name = tickets.job_name(session.environment.nonce(), planned_at)
    if events.used_token(tail, token) is not None:
        events.check_token(tail, token)
        return Job(name, operation, plain, token, repeated=True, table_id=tail.table_id)
    rehearsal = OpenWrite(session, tail, Pending(EPOCH, name, tail.version))
    _state(rehearsal, schema.empty_table(), operation, mode, plain)
    rehearsal.publish_growth()
    payloads = session.payloads()
    return Job(name, operation, plain, token, table_id=tail.table_id, planned=tail.clock, payloads=payloads)


def stage(session: Session, job: Job, read: Callable[[], pa.Table], task: int) -> Receipt:
    """Stage the rows that `read()` gives as log files that nobody sees yet; nothing where the job is done."""
    session.require_table(job.table_id)
    if job.repeated:
        return Receipt(task)
    joined = join(session, job.name, job.planned)
    if isinstance(joined, events.Committed):
        return Receipt(task, joined.completion.requested)
    value, begun = joined
    store = session.store
    store.touch(heartbeat_path(begun.requested))  # the process may be gone before its first beat
    try:
        with beating(store, begun.requested, session.expiry_ms):
            rows = read()
            write = OpenWrite(session, value, begun, task=task)

            def put(file: DataFile, data: Chunks) -> StagedFile:
                write.require_pending()
                path = f"{STAGED}/{begun.requested}-{session.environment.nonce()}"
                return StagedFile(path, put_log(store, path, data, file, durable=False))  # copying makes it durable

            statements = _state(write, rows, job.operation, "strict", job.plain) if rows.num_rows else []
            files = tuple(write.stage(statements, put))
            write.require_pending()
    except WriterExpiredError:  # who ended the write, by a commit or not, did not see what came here meanwhile
        _clear(session, job, begun)
        with suppress(StorageUnavailableError):
            store.delete(heartbeat_path(begun.requested))
        raise
    return Receipt(task, begun.requested, rows.num_rows, files)


def complete(
    session: Session, job: Job, receipts: Sequence[Receipt], token: tuple[str, int] | None
) -> events.Committed:
    """Publish what the receipts name as one commit; whatever else was staged of this write is removed."""
    session.require_table(job.table_id)
    token = token or job.token
    _refuse_tasks_twice(receipts)
    if job.repeated:
        tail = session.durable_tail()
        assert token is not None
        return events.Committed(events.check_token(tail, token), tail, repeated=True)
    joined = join(session, job.name, job.planned)
    if isinstance(joined, events.Committed):
        _refuse_other_writes(receipts, joined.completion.requested)
        return replace(joined, value=session.durable_tail())
    value, begun = joined
    _refuse_other_writes(receipts, begun.requested)
    write = OpenWrite(session, value, replace(begun, driver=session.environment.nonce()), token)
    write.keep_alive()
    try:
        return write.commit(partial(_place, write, job, receipts), job.operation)
    except WriterExpiredError:
        tail = session.durable_tail()
        done = session.run(find_completion(begun.requested, tail))
        if done is None:
            raise
        return events.Committed(done, tail, repeated=True)
    finally:
        _clear(session, job, begun)


def abandon(session: Session, job: Job, driver: str | None = None) -> None:
    """Roll the write back, if it has begun, and remove what its tasks staged.

    driver: who gives up; a write that another driver has taken over goes on.
    """
    value = session.tail()
    begun = value.find_begun(job.name)
    if begun is not None:
        with suppress(StorageUnavailableError, CommitUnknownError):  # others clean up after its expiry
            session.run(rollback.give_up(session.publisher, value, begun.requested, None, driver))


def file_groups(config: TableConfig, schema: TableSchema, data: pa.Table) -> dict[str, pa.Array]:
    """Partition and bucket of each row."""
    require_bucketed(config)
    needed = dict.fromkeys([*config.key.fields, *config.key.partition_fields])
    absent = [name for name in needed if name not in data.column_names]
    if absent:
        raise InvalidInputError(f"the file group of a row follows from its key and partition columns. missing={absent}")
    found = keyed(config, schema.normalise(data.select(list(needed))))
    return {"partition": found[PARTITION_PATH].to_arrow().cast(pa.string()), "bucket": found[BUCKET].to_arrow()}


def _clear(session: Session, job: Job, begun: Pending) -> None:
    """Remove what was staged, unless the write goes on under another driver."""
    with suppress(StorageUnavailableError, CommitUnknownError):  # else it is swept
        if session.tail().find_pending(begun.requested) is None:
            session.run(rollback.clear_staged(begun.requested, job.name))


def _state(
    write: OpenWrite, rows: pa.Table, operation: Operation, mode: SchemaMode, plain: bool
) -> list[RowsWrite | DeleteWrite]:
    if operation == "DELETE":
        write.delete(rows, plain)
    else:
        write.upsert(rows, operation, mode)
    return write.statements


# --- the driver's part ------------------------------------------------------------------------------------------------


def _refuse_other_writes(receipts: Sequence[Receipt], requested: InstantTime) -> None:
    for receipt in receipts:
        if receipt.requested not in (None, requested):
            raise InvalidInputError(
                "a receipt of another job: complete each job with its own. "
                f"task={receipt.task} requested={receipt.requested} of_this_job={requested}"
            )


def _refuse_tasks_twice(receipts: Sequence[Receipt]) -> None:
    tasks = [receipt.task for receipt in receipts]
    if len(set(tasks)) < len(tasks):
        raise InvalidInputError(
            "two receipts of one task: keep the one whose attempt counts, the other's rows are the same. "
            f"task={next(t for t in tasks if tasks.count(t) > 1)}"
        )


def _place(write: OpenWrite, job: Job, receipts: Sequence[Receipt]) -> list[DataFile]:
    """Give every touched file group its one log file, under a name that no other driver of this write gives."""
    drivers = write.take_over()
    if events.used_token(write.require_pending(), write.token) is not None:
        return []  # completing finds the earlier commit
    groups: dict[FileGroup, list[tuple[Receipt, StagedFile]]] = {}
    for receipt in sorted(receipts, key=lambda r: r.task):
        for staged in receipt.files:
            groups.setdefault(staged.file.group, []).append((receipt, staged))

    def place(group: FileGroup) -> DataFile:
        parts = groups[group]
        if len(parts) > 1:
            return _fold(write, job, parts)
        return _copy(write, parts[0][1])

    files = list(in_threads(place, sorted(groups)))
    if drivers > 1:
        write.session.run(jobs.clear_placed(write.begun.requested, drivers))
    return files


def _copy(write: OpenWrite, staged: StagedFile) -> DataFile:
    """A log file that is what one task staged."""
    name = replace(staged.file.name, token=write.token_of_files)
    file = replace(staged.file, path=join_path(staged.file.partition, str(name)))
    write.make_room(file)
    store = write.session.store
    try:
        store.copy(staged.path, file.path)
    except StorageUnavailableError:
        write.require_pending()  # given up a moment ago, it has lost what its tasks staged
        raise
    stat = store.stat(file.path)
    if stat is None or stat.size != file.size:
        write.require_pending()
        raise InvalidInputError(
            "a staged file is not what its task wrote, as after a power cut: plan the write again. "
            f"file={staged.path} size={stat and stat.size} written={file.size}"
        )
    return file


def _fold(write: OpenWrite, job: Job, parts: Sequence[tuple[Receipt, StagedFile]]) -> DataFile:
    """One log file of what several tasks staged of one file group."""
    crowded = next((r for r, _ in parts if not has_places(r.task, r.rows)), None)
    if crowded is not None and write.dotted:
        raise InvalidInputError(
            "too many tasks or rows to tell the writes of one key apart that came from different tasks: bring the rows "
            f"of each file group together first (file_groups says which). task={crowded.task} rows={crowded.rows}"
        )
    statements = [statement for _, staged in parts for statement in _reopen(write, staged)]
    if job.operation == "INSERT":
        keys = [s.rows.select(RECORD_KEY, PARTITION_PATH) for s in statements if isinstance(s, RowsWrite)]
        refuse_repeats(pl.concat(keys))
    (file,) = write.stage(statements, write.put)
    return file


def _reopen(write: OpenWrite, staged: StagedFile) -> list[RowsWrite | DeleteWrite]:
    """What a staged log file says, as the statements that it was made of."""
    data = write.session.store.view(staged.path)
    if data is None:
        write.require_pending()
        raise InvalidInputError(f"a staged file is gone: plan the write again. file={staged.path}")
    assert isinstance(staged.file.name, LogFileName)
    where = {
        PARTITION_PATH: pl.lit(staged.file.partition),
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
            statements.append(RowsWrite(rows.select(*states, RECORD_KEY).with_columns(**where), given))
    return statements

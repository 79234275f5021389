"""A distributed write: many processes stage its rows for a single commit. See docs/design/job.md.

    driver    plan      check the columns and grow the schema
    tasks     stage     the first task begins the write, the others join it by its ticket; each puts whole log files
                        below `.hoodie/.crdt_mor/staged`, and returns a receipt
    driver    complete  take the write over, give the files their final names, and publish the commit

A commit puts one log file into a file group, with each key at most once (`write.job_files`). An overwrite stages base
files instead (`write.job_overwrite`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Literal

import pyarrow as pa

from crdt_mor.columns.schema import TableSchema
from crdt_mor.columns.texts import no_rows
from crdt_mor.errors import InvalidInputError, StorageUnavailableError, WriterExpiredError
from crdt_mor.events import job as jobs
from crdt_mor.events import overwrite as overwriting
from crdt_mor.events import rollback, ticket
from crdt_mor.events import write as events
from crdt_mor.events.heartbeat import beating
from crdt_mor.events.session import Session
from crdt_mor.log import stopping
from crdt_mor.log.outcome import ValueOf, find_completion, find_overwrite
from crdt_mor.log.paths import STAGED, heartbeat_path
from crdt_mor.log.stopping import require_open
from crdt_mor.merge.blocks import PARTITION_PATH
from crdt_mor.model.authors import Info, application_of
from crdt_mor.model.config import TableConfig
from crdt_mor.model.declared import ANYTHING, Declared, declared_of
from crdt_mor.model.instant import EPOCH, InstantTime, from_ms
from crdt_mor.model.timeline_parts import Completion, DataFile, Pending, Token
from crdt_mor.store.protocol import Chunks
from crdt_mor.write import job_overwrite
from crdt_mor.write.adopted_keys import require_placed_keys
from crdt_mor.write.beginning import join
from crdt_mor.write.declaring import Declare
from crdt_mor.write.job_files import place_files
from crdt_mor.write.job_values import Job, Receipt, Replacing, StagedFile
from crdt_mor.write.log_files import BUCKET, put_log, staging
from crdt_mor.write.named import NamedStatements
from crdt_mor.write.open_write import OpenWrite
from crdt_mor.write.overwrite import Partitions, scope_of
from crdt_mor.write.refusals import require_bucketed, require_own_groups, require_writable
from crdt_mor.write.statements import Operation, RowsStatement, SchemaMode, keyed


def plan(
    session: Session,
    operation: Operation,
    schema: pa.Schema,
    mode: SchemaMode,
    plain: bool,
    token: tuple[str, int] | None,
    info: Info = (),
    replaced: Partitions | Literal[False] = False,
    declared: Declared = ANYTHING,
    nulls: tuple[str, ...] = (),
) -> Job:
    """Check everything that needs no rows; then `mode="merge"` grows the table's schema.

    replaced: the partitions of an overwrite; False: no overwrite.
    declared: everything that any other write may touch. nulls: as in `RowsStatement`.

    Growth stays even if the rows are refused later: delayed growth might conflict with another writer's.
    """

    def rehearse(write: OpenWrite) -> Replacing | None:
        none = RowsStatement(operation, no_rows(schema), mode, plain, are_new=replaced is not False, nulls=nulls)
        NamedStatements(write.statements).add(none)
        return None if replaced is False else _replacing(write, replaced)

    return planned(session, Job("", operation, plain, token, info=info, declared=declared, nulls=nulls), rehearse)


def planned(
    session: Session, job: Job, rehearse: Callable[[OpenWrite], Replacing | None], declare: Declare | None = None
) -> Job:
    """Return a job that may begin, or is marked as repeated.

    rehearse: makes statements without rows, raises for a write that is always refused, and returns the replaced scope.
    declare: computes the declaration; None: the job's own.
    """
    require_writable(session)
    session.adopt()
    tail = session.tail()
    require_placed_keys(session, tail)
    require_own_groups(tail)
    planned_at = max(tail.clock, from_ms(session.environment.now_ms()))
    author = session.author(application_of(job.info, job.token), job.info)  # tasks use the driver's application
    job = replace(job, name=ticket.job_name(session.environment.nonce(), planned_at), table_id=tail.table_id)
    if stopping.blocking_token(tail, job.token) is not None:
        stopping.repeated_token(tail, job.token)
        return replace(job, repeated=True)
    require_open(tail, author)
    if declare is not None:
        job = replace(job, declared=declare(tail))
    rehearsed = Pending(EPOCH, job.name, tail.version, author=author, declared=job.declared)
    rehearsal = OpenWrite(session, ValueOf(tail), rehearsed)
    replaces = rehearse(rehearsal)
    if replaces is not None and replaces.scope is not None:
        job = replace(job, declared=declared_of(replaces.scope.partitions, None, existing=False))
    grown = rehearsal.publish_growth() or tail
    payloads, application = session.payloads(), author.application
    return replace(
        job, planned=tail.clock, application=application, payloads=payloads, replacing=replaces, names=grown.names
    )


def stage(session: Session, job: Job, read: Callable[[Callable[[], pa.Schema]], pa.Table], task: int) -> Receipt:
    """Stage rows as invisible log files; do nothing if the job is done."""

    def collect(write: OpenWrite) -> int:
        statements = NamedStatements(write.statements, job.names)
        rows = read(statements.text_types)
        if rows.num_rows:
            are_new = job.replacing is not None
            statements.add(RowsStatement(job.operation, rows, plain=job.plain, are_new=are_new, nulls=job.nulls))
        return len(rows)

    return stage_part(session, job, collect, task)


def stage_part(session: Session, job: Job, collect: Callable[[OpenWrite], int], task: int) -> Receipt:
    """Stage the statements that `collect` adds; it returns their number of rows."""
    session.require_table(job.table_id)
    if job.repeated:
        return Receipt(task)
    joined = join(session, job.name, job.planned, session.author(job.application, job.info), job.declared)
    if isinstance(joined, events.WriteOutcome):
        return Receipt(task, joined.completion.requested)
    value, begun = joined
    store = session.store
    store.touch(heartbeat_path(begun.requested))  # the process may die before its first beat
    try:
        with beating(store, session.environment, begun.requested, session.expiry_ms), staging():
            # An overwrite is checked against its scope instead.
            held = begun if job.replacing is None else replace(begun, declared=ANYTHING)
            write = OpenWrite(session, value, held, task=task)

            def put(file: DataFile, data: Chunks) -> StagedFile:
                write.require_pending()
                path = f"{STAGED}/{begun.requested}-{session.environment.nonce()}"
                return StagedFile(path, put_log(store, path, data, file, durable=False))  # copying makes it durable

            rows = collect(write)
            statements = write.statements.collected
            bases = job_overwrite.stage_part(write, statements, job.replacing) if job.replacing else ()
            logs = job.replacing is None or job_overwrite.needs_logs(write)
            files = tuple(write.stage(statements, put)) if logs else ()
            write.require_pending()
    except WriterExpiredError:  # the write ended meanwhile, without removing the files staged here
        _clear(session, job, begun)
        with suppress(StorageUnavailableError):
            store.delete(heartbeat_path(begun.requested))
        raise
    return Receipt(task, begun.requested, rows, files, bases)


def complete(
    session: Session, job: Job, receipts: Sequence[Receipt], token: tuple[str, int] | None, info: Info = ()
) -> events.WriteOutcome:
    """Publish the receipts' files as one commit, and remove all other staged files."""
    application = application_of(info, token) or job.application
    session.require_table(job.table_id)
    token = token or job.token
    _refuse_tasks_twice(receipts)
    if job.repeated:
        tail = session.durable_tail()
        if stopping.blocking_token(tail, token) is None:
            raise WriterExpiredError(
                "a restore dropped the commit that this write repeats, and nothing was staged for a new commit: plan "
                f"the write anew. job={job.name} token={token}"
            )
        return events.WriteOutcome(stopping.repeated_token(tail, token), tail, repeated=True)
    author = session.author(application, tuple({**dict(job.info), **dict(info)}.items()))
    joined = join(session, job.name, job.planned, author, job.declared)
    if isinstance(joined, events.WriteOutcome):
        _refuse_other_writes(receipts, joined.completion.requested)
        return _repeated(session, joined.completion)
    value, begun = joined
    _refuse_other_writes(receipts, begun.requested)
    driven = replace(begun, driver=session.environment.nonce(), author=author)
    write = OpenWrite(session, value, driven, token, started_ms=session.environment.now_ms())
    write.keep_alive()
    try:
        if job.replacing is None:
            return write.commit(partial(place_files, write, job.operation, receipts), job.operation)
        return write.end(
            partial(job_overwrite.gather_parts, write, job.replacing, receipts),
            lambda staged: overwriting.overwrite(session.publisher, value, write.begun, staged, write.token),
        )
    except WriterExpiredError:
        completion = session.run(find_completion(begun.requested, session.tail()))
        if completion is None:
            raise
        return _repeated(session, completion)
    finally:
        _clear(session, job, begun)


def _repeated(session: Session, ended: Completion | Token) -> events.WriteOutcome:
    tail = session.durable_tail()
    overwrite = session.run(find_overwrite(ended.requested, tail))
    return events.WriteOutcome(overwrite or ended, tail, repeated=True)


def abandon(session: Session, job: Job, driver: str | None = None) -> None:
    """Roll the write back if it has begun, and remove its staged files.

    driver: the driver that gives up, unless another has taken over; None: any driver.

    If the store fails, others clean up after the expiry. The error of the write itself reports its commit.
    """
    with suppress(Exception):
        value = session.tail()
        begun = value.find_by_nonce(job.name)
        if begun is not None:
            session.run(rollback.give_up(session.publisher, value, begun.requested, None, driver))


def file_groups(config: TableConfig, schema: TableSchema, data: pa.Table) -> dict[str, pa.Array]:
    require_bucketed(config)
    needed = config.key.identity
    absent = [name for name in needed if name not in data.column_names]
    if absent:
        raise InvalidInputError(f"pass all key and partition columns, which decide the file group. missing={absent}")
    keys = keyed(config, schema.normalise(data.select(list(needed))))
    return {"partition": keys[PARTITION_PATH].to_arrow().cast(pa.string()), "bucket": keys[BUCKET].to_arrow()}


def _clear(session: Session, job: Job, begun: Pending) -> None:
    with suppress(Exception):  # otherwise a sweep removes them
        session.run(jobs.clear_staged(session.publisher, session.tail(), begun.requested, job.name))


def _replacing(rehearsal: OpenWrite, partitions: Partitions) -> Replacing:
    if partitions == "dynamic":
        return Replacing(None)
    return Replacing(scope_of(rehearsal, partitions))


# --- the driver's part ------------------------------------------------------------------------------------------------


def _refuse_other_writes(receipts: Sequence[Receipt], requested: InstantTime) -> None:
    for receipt in receipts:
        if receipt.requested not in (None, requested):
            raise InvalidInputError(
                "a receipt belongs to another job: pass only receipts of this job. "
                f"task={receipt.task} requested={receipt.requested} of_this_job={requested}"
            )


def _refuse_tasks_twice(receipts: Sequence[Receipt]) -> None:
    tasks = [receipt.task for receipt in receipts]
    if len(set(tasks)) < len(tasks):
        raise InvalidInputError(
            "two receipts of the same task, with the same rows: pass only the successful attempt's. "
            f"task={next(t for t in tasks if tasks.count(t) > 1)}"
        )

"""Distributed writes: many processes stage rows, and a driver makes one commit of them. See `table.jobs`.

    job = table.jobs.plan("upsert", schema)               # the driver, before anything runs
    receipt = job.stage(rows, task=3)                     # anywhere, in any order, as often as it takes
    commit = table.jobs.complete(job, receipts)           # the driver: one receipt of each task

Jobs and receipts can be pickled, and several drivers may run at once. A job becomes at most one commit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from crdt_mor.api.data import Data, SchemaLike, read_data, read_schema
from crdt_mor.api.statements import check_mode, check_token_form, names_of
from crdt_mor.api.transaction import Commit, commit_of
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError
from crdt_mor.events.session import Session
from crdt_mor.ground.clock import Environment, SystemEnvironment
from crdt_mor.ground.deadlines import operations
from crdt_mor.ground.late_imports import Late
from crdt_mor.model.authors import Info, check_info
from crdt_mor.model.declared import ANYTHING, Declared
from crdt_mor.model.timeline_parts import Completion
from crdt_mor.services.maintain_inline import upkeep_after
from crdt_mor.store.open import portable
from crdt_mor.store.protocol import Store
from crdt_mor.write.declaring import declared_by_user
from crdt_mor.write.job_values import Job, Receipt
from crdt_mor.write.named import known_columns, text_types
from crdt_mor.write.statements import Operation, SchemaMode

if TYPE_CHECKING:
    from crdt_mor.write import job as distributed
    from crdt_mor.write.overwrite import Partitions
else:
    distributed = Late("crdt_mor.write.job")

_OPERATIONS: dict[str, Operation] = {"append": "INSERT", "upsert": "UPSERT", "delete": "DELETE", "overwrite": "UPSERT"}


@operations
@dataclass(frozen=True, slots=True)
class WriteJob:
    """One write, shared by many processes. Made by `jobs.plan`."""

    uri: str
    expiry_ms: int
    job: Job
    store: Store | None = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        store = None if self.store is None else portable(self.store)
        return WriteJob, (self.uri, self.expiry_ms, self.job, store)

    def stage(self, data: Data, *, task: int, environment: Environment | None = None) -> Receipt:
        """Stage rows as invisible files, and return a receipt for the driver.

        If the job is already complete, nothing is staged, and the receipt names its commit.

        Args:
            data: as in `Table.upsert`. A `RecordBatchReader` is read while the write is kept alive.
            task: number of this part; for a key in several tasks, the highest number counts as last. All attempts of a
                part use its number; the driver passes on one receipt.

        Raises:
            WriterExpiredError: the job was given up, or ended meanwhile.
        """
        session = Session.open(self.uri, environment or SystemEnvironment(), self.expiry_ms, self.store)
        return distributed.stage(session, self.job, partial(read_data, data), task)


@operations
class Jobs:
    """Writes of many processes, each a single commit. Use `table.jobs`."""

    def __init__(self, session: Session, uri: str, store: Store | None) -> None:
        self._session = session
        self._uri = uri
        self._store = store

    def __repr__(self) -> str:
        return f"Jobs({self._uri!r})"

    def plan(
        self,
        operation: Literal["append", "upsert", "delete", "overwrite"],
        schema: SchemaLike,
        *,
        partitions: Literal["dynamic"] | Collection[object] | None = None,
        columns: Collection[str] | None = None,
        schema_mode: SchemaMode = "strict",
        plain: bool = False,
        nulls: str | Collection[str] = (),
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> WriteJob:
        """Plan a write for many processes: they call `WriteJob.stage`, the driver then `complete`.

        Columns are checked here. With `schema_mode="merge"` new columns are added now and stay, even if the write
        fails. The write begins when the first process stages rows.

        Args:
            operation: "append", "upsert", "delete" or "overwrite"; see these methods of `Table`.
            schema: columns of the rows to come.
            partitions: all partitions of the rows, as in `transaction`; tasks with rows of others are refused. For an
                overwrite, the partitions to replace; "dynamic" means the partitions of all tasks' rows.
            columns: all columns that the tasks set, as in `transaction`.
            schema_mode, plain, nulls, token, commit_info: as in `upsert` and `delete`.
        """
        check_token_form(token)
        info = check_info(commit_info)
        if operation not in _OPERATIONS:
            raise InvalidInputError(f"pass an operation out of {', '.join(_OPERATIONS)}. got={operation!r}")
        session, mode, named = self._session, check_mode(schema_mode), names_of(nulls)
        if named and operation != "upsert":
            raise InvalidInputError(f"pass nulls only with the operation upsert. operation={operation} nulls={nulls!r}")
        given = read_schema(schema, lambda: text_types(session.config, session.known_tail()))
        declared, replaced = _touched(session, operation, partitions, columns, given.names)
        job = distributed.plan(
            session, _OPERATIONS[operation], given, mode, plain, token, info, replaced, declared, named
        )
        return WriteJob(self._uri, session.expiry_ms, job, self._store)

    def complete(
        self,
        job: WriteJob,
        receipts: Sequence[Receipt],
        *,
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> Commit:
        """Publish the staged rows as one commit. If this fails, nothing is left.

        Later calls return the same commit with `repeated` set. If two drivers complete a job at once, the later driver
        takes over; the other gets the commit or `CommitUnknownError`, and may repeat the call.

        Args:
            receipts: a receipt of each task.
            token, commit_info: as in `upsert`, if not given in `plan`.
        """
        check_token_form(token)
        info = check_info(commit_info)
        _check_staged(job, receipts)
        return completed(self._session, job.job, receipts, token, info)

    def abandon(self, job: WriteJob) -> None:
        """Give up a write and remove its staged files, unless it is complete."""
        distributed.abandon(self._session, job.job)

    def file_groups(self, data: Data) -> pa.Table:
        """Return `partition` and `bucket` of each row, in order, which identify its file group.

        Group rows by both before staging, so that each file is written once. Only key and partition columns are needed.
        """
        value = self._session.known_tail()
        schema = TableSchema.from_json(value.schema)
        rows = known_columns(read_data(data, lambda: text_types(self._session.config, value)), value.names, schema)
        return pa.table(distributed.file_groups(self._session.config, schema, rows))


def _touched(
    session: Session,
    operation: str,
    partitions: Partitions,
    columns: Collection[str] | None,
    row_columns: Sequence[str],
) -> tuple[Declared, Partitions | Literal[False]]:
    """Return the declaration of a write, and the partitions that an overwrite replaces (False for other writes)."""
    if operation == "overwrite":
        if columns is not None:
            raise InvalidInputError(f"an overwrite replaces whole rows: omit `columns`. columns={columns!r}")
        return ANYTHING, partitions
    if partitions == "dynamic":
        raise InvalidInputError(
            'partitions="dynamic" is valid only for an overwrite: list the partitions of the rows, or omit '
            f"`partitions`. operation={operation!r}"
        )
    if partitions is None and columns is None:
        return ANYTHING, False
    return declared_by_user(session, partitions, columns, row_columns), False


def completed(
    session: Session, job: Job, receipts: Sequence[Receipt], token: tuple[str, int] | None = None, info: Info = ()
) -> Commit:
    try:
        committed = distributed.complete(session, job, receipts, token, info)
    except BaseException:
        distributed.abandon(session, job, "")  # except if another driver took over
        raise
    session.remember(committed.value)
    commit = commit_of(session, committed.completion, committed.value, committed.repeated)
    if isinstance(committed.completion, Completion) and not committed.repeated:
        upkeep_after(session, committed.value, committed.completion, is_job=True)
    return commit


def _check_staged(job: object, receipts: object) -> None:
    if not isinstance(job, WriteJob):
        raise InvalidInputError(f"pass the job of jobs.plan() as `job`. got={type(job).__name__}")
    wrong = [receipts] if not isinstance(receipts, Sequence) else [r for r in receipts if not isinstance(r, Receipt)]
    if wrong:
        raise InvalidInputError(
            f"pass a list of receipts as `receipts`, one from each job.stage(...). got={type(wrong[0]).__name__}"
        )


__all__ = ["Jobs", "Receipt", "WriteJob"]

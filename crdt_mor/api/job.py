"""What the processes of a distributed write pass to each other; see `Table.plan_write`.

    job = table.plan_write("upsert", schema)              # the driver, before anything runs
    receipt = job.stage(rows, task=3)                     # anywhere, in any order, as often as it takes
    commit = table.complete_write(job, receipts)          # the driver: one receipt of each task

Jobs and receipts can be pickled. The driver may be several processes, one after the other or at once. A job becomes one
commit at most: later calls return that commit, and a job that was given up stays so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from crdt_mor.api.data import Data, SchemaLike, read_data, read_schema
from crdt_mor.api.statements import check_mode, check_token_form
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
    """One write, shared by many processes.

    store: where the table's objects are, if it was opened with a store of its own; None: at `uri`.
    """

    uri: str
    expiry_ms: int
    job: Job
    store: Store | None = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled for the processes that stage, which a store in this one's memory is out of reach for."""
        store = None if self.store is None else portable(self.store)
        return WriteJob, (self.uri, self.expiry_ms, self.job, store)

    def stage(self, data: Data, *, task: int, environment: Environment | None = None) -> Receipt:
        """Stage rows as files that nobody sees; call it where the rows are, and bring the receipt to the driver.

        data: whatever `Table.upsert` takes. A `RecordBatchReader` is read while the write is kept alive.
        task: the number of this part. Of several rows with one key, the row of the greatest task counts as the last.
            All attempts at one part have its number; the driver passes on the receipt of one, and the others leave
            nothing.

        When the job is complete, nothing is read or staged, and the receipt names its commit. `WriterExpiredError` if
        the job was given up, or ended while these rows were read.
        """
        session = Session.open(self.uri, environment or SystemEnvironment(), self.expiry_ms, self.store)
        return distributed.stage(session, self.job, partial(read_data, data), task)


@operations
class WrittenByMany:
    """The part of a table that many processes write one commit with."""

    uri: str
    _session: Session
    _store: Store | None

    def plan_write(
        self,
        operation: Literal["append", "upsert", "delete", "overwrite"],
        schema: SchemaLike,
        *,
        partitions: Literal["dynamic"] | Collection[object] | None = None,
        columns: Collection[str] | None = None,
        schema_mode: SchemaMode = "strict",
        plain: bool = False,
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> WriteJob:
        """A write whose rows many processes will stage: `WriteJob.stage`, then `complete_write`.

        What can be wrong about the columns is refused here, before anything runs; then `schema_mode="merge"` adds
        columns, which stay whatever becomes of the write. Nothing begins before the first process stages, and nothing
        is visible before `complete_write`.

        schema: of the rows that will come.
        partitions: all partitions that rows of the tasks are in, as in `transaction`: updates of others do not wait for
            the write, and a task that has rows of another one is refused. Of an overwrite those that it replaces, as in
            `overwrite`; "dynamic": those that any task has rows of, which nobody knows before.
        columns: all columns that the tasks set, as in `transaction`.

        The rest is as in `append`, `upsert`, `delete` and `overwrite`.
        """
        check_token_form(token)
        info = check_info(commit_info)
        if operation not in _OPERATIONS:
            raise InvalidInputError(f"an operation is one of {', '.join(_OPERATIONS)}. got={operation!r}")
        session, mode = self._session, check_mode(schema_mode)
        given = read_schema(schema, lambda: text_types(session.config, session.known()))
        declared, replaced = _touched(session, operation, partitions, columns, given.names)
        job = distributed.plan(session, _OPERATIONS[operation], given, mode, plain, token, info, replaced, declared)
        return WriteJob(self.uri, session.expiry_ms, job, self._store)

    def complete_write(
        self,
        job: WriteJob,
        receipts: Sequence[Receipt],
        *,
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> Commit:
        """Publish what the tasks staged as one commit. If it fails, nothing is left.

        receipts: one of each task, that of the attempt that counts.
        token, commit_info: as in `upsert`, where they were not known when the write was planned.

        A job becomes one commit, however often and by however many processes it is completed: each later call returns
        that commit, `repeated`, also with the receipts of other attempts. Of two drivers at once the later one takes
        over; the other gets the commit as well, or `CommitUnknownError` where it is not there yet, and may call again.
        """
        check_token_form(token)
        info = check_info(commit_info)
        _check_staged(job, receipts)
        return completed(self._session, job.job, receipts, token, info)

    def abandon_write(self, job: WriteJob) -> None:
        """Give a write up, unless it is complete, and remove what was staged; as often as you like."""
        distributed.abandon(self._session, job.job)

    def file_groups(self, data: Data) -> pa.Table:
        """`partition` and `bucket` of each row, in its order: rows that agree in both go to one file group.

        Bring such rows together before you stage them, and no file has to be written twice. Only the columns of the key
        and the partition are needed.
        """
        value = self._session.known()
        schema = TableSchema.from_json(value.schema)
        rows = known_columns(read_data(data, lambda: text_types(self._session.config, value)), value.names, schema)
        return pa.table(distributed.file_groups(self._session.config, schema, rows))


def _touched(
    session: Session,
    operation: str,
    partitions: Partitions,
    columns: Collection[str] | None,
    brought: Sequence[str],
) -> tuple[Declared, Partitions | Literal[False]]:
    """What a write declares that it touches, and which partitions an overwrite replaces; False: it is none."""
    if operation == "overwrite":
        if columns is not None:
            raise InvalidInputError(
                f"an overwrite replaces whole rows, so that it touches all columns: leave them out. columns={columns!r}"
            )
        return ANYTHING, partitions
    if partitions == "dynamic":
        raise InvalidInputError(
            'only an overwrite says partitions="dynamic", those that it has rows of: name the partitions that the '
            f"rows are in, or leave them out. operation={operation!r}"
        )
    if partitions is None and columns is None:
        return ANYTHING, False
    return declared_by_user(session, partitions, columns, brought), False


def completed(
    session: Session, job: Job, receipts: Sequence[Receipt], token: tuple[str, int] | None = None, info: Info = ()
) -> Commit:
    """The commit that a job becomes, or has become; if it fails, nothing is left."""
    try:
        committed = distributed.complete(session, job, receipts, token, info)
    except BaseException:
        distributed.abandon(session, job, "")  # another driver may have taken it over
        raise
    session.remember(committed.value)
    commit = commit_of(session, committed.completion, committed.value, committed.repeated)
    if isinstance(committed.completion, Completion) and not committed.repeated:
        upkeep_after(session, committed.value, committed.completion)
    return commit


def _check_staged(job: object, receipts: object) -> None:
    """Raise `InvalidInputError` where a write is to be completed with what is neither its job nor its receipts."""
    if not isinstance(job, WriteJob):
        raise InvalidInputError(f"a write is completed by its job, of plan_write(). got={type(job).__name__}")
    wrong = [receipts] if not isinstance(receipts, Sequence) else [r for r in receipts if not isinstance(r, Receipt)]
    if wrong:
        raise InvalidInputError(
            f"a write is completed with a list of receipts, one of each job.stage(...). got={type(wrong[0]).__name__}"
        )


__all__ = ["Receipt", "WriteJob", "WrittenByMany"]

"""An update, delete or merge of many processes: a job whose tasks read the rows they change.

    driver    begin     the write takes its place in the order of writes, and waits for earlier ones (`events.update`)
    tasks     stage     each reads whole file groups of the view before the write, and stages the changes
    driver    complete  one commit, as of any job

After the wait nothing can precede the write any more. So each task's view is final, and nothing is computed twice.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from crdt_mor.errors import StorageUnavailableError
from crdt_mor.events.heartbeat import beating
from crdt_mor.events.session import Session
from crdt_mor.events.write import WriteOutcome
from crdt_mor.log.paths import STAGED
from crdt_mor.model.authors import Info
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.tokens import NO_TOKENS
from crdt_mor.read.reads import Reads
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.write import job as distributed
from crdt_mor.write.beginning import join
from crdt_mor.write.declaring import Declare
from crdt_mor.write.job_values import Job, Receipt
from crdt_mor.write.open_write import OpenWrite
from crdt_mor.write.statements import Operation, Statements

_SEAL_BYTES: Final = 32


def begin(
    session: Session,
    token: tuple[str, int] | None,
    info: Info,
    declare: Declare | None,
    rehearse: Callable[[Statements], None],
) -> tuple[Job, OpenWrite | None]:
    """Plan a job that reads its rows, and begin its write; None if its token was used before.

    After a concurrent change of columns or rules, plan and begin again.
    """
    while True:
        job = _planned(session, token, info, declare, rehearse)
        if job.repeated:
            return job, None
        try:
            session.views.sealed(look=True)  # so that the begin adopts Hudi's commits
            joined = join(session, job.name, job.planned, session.author(job.application, job.info), job.declared)
            assert not isinstance(joined, WriteOutcome), "no other process knows this job yet"
            write = OpenWrite(session, *joined)
            if declare is None or declare(write.value) == job.declared:
                return job, write
        except BaseException:
            distributed.abandon(session, job)
            raise
        distributed.abandon(session, job)


def _planned(
    session: Session,
    token: tuple[str, int] | None,
    info: Info,
    declare: Declare | None,
    rehearse: Callable[[Statements], None],
) -> Job:
    operation: Operation = "UPSERT"

    def rehearsed(write: OpenWrite) -> None:
        nonlocal operation
        rehearse(write.statements)
        operation = write.statements.operation

    job = distributed.planned(session, Job("", operation, token=token, info=info), rehearsed, declare)
    return replace(job, operation=operation)


@contextmanager
def settled(job: Job, write: OpenWrite, reads: Callable[[Timeline], Reads], wait_ms: int) -> Iterator[Snapshot]:
    """Wait for earlier writes, yield the final view before a job's write, and keep the write alive meanwhile.

    reads: the rows it reads, by the value at its begin. An error of the block, or a wait beyond `wait_ms`, rolls the
    write back.
    """
    session = write.session
    try:
        with beating(session.store, session.environment, write.begun.requested, session.expiry_ms):
            yield write.settle(reads(write.value), wait_ms)
    except BaseException:
        distributed.abandon(session, job)
        raise


def columns_of(view: Snapshot) -> Timeline:
    """Return a view's value without history and pending writes, enough for tasks to write rows."""
    return replace(
        view.value,
        pending=(),
        plans=(),
        rolled_back=(),
        completions=(),
        segments=(),
        tokens=NO_TOKENS,
        overwrites=(),
        posts=(),
    )


def stage(
    session: Session, job: Job, value: Timeline, task: int, change: Callable[[OpenWrite], None]
) -> tuple[Receipt, Statements | None]:
    """Stage the statements that `change` adds, and return them; None: the job is already done.

    value: from `columns_of`.
    """
    made: list[Statements] = []

    def collect(write: OpenWrite) -> int:
        write.statements = Statements(session.config, value, write.begun.requested, task, job.declared)
        change(write)
        made.append(write.statements)
        return sum(statement.height for statement in write.statements.collected)

    receipt = distributed.stage_part(session, job, collect, task)
    return receipt, made[0] if made else None


@dataclass(frozen=True, slots=True)
class DriverMessage:
    """A message to a job's driver among the staged files. seal: a shared secret, so that the driver takes no other
    object.
    """

    requested: InstantTime
    seal: str

    def write(self, session: Session, data: bytes) -> None:
        session.store.put(self._path, self._sealed(data) + data, durable=False)

    def read(self, session: Session) -> bytes:
        message = session.store.read(self._path) or b""
        seal, data = message[:_SEAL_BYTES], message[_SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._sealed(data)):
            raise StorageUnavailableError(
                f"the message of this write's tasks is gone or forged: write again. file={self._path}"
            )
        return data

    def _sealed(self, data: bytes) -> bytes:
        return hmac.digest(self.seal.encode(), data, "sha256")

    @property
    def _path(self) -> str:
        return f"{STAGED}/{self.requested}-told"

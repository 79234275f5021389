"""An update, a delete or a merge of many processes: a job whose tasks read what they change.

    driver    begin     the write takes its place in the order of writes, and waits for earlier ones (`events.update`)
    tasks     stage     each reads whole file groups of what comes before the write, and stages what becomes of the rows
    driver    complete  one commit, as of any job

Nothing can come before the write any more once it has waited. So each task's view is final before the task begins, and
no part of it is read or computed a second time, whatever others commit meanwhile.
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
    """A job that reads what it changes, and its write, which begins now; None where its token was used before.

    declare: what it may touch; None: anything. rehearse: adds the statements that it makes of no rows. Where others
    have changed columns or rules just before it began, as in `declaring.begin`, it is planned and begins again.
    """
    while True:
        job = _planned(session, token, info, declare, rehearse)
        if job.repeated:
            return job, None
        try:
            session.views.sealed(look=True)  # so that the begin adopts what Hudi has written
            joined = join(session, job.name, job.planned, session.author(job.application, job.info), job.declared)
            assert not isinstance(joined, WriteOutcome), "a job that nobody else knows yet"
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
    """A job whose operation is that of the statements which `rehearse` makes of no rows."""
    operation: Operation = "UPSERT"

    def rehearsed(write: OpenWrite) -> None:
        nonlocal operation
        rehearse(write.statements)
        operation = write.statements.operation

    job = distributed.planned(session, Job("", operation, token=token, info=info), rehearsed, declare)
    return replace(job, operation=operation)


@contextmanager
def settled(job: Job, write: OpenWrite, reads: Callable[[Timeline], Reads], wait_ms: int) -> Iterator[Snapshot]:
    """What comes before the write of a job, for good; the write is kept alive until the block ends.

    It is final of what the write reads. reads: this, by the value in which it began.

    If the block raises, or writes that began before are not over after `wait_ms`, the write is given up.
    """
    session = write.session
    try:
        with beating(session.store, session.environment, write.begun.requested, session.expiry_ms):
            yield write.settle(reads(write.value), wait_ms)
    except BaseException:
        distributed.abandon(session, job)
        raise


def columns_of(view: Snapshot) -> Timeline:
    """What tasks have to know of the value of a view to write rows: all but its history. Nothing is pending in it."""
    return replace(
        view.value,
        pending=(),
        plans=(),
        rolled_back=(),
        completions=(),
        segments=(),
        tokens=(),
        overwrites=(),
        posts=(),
    )


def stage(
    session: Session, job: Job, value: Timeline, task: int, change: Callable[[OpenWrite], None]
) -> tuple[Receipt, Statements | None]:
    """Stage what `change` adds to the statements of a task's write, and return these; None: the job is done already.

    value: as of `columns_of`.
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
class Word:
    """A place where the process that ends the tasks of a job leaves word for its driver, which may be another process.

    It is among what the tasks have staged, and goes with it. seal: what only these processes know, so that the driver
    takes nothing that anybody else has put there.
    """

    requested: InstantTime
    seal: str

    def tell(self, session: Session, data: bytes) -> None:
        """Leave word, once."""
        session.store.put(self._path, self._sealed(data) + data, durable=False)

    def told(self, session: Session) -> bytes:
        """The word that was left; raises where there is none."""
        found = session.store.read(self._path) or b""
        seal, data = found[:_SEAL_BYTES], found[_SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._sealed(data)):
            raise StorageUnavailableError(
                f"what the tasks of this write have told is gone, or is not theirs: write again. file={self._path}"
            )
        return data

    def _sealed(self, data: bytes) -> bytes:
        return hmac.digest(self.seal.encode(), data, "sha256")

    @property
    def _path(self) -> str:
        return f"{STAGED}/{self.requested}-told"

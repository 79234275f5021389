"""What the processes of a distributed write pass to each other; see `Table.plan_write`.

    job = table.plan_write("upsert", schema)              # the driver, before anything runs
    receipt = job.stage(rows, task=3)                     # anywhere, in any order, as often as it takes
    commit = table.complete_write(job, receipts)          # the driver: one receipt of each task

Jobs and receipts can be pickled. The driver may be several processes, one after the other or at once. A job becomes one
commit at most: later calls return that commit, and a job that was given up stays so.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from crdt_mor.clock import Environment, SystemEnvironment
from crdt_mor.data import Data, read_data
from crdt_mor.store.base import Store
from crdt_mor.store.open import portable
from crdt_mor.timeline.session import Session
from crdt_mor.write import distributed
from crdt_mor.write.jobs import Job, Receipt


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
        return distributed.stage(session, self.job, lambda: read_data(data), task)


__all__ = ["Receipt", "WriteJob"]

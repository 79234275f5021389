"""What the processes of a distributed write pass to each other. Jobs and receipts are pickled."""

from __future__ import annotations

from dataclasses import dataclass, field

from crdt_mor.laws.allowed import Carried
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.timeline import DataFile
from crdt_mor.write.statements import Operation


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

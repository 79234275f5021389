"""What the processes of a distributed write pass to each other. Jobs and receipts are pickled."""

from __future__ import annotations

from dataclasses import dataclass, field

from crdt_mor.columns.names import STORED, Names
from crdt_mor.laws.allowed import Carried
from crdt_mor.model.authors import Info
from crdt_mor.model.declared import ANYTHING, Declared
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.overwrite import Scope
from crdt_mor.model.timeline_parts import DataFile
from crdt_mor.planners.overwrite import StagedBase
from crdt_mor.write.statements import Operation


@dataclass(frozen=True, slots=True)
class Replacing:
    """What a job that overwrites replaces. scope: None: the partitions that its rows turn out to be in."""

    scope: Scope | None


@dataclass(frozen=True, slots=True)
class Job:
    """What all processes of a distributed write know.

    name: no other job's; its begin in the timeline has it as its nonce.
    repeated: the token was used before, so that nothing is written.
    table_id: the table's id; None where it had none yet.
    planned: the table's clock when the job was planned; it has not begun before that.
    application, info: what its commit says of itself, unless `complete_write` says more.
    payloads: the classes of the table's payloads, which need not be imported where a task runs.
    replacing: of an overwrite; None of any other write. declared: all that its tasks may touch.
    names: of the columns when the job was planned, under which its tasks bring their rows.
    """

    name: str
    operation: Operation
    plain: bool = False
    token: tuple[str, int] | None = None
    repeated: bool = False
    table_id: str | None = None
    planned: InstantTime = EPOCH
    application: str = ""
    info: Info = ()
    payloads: Carried = field(default_factory=Carried, compare=False, repr=False)
    replacing: Replacing | None = None
    declared: Declared = ANYTHING
    names: Names = STORED


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A log file at `path` that waits for its final name, `file.path`."""

    path: str
    file: DataFile


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one task staged.

    requested: the time of the write that it is a part of; None where the write's token was used before.
    files: its log files; none where the task had no rows, or where the write was complete already when the task came.
    bases: of an overwrite, the base files. Log files of the same rows are beside them where a base file does not hold
        all that is needed to merge the rows with those of other tasks.
    """

    task: int
    requested: InstantTime | None = None
    rows: int = 0
    files: tuple[StagedFile, ...] = ()
    bases: tuple[StagedBase, ...] = ()

"""Pickled values that the processes of a distributed write exchange."""

from __future__ import annotations

from dataclasses import dataclass, field

from crdt_mor.columns.names import STORED, Names
from crdt_mor.laws.allowed import PickledPayloads
from crdt_mor.model.authors import Info
from crdt_mor.model.declared import ANYTHING, Declared
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.overwrite import Scope
from crdt_mor.model.timeline_parts import DataFile
from crdt_mor.planners.overwrite import StagedBase
from crdt_mor.write.statements import Operation


@dataclass(frozen=True, slots=True)
class Replacing:
    """The scope of a job's overwrite; None: the partitions of its rows."""

    scope: Scope | None


@dataclass(frozen=True, slots=True)
class Job:
    """The facts of a distributed write that all its processes share.

    name: unique; also the nonce of its begin.
    repeated: the token was used before, so nothing is written.
    planned: the table's clock at planning, a lower bound of the begin.
    application, info: the commit's author, unless `Jobs.complete` overrides them.
    payloads: the payload classes, which tasks need not import.
    declared: everything that its tasks may touch.
    names: the column names at planning, used by the tasks' rows. nulls: as in `RowsStatement`.
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
    payloads: PickledPayloads = field(default_factory=PickledPayloads, compare=False, repr=False)
    replacing: Replacing | None = None
    declared: Declared = ANYTHING
    names: Names = STORED
    nulls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A log file at `path` that waits for its final name, `file.path`."""

    path: str
    file: DataFile


@dataclass(frozen=True, slots=True)
class Receipt:
    """The staged files of a task.

    requested: the requested time of the write; None if the write's token was used before.
    files: its log files; none without rows or if the write was already complete.
    bases: the base files of an overwrite.
    """

    task: int
    requested: InstantTime | None = None
    rows: int = 0
    files: tuple[StagedFile, ...] = ()
    bases: tuple[StagedBase, ...] = ()

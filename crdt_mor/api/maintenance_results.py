"""Plans and results of compactions, and results of archivings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from crdt_mor.errors import CrdtMorError
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup
from crdt_mor.planners import compaction as engine


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """A plan of a compaction, or a part of it, for any process to execute. It is pickled with the table's payloads.

    Attributes:
        barrier: its instant, 17 digits.
        file_groups: partition and file id of each file group.
        pending: requested times of the writes that were pending at the barrier.
        bytes: size of the input files.
    """

    barrier: InstantTime
    file_groups: tuple[FileGroup, ...]
    pending: tuple[InstantTime, ...]
    bytes: int
    _plan: engine.CompactionPlan = field(repr=False)

    def parts(self) -> list[CompactionPlan]:
        """Split the plan into a part for each file group; only the whole plan can be completed."""
        return [plan_shown(part) for part in self._plan.parts()]

    def __str__(self) -> str:
        return str(self._plan)


ExecuteParts = Callable[[Sequence[CompactionPlan]], Iterable[list[DataFile] | CrdtMorError]]


def plan_shown(plan: engine.CompactionPlan) -> CompactionPlan:
    size = sum(group.bytes for group in plan.groups)
    return CompactionPlan(plan.barrier, tuple(plan.file_groups), plan.pending, size, plan)


def with_plans_shown(
    execute_parts: ExecuteParts | None,
) -> Callable[[Sequence[engine.CompactionPlan]], Iterable[list[DataFile] | CrdtMorError]] | None:
    """Return a function for the engine's parts that calls the user's with views of them."""
    return None if execute_parts is None else lambda parts: execute_parts([plan_shown(part) for part in parts])


@dataclass(frozen=True, slots=True)
class Compacted:
    """A completed compaction.

    Attributes:
        rows, bytes: of the base files and carries written, without copied base files.
        carried: rows and deletes in carries, for pending writes or from a log compaction.
        logs_only: number of file groups with a log compaction.
    """

    barrier: InstantTime
    file_groups: int
    rows: int
    bytes: int
    carried: int
    logs_only: int = 0


@dataclass(frozen=True, slots=True)
class Archived:
    """The result of moving instants from Hudi's active timeline to its history.

    Attributes:
        instants: number of instants moved.
        until: the greatest requested time in the history; None if empty.
        held_by: why the next instant stays active.
        left: files that could not be removed; the next sweep tries again.
    """

    instants: int
    until: InstantTime | None
    held_by: str
    left: int = 0


def compacted(plan: engine.CompactionPlan, done: Completion) -> Compacted:
    made = plan.made(done.files)
    return Compacted(
        plan.barrier,
        sum(file.is_base for file in done.files),
        sum(file.rows for file in made if file.is_base),
        sum(file.size for file in made),
        sum(file.rows + file.deletes for file in made if not file.is_base),
        len(plan.copied),
    )

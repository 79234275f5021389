"""Results of compactions and archivings."""

from __future__ import annotations

from dataclasses import dataclass

from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline_parts import Completion
from crdt_mor.planners.compaction import CompactionPlan


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


def compacted(plan: CompactionPlan, done: Completion) -> Compacted:
    made = plan.made(done.files)
    return Compacted(
        plan.barrier,
        sum(file.is_base for file in done.files),
        sum(file.rows for file in made if file.is_base),
        sum(file.size for file in made),
        sum(file.rows + file.deletes for file in made if not file.is_base),
        len(plan.copied),
    )

"""What upkeep says of what it has done."""

from __future__ import annotations

from dataclasses import dataclass

from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline_parts import Completion
from crdt_mor.planners.compaction import CompactionPlan


@dataclass(frozen=True, slots=True)
class Compacted:
    """A compaction that is done: its barrier and what it wrote.

    rows, bytes: of the base files and carries that it made; base files that a log compaction copies do not count.
    carried: rows and deletes in carries: what pending writes may still come before, or what a log compaction folded.
    logs_only: how many of the file groups had a log compaction.
    """

    barrier: InstantTime
    file_groups: int
    rows: int
    bytes: int
    carried: int
    logs_only: int = 0


@dataclass(frozen=True, slots=True)
class Archived:
    """What an archiving has moved from Hudi's active timeline to its history.

    instants: how many. until: the greatest requested time in the history, by this archiving or an earlier one; None
    where there is none. held_by: what keeps the next instant in the active timeline. left: how many files of archived
    instants could not be removed from the active timeline; the next sweep tries again.
    """

    instants: int
    until: InstantTime | None
    held_by: str
    left: int = 0


def compacted(plan: CompactionPlan, done: Completion) -> Compacted:
    """What a plan that is completed was."""
    made = plan.made(done.files)
    return Compacted(
        plan.barrier,
        sum(file.is_base for file in done.files),
        sum(file.rows for file in made if file.is_base),
        sum(file.size for file in made),
        sum(file.rows + file.deletes for file in made if not file.is_base),
        len(plan.copied),
    )

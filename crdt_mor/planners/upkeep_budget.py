"""The time that writers of a table may spend on its upkeep: a share of the time of their writes.

each write earns SHARE of its time ─► credit ─► a piece of upkeep that the credit affords ─► its time is taken off
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from crdt_mor.model.instant import EPOCH, from_ms
from crdt_mor.model.policies import Policies
from crdt_mor.model.timeline import Timeline
from crdt_mor.planners.archive import KEPT_COMMITS

SHARE: Final = 0.2

START_MS: Final = 1_000
"""Credit of a new process: about the time of its start."""

CREDIT_MAX_MS: Final = 10_000
"""The longest delay of a commit by upkeep, if the estimate is right."""

FIXED_MS: Final = 50

RESTS_MAX: Final = 8
"""Most commits between two looks for due file groups."""

TIDY_EVERY_MS: Final = 60_000
"""Pause between looks for old history and for instants to archive."""

_TIMES_KEPT: Final = 8 / 7
"""Old history waits until it is an eighth of all, so that not every commit cleans."""


@dataclass(frozen=True, slots=True)
class Budget:
    """bytes_per_ms: measured speed of compactions. tidied_ms: time of the last look for old history.

    wanted_ms, rests: the credit, and the number of commits, before the next look for due file groups.
    """

    credit_ms: float = START_MS
    bytes_per_ms: float = 10_000
    tidied_ms: int = 0
    wanted_ms: float = FIXED_MS
    rests: int = 0

    @property
    def may_look(self) -> bool:
        return self.rests <= 0 and self.credit_ms >= self.wanted_ms

    def earned(self, write_ms: int) -> Budget:
        credit_ms = min(CREDIT_MAX_MS, self.credit_ms + SHARE * write_ms)
        return replace(self, credit_ms=credit_ms, rests=self.rests - 1)

    def resting(self, costs_ms: Collection[float], log_files: int) -> Budget:
        """Return the budget after a look that found nothing to do. costs_ms: of due file groups. log_files: the
        number that a file group lacks to be due.
        """
        wanted_ms = min(costs_ms, default=FIXED_MS)
        if wanted_ms > CREDIT_MAX_MS:  # left to `maintain`
            return replace(self, rests=RESTS_MAX, wanted_ms=FIXED_MS)
        return replace(self, rests=min(RESTS_MAX, log_files), wanted_ms=wanted_ms)

    def cost_ms(self, bytes_: int) -> float:
        return FIXED_MS + bytes_ / self.bytes_per_ms

    def spent(self, upkeep_ms: int, bytes_: int = 0) -> Budget:
        """bytes_: of compacted files."""
        measured = bytes_ / max(1, upkeep_ms - FIXED_MS)
        speed = min(self.bytes_per_ms * 2, max(self.bytes_per_ms / 2, measured)) if bytes_ else self.bytes_per_ms
        return replace(self, credit_ms=self.credit_ms - upkeep_ms, bytes_per_ms=speed)


def is_written_here(value: Timeline, host: str) -> bool:
    """Return True if one machine writes the table: all authors that the newest version names are of this host, and
    Hudi writes nothing.
    """
    if value.handed_over != EPOCH or any(commit.adopted for commit in value.completions):
        return False
    authors = [write.author for write in value.pending]
    for commit in value.completions:
        authors += [commit.author, *(writer.author for writer in commit.writers)]
    return all(author is None or author.host == host for author in authors)


def may_tidy(value: Timeline, policies: Policies, now_ms: int) -> bool:
    """Return True if old history or many finished instants are likely, from the value alone."""
    if policies.archive is not None and value.standing >= policies.archive + KEPT_COMMITS:
        return True
    if policies.keep_ms is None:
        return False
    times = [segment.first for segment in value.segments] + [commit.completed for commit in value.completions]
    mark = from_ms(max(0, now_ms - int(policies.keep_ms * _TIMES_KEPT)))
    return value.retention.since < mark and min(times, default=mark) < mark

"""Cuts: the commits that a view shows. A cut never changes.

    by completion   all commits completed by a time, as a reader saw them then
    by request      all commits requested before a time, if no write of that time is pending: a prefix of the table's
                    order, which no later commit can change (the fence of RFC-22)

A cut is also a checkpoint: the increment between two cuts neither skips nor repeats a commit, whatever overlapped. The
text ends in the table id, because a cut of another table shows other commits:

    completed:20260131120000000:0b3d1c6f2a4e4f0f9d8c7b6a59483726
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self

from crdt_mor.errors import InvalidInputError
from crdt_mor.model.instant import EPOCH, InstantTime, barrier_after, parse
from crdt_mor.model.restore import Restore
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Segment

By = Literal["completed", "requested"]


@dataclass(frozen=True, slots=True)
class Cut:
    """The commits completed at or before `time`, or requested before it."""

    by: By
    time: InstantTime

    @classmethod
    def start(cls, by: By) -> Cut:
        return cls(by, EPOCH)

    @classmethod
    def latest(cls, value: Timeline, by: By) -> Cut:
        """Return the cut of all commits, or of all requested before the oldest pending write."""
        if by == "completed":
            return cls(by, value.clock)
        return cls(by, min((p.requested for p in value.pending), default=barrier_after(value.clock)))

    @classmethod
    def after(cls, commit: Completion, by: By) -> Cut:
        """Return the smallest cut with `commit`."""
        return cls(by, commit.completed if by == "completed" else barrier_after(commit.requested))

    def shows(self, commit: Completion) -> bool:
        if self.by == "completed":
            return commit.completed <= self.time
        return commit.requested < self.time

    def reaches(self, time: InstantTime) -> bool:
        """Return True if `time` lies inside this cut: not after its completion time, or before its request time."""
        return time <= self.time if self.by == "completed" else time < self.time

    def is_hidden_by(self, restore: Restore) -> bool:
        """Return True if this cut contains, or contained, commits that a restore dropped."""
        if restore.count == 0 or self.time >= restore.at:
            return False
        return self.time >= restore.first if self.by == "completed" else self.time > restore.first_requested

    def needs(self, segment: Segment) -> bool:
        """Return True if a snapshot at this cut may need the segment's files."""
        # A segment stores only completion times. A commit requested before `time` may have completed much later.
        begun = self.by == "requested" or segment.first <= self.time
        return begun and (segment.superseded is None or self.time < segment.superseded)

    def __str__(self) -> str:
        return f"{self.by}:{self.time}"

    def checkpoint(self, table_id: str | None) -> str:
        return f"{self}:{table_id}" if table_id else str(self)

    @classmethod
    def parse(cls, text: str) -> tuple[Self, str | None]:
        """Parse a checkpoint to a cut and a table id; raise `InvalidInputError` if it is invalid.

        The id is None in the first release's checkpoints.
        """
        by, _, rest = text.partition(":")
        if by not in ("completed", "requested"):
            raise InvalidInputError(
                f"not a checkpoint: pass a checkpoint that `changes` or a scan returned. got={text!r}"
            )
        time, _, table_id = rest.partition(":")
        return cls(by, parse(time)), table_id or None  # type: ignore[arg-type]


def restore_hiding(restores: Iterable[Restore], cut: Cut) -> Restore | None:
    """Return the last restore that dropped commits of a cut."""
    return next((restore for restore in reversed(tuple(restores)) if cut.is_hidden_by(restore)), None)

"""Cuts: which commits a view shows. Which these are never changes once the cut is made.

    by completion   everything completed by a time: what a reader saw then
    by request      everything requested before a time that no pending write was requested before: a prefix of the
                    table's order, without holes, which no later commit can change (the fence of RFC-22)

A cut of a table is also a checkpoint: what one shows and another does not is the increment between them. So increments
neither skip a commit nor repeat one, whatever overlapped. The text of a checkpoint ends in the id of its table, since a
cut with this time shows other commits of another table:

    completed:20260131120000000:0b3d1c6f2a4e4f0f9d8c7b6a59483726
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from crdt_mor.errors import InvalidInputError
from crdt_mor.model.instant import EPOCH, InstantTime, barrier_after, parse
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Segment

By = Literal["completed", "requested"]


@dataclass(frozen=True, slots=True)
class Cut:
    """`completed`: completed at or before `time`; `requested`: requested before it."""

    by: By
    time: InstantTime

    @classmethod
    def start(cls, by: By) -> Cut:
        """The cut that shows nothing."""
        return cls(by, EPOCH)

    @classmethod
    def latest(cls, value: Timeline, by: By) -> Cut:
        """All that `value` shows; by request, all that comes before its oldest pending write."""
        if by == "completed":
            return cls(by, value.clock)
        return cls(by, min((p.requested for p in value.pending), default=barrier_after(value.clock)))

    @classmethod
    def after(cls, commit: Completion, by: By) -> Cut:
        """The least cut that shows `commit`."""
        return cls(by, commit.completed if by == "completed" else barrier_after(commit.requested))

    def shows(self, commit: Completion) -> bool:
        if self.by == "completed":
            return commit.completed <= self.time
        return commit.requested < self.time

    def reaches(self, time: InstantTime) -> bool:
        """Whether the clock of a table must have come to a time before this can be its latest cut."""
        return time <= self.time if self.by == "completed" else time < self.time

    def needs(self, segment: Segment) -> bool:
        """Whether a snapshot at this cut may need files of the segment's commits."""
        # A segment knows completion times alone; what was requested before `time` may have completed long after it.
        begun = self.by == "requested" or segment.first <= self.time
        return begun and (segment.superseded is None or self.time < segment.superseded)

    def __str__(self) -> str:
        return f"{self.by}:{self.time}"

    def checkpoint(self, table_id: str | None) -> str:
        """The text of this cut of a table; without an id where the table has none yet."""
        return f"{self}:{table_id}" if table_id else str(self)

    @classmethod
    def parse(cls, text: str) -> tuple[Self, str | None]:
        """The cut of a checkpoint and the id of its table, None where it has none: the first release's had none.

        Raises `InvalidInputError` for what is no checkpoint.
        """
        by, _, rest = text.partition(":")
        if by not in ("completed", "requested"):
            raise InvalidInputError(f"not a checkpoint: take the one that `changes` or a scan gave. got={text!r}")
        time, _, table_id = rest.partition(":")
        return cls(by, parse(time)), table_id or None  # type: ignore[arg-type]

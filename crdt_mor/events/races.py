"""The races that a process has lost lately, and how it commits next: alone, or the long way for a while."""

from __future__ import annotations

from dataclasses import dataclass

from crdt_mor.model.instant import to_ms
from crdt_mor.model.timeline import Timeline

LONG_WAYS_MAX = 64
"""How many commits go the long way after a lost race, at most, before the next one tries to be alone again."""

LOOK_EVERY = 4
"""After how many commits alone, one after another, a process looks whether others have posted meanwhile. One that has
lost a race looks with each commit, until there were so many."""

RECENT_MS = 1_000
"""A write that has begun so shortly before will soon complete: a commit that is tried alone beside it would lose."""

UPKEEP_EVERY_MS = 60_000
"""While others' writes are pending, a commit goes the long way as often as this, and looks which of them are silent."""


@dataclass(slots=True)
class Races:
    """Whether it is worth while to try: a writer that has lost a race goes the long way for its next commits.

    A table with many writers has none that is alone, and a writer that tries all the same makes its files twice. So
    each lost race makes it stay away longer. A writer that wins again and again lets no other publish, and publishes
    for none: so it looks whether others have posted events.
    """

    lost: int = 0
    left: int = 0
    upkept_ms: int = 0
    in_a_row: int = 0

    def is_alone(self, now_ms: int, value: Timeline, expiry_ms: int) -> bool:
        """Whether the next commit tries. Silent writers are looked for once in a while, which the long way does."""
        if self.is_upkeep_due(now_ms, value, expiry_ms):
            return False
        return self.left == 0 and not any(abs(now_ms - to_ms(p.requested)) < RECENT_MS for p in value.pending)

    def is_upkeep_due(self, now_ms: int, value: Timeline, expiry_ms: int) -> bool:
        """Whether it is time to look for silent writers."""
        return bool(value.pending) and abs(now_ms - self.upkept_ms) > min(UPKEEP_EVERY_MS, expiry_ms)

    def note(self, *, committed: bool, has_met: bool = False) -> None:
        """How a try has ended. has_met: it took events of others along, which will go on."""
        if committed and has_met:
            self.met()
            return
        self.in_a_row = self.in_a_row + 1 if committed else 0
        if committed and self.in_a_row < LOOK_EVERY:
            return
        self.lost = 0 if committed else self.lost + 1
        self.left = 0 if committed else min(LONG_WAYS_MAX, 1 << self.lost)

    @property
    def is_look_due(self) -> bool:
        """Whether it is time to look if others have posted events."""
        return self.lost > 0 or (self.in_a_row > 0 and self.in_a_row % LOOK_EVERY == 0)

    def upkeep(self, now_ms: int) -> None:
        """The long way is taken, and with it upkeep is done."""
        self.upkept_ms = now_ms
        self.left = max(0, self.left - 1)

    def met(self) -> None:
        """Others need the help of this process: it commits alone all the same, and looks each time."""
        self.lost, self.in_a_row = max(1, self.lost), 0

    def grouped(self) -> None:
        """A write was posted, and committed: the next ones need not stay away from a race."""
        self.lost = self.left = self.in_a_row = 0

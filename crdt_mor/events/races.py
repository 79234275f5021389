"""Count lost races, and choose whether the next commit tries to be alone or goes the long way."""

from __future__ import annotations

from dataclasses import dataclass

from crdt_mor.model.instant import to_ms
from crdt_mor.model.timeline import Timeline

LONG_WAYS_MAX = 64
"""The most commits that go the long way after a lost race."""

LOOK_EVERY = 4
"""After this many commits alone in a row, look for posts of others. After a lost race, look with each commit until as
many have succeeded."""

RECENT_MS = 1_000
"""A write that began so recently will soon complete, and a commit alone would lose."""

UPKEEP_EVERY_MS = 60_000
"""While other writes are pending, a commit goes the long way this often, to look for silent writers."""


@dataclass(slots=True)
class Races:
    """Decide whether a commit tries to be alone.

    A failed try makes its files twice, so each lost race keeps a writer away for longer.
    """

    lost: int = 0
    long_ways_left: int = 0
    upkept_ms: int = 0
    in_a_row: int = 0

    def is_alone(self, now_ms: int, value: Timeline, expiry_ms: int) -> bool:
        if self.is_upkeep_due(now_ms, value, expiry_ms):
            return False
        return self.long_ways_left == 0 and not any(abs(now_ms - to_ms(p.requested)) < RECENT_MS for p in value.pending)

    def is_upkeep_due(self, now_ms: int, value: Timeline, expiry_ms: int) -> bool:
        return bool(value.pending) and abs(now_ms - self.upkept_ms) > min(UPKEEP_EVERY_MS, expiry_ms)

    def note(self, *, committed: bool, has_met: bool = False) -> None:
        """Record the outcome of a commit in one event. has_met: it also published other writers' events, and more are
        likely.
        """
        if committed and has_met:
            self.met()
            return
        self.in_a_row = self.in_a_row + 1 if committed else 0
        if committed and self.in_a_row < LOOK_EVERY:
            return
        self.lost = 0 if committed else self.lost + 1
        self.long_ways_left = 0 if committed else min(LONG_WAYS_MAX, 1 << self.lost)

    @property
    def is_look_due(self) -> bool:
        return self.lost > 0 or (self.in_a_row > 0 and self.in_a_row % LOOK_EVERY == 0)

    def upkeep(self, now_ms: int) -> None:
        self.upkept_ms = now_ms
        self.long_ways_left = max(0, self.long_ways_left - 1)

    def met(self) -> None:
        """Record that other writers wait for a publisher: this process keeps committing alone, and looks for their
        events each time.
        """
        self.lost, self.in_a_row = max(1, self.lost), 0

    def grouped(self) -> None:
        self.lost = self.long_ways_left = self.in_a_row = 0

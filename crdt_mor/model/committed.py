"""The committed instants of a table before version 8, where log file names do not tell them.

There, commits and failed writes append blocks to the log file of a slice. Hudi's timeline of layout 1 tells which are
committed:

    ········ T1 ─── T2 ──── T4 ···T5···          completed: T1, T2 and T4; begun: T5
    archived │ active

Instants older than the first completed one are archived, so they are committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.model.instant import EPOCH, InstantTime


@dataclass(frozen=True, slots=True)
class Committed:
    """The completed and begun commits in the active timeline. certain_from: no later instant is archived."""

    completed: frozenset[InstantTime]
    begun: frozenset[InstantTime]
    first: InstantTime
    certain_from: InstantTime

    @classmethod
    def only(cls, instants: Iterable[InstantTime]) -> Committed:
        return cls(frozenset(instants), frozenset(), EPOCH, EPOCH)

    @classmethod
    def since_the_first(cls, instants: Iterable[InstantTime]) -> Committed:
        """Treat all instants older than these as committed, as Hudi's readers do without the archive."""
        known = frozenset(instants)
        first = min(known, default=EPOCH)
        return cls(known, frozenset(), first, first)

    def has(self, instant: InstantTime) -> bool:
        """Return True if an instant is committed; raise `UnsupportedFeatureError` if the timeline cannot tell."""
        if instant in self.completed:
            return True
        if instant in self.begun:
            return False
        if self.first <= instant < self.certain_from:
            raise UnsupportedFeatureError(
                "Hudi archived instants after a savepoint, so it is unknown whether this instant was committed. "
                "Upgrade the table to version 9 with Hudi, or delete the savepoint and let Hudi archive. "
                f"instant={instant} savepoint={self.first}"
            )
        return instant < self.first

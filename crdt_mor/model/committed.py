"""Which instants are committed in a table of before version 8, in which log files do not say it by their names.

Such a log file has the time of its slice in its name. Any number of commits append blocks to it, each with the instant
of its commit, and so do writes that fail. Hudi's timeline of layout 1 tells the ones from the others:

    ········ T1 ─── T2 ──── T4 ···T5···          completed: T1, T2 and T4; begun: T5
    archived │ active

What is older than the first completed instant there was archived, which only committed instants are. What is newer and
has no completed file failed, as T3 did, or is under way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.model.instant import EPOCH, InstantTime


@dataclass(frozen=True, slots=True)
class Committed:
    """What the active timeline says: the instants of commits that are completed, and those that have only begun.

    first: the oldest of the completed ones. certain_from: from here on no instant was archived between two that are
    still there, as happens where Hudi archives beyond a savepoint; `first` where it did not.
    """

    completed: frozenset[InstantTime]
    begun: frozenset[InstantTime]
    first: InstantTime
    certain_from: InstantTime

    @classmethod
    def only(cls, instants: Iterable[InstantTime]) -> Committed:
        """These instants, and no others."""
        return cls(frozenset(instants), frozenset(), EPOCH, EPOCH)

    @classmethod
    def since_the_first(cls, instants: Iterable[InstantTime]) -> Committed:
        """These instants, and what is older than all of them, as in Hudi's readers where an archive was lost."""
        known = frozenset(instants)
        first = min(known, default=EPOCH)
        return cls(known, frozenset(), first, first)

    def has(self, instant: InstantTime) -> bool:
        """Whether an instant is committed; raises `UnsupportedFeatureError` where the active timeline cannot tell."""
        if instant in self.completed:
            return True
        if instant in self.begun:
            return False
        if self.first <= instant < self.certain_from:
            raise UnsupportedFeatureError(
                "Hudi has archived instants between a savepoint and later commits, so that its active timeline does "
                "not tell whether this instant was committed: let Hudi upgrade the table to version 9, or delete the "
                f"savepoint and let Hudi archive. instant={instant} savepoint={self.first}"
            )
        return instant < self.first

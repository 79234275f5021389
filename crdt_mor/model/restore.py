"""Restores that a table has had: which of its history each of them has cut, and what refuses to speak of it.

    ──────to═══dropped═══at──────►    to   what was completed by this time was kept
            ▲ first                   at   when the restore was published, and everything is later that came after it

The commits between are gone, with their files. A view as of a time from the first of them on would show less than it
did, and a checkpoint from there names commits that are no more: both are refused for good. A point from `to`
until the first dropped commit is answered, as nothing of it was lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crdt_mor.model.instant import InstantTime

if TYPE_CHECKING:
    from crdt_mor.model.cut import Cut


@dataclass(frozen=True, slots=True)
class Restore:
    """One restore.

    to: what was completed by this time was kept. at: the table's clock after it.
    version, nonce: of the event. path: the frozen plan, which names the instants that were dropped, and their files.
    first, first_version, first_requested: the least completion time, version and requested time of the commits that
    were dropped; `at` and `version` where there were none. count: how many instants were dropped.
    """

    to: InstantTime
    at: InstantTime
    version: int
    nonce: str
    path: str
    first: InstantTime
    first_version: int
    first_requested: InstantTime
    count: int

    def hides(self, cut: Cut) -> bool:
        """Whether a cut shows some of what was dropped, or did when it was made."""
        if self.count == 0 or cut.time >= self.at:
            return False
        return cut.time >= self.first if cut.by == "completed" else cut.time > self.first_requested

    def hides_version(self, version: int) -> bool:
        """Whether a version of the timeline had some of what was dropped."""
        return self.first_version <= version < self.version


def restore_hiding(restores: Iterable[Restore], cut: Cut) -> Restore | None:
    """The last restore that has dropped some of what a cut showed; None: all of it is there."""
    return next((r for r in reversed(tuple(restores)) if r.hides(cut)), None)


def restored_since(restores: Iterable[Restore], version: int) -> Restore | None:
    """The last restore after a version; None where there was none."""
    return next((r for r in reversed(tuple(restores)) if r.version > version), None)


def restore_json(r: Restore) -> list[object]:
    """The list that stands for a restore in a version of the timeline."""
    return [r.to, r.at, r.version, r.nonce, r.path, r.first, r.first_version, r.first_requested, r.count]


def restore_of(entry: list[Any]) -> Restore:
    """The restore that a list of a version stands for."""
    return Restore(*entry)

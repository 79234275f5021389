"""The restores of a table, and the points of its history that they make invalid.

    ──────to═══dropped═══at──────►    to   commits completed by this time are kept
            ▲ first                   at   the restore's time; later commits follow it

Views and checkpoints from the first dropped commit until `at` are refused for ever, because they would lack rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from crdt_mor.model.instant import InstantTime


@dataclass(frozen=True, slots=True)
class Restore:
    """A restore.

    to: commits completed by this time are kept. at: the table's clock afterwards. path: the frozen plan. first,
    first_version, first_requested: the least completion time, version and requested time of the dropped commits; if
    none was dropped, `at` and `version`.
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

    def hides_version(self, version: int) -> bool:
        return self.first_version <= version < self.version


def restored_since(restores: Iterable[Restore], version: int) -> Restore | None:
    return next((r for r in reversed(tuple(restores)) if r.version > version), None)


def restore_json(r: Restore) -> list[object]:
    return [r.to, r.at, r.version, r.nonce, r.path, r.first, r.first_version, r.first_requested, r.count]


def restore_of(entry: list[Any]) -> Restore:
    return Restore(*entry)

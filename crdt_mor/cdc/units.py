"""Keep back transactions without their end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crdt_mor.cdc.changes import Change


@dataclass(frozen=True, slots=True)
class Feed:
    """Changes of a source, by position. left: a transaction without its end."""

    source: str
    whole: Sequence[Change]
    left: Sequence[Change]

    @property
    def position(self) -> int:
        return self.whole[-1].position

    def after(self, position: int | None) -> list[Change]:
        return [*self.whole] if position is None else [c for c in self.whole if c.position > position]


def feeds(changes: Iterable[Change]) -> list[Feed]:
    by_source: dict[str, list[Change]] = {}
    for change in changes:
        by_source.setdefault(change.source, []).append(change)
    return [_feed(source, of_source) for source, of_source in by_source.items()]


def _feed(source: str, changes: list[Change]) -> Feed:
    changes.sort(key=lambda change: change.position)
    end = _end(changes)
    return Feed(source, changes[:end], changes[end:])


def _end(changes: Sequence[Change]) -> int:
    """Return the last end of a transaction. A tombstone belongs to the change before it."""
    end, unfinished = 0, None
    for place, change in enumerate(changes):
        is_tombstone = change.operation == "m" and change.transaction is None
        if unfinished is not None and not is_tombstone and change.transaction != unfinished:
            end, unfinished = place, None
        if not is_tombstone:
            unfinished = None if change.ends else change.transaction
        if unfinished is None:
            end = place + 1
    return end

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
    end = len(changes)
    last = changes[-1]
    if last.transaction is not None and not last.ends:
        while end and changes[end - 1].transaction == last.transaction and not changes[end - 1].ends:
            end -= 1
    return Feed(source, changes[:end], changes[end:])

"""Apply change events to a table, and keep back transactions without their end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

from crdt_mor import Table
from crdt_mor.cdc.avro import Lookup, Schema
from crdt_mor.cdc.changes import Change
from crdt_mor.cdc.decoding import Format, decode
from crdt_mor.cdc.folding import fold
from crdt_mor.cdc.statements import Target, write
from crdt_mor.cdc.turn import Turn
from crdt_mor.errors import InvalidInputError

WAIT = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Applied:
    """The effect of an `apply`.

    Attributes:
        rows, deletes: numbers of keys.
        skipped: events that earlier calls applied.
        positions: the position to confirm, by source.
        left: events of unfinished transactions, to pass before the next ones.
    """

    rows: int = 0
    deletes: int = 0
    truncations: int = 0
    skipped: int = 0
    positions: Mapping[str, int] = field(default_factory=dict)
    left: tuple[Any, ...] = ()


def apply(
    table: Table,
    events: Any,
    *,
    format: Format | None = None,
    source: str | None = None,
    position: int | None = None,
    avro_schema: Schema | Lookup | None = None,
    wait: timedelta = WAIT,
) -> Applied:
    """Apply change events to a table, each once; docs/cdc.md.

    Args:
        events: JSON, dicts, Kafka records, `Change` objects, or an Arrow batch.
        format: by default recognised.
        source, position: name of the feed and a growing number, for events without a place.
        avro_schema: the schema; for Confluent's wire format a function from an id to it.
        wait: time before another unfinished `apply` of the source is rolled back.
    """
    columns = {field.name: field.type for field in table.schema}
    changes = [*decode(events, format, columns, source, position, avro_schema)]
    _require_one_table(changes)
    applied = Applied()
    for feed in feeds(changes):
        applied = _applied(table, feed, wait, applied)
    return applied


def _require_one_table(changes: Iterable[Change]) -> None:
    names = {change.table for change in changes if change.table is not None}
    if len(names) > 1:
        raise InvalidInputError(
            f"the events come from several tables: call apply once for each, with its events. tables={sorted(names)}"
        )


def _applied(table: Table, feed: Feed, wait: timedelta, so_far: Applied) -> Applied:
    left = (*so_far.left, *(change.event for change in feed.left))
    if not feed.whole:
        return replace(so_far, left=left)
    turn = Turn(table, feed.source, wait)
    while True:
        last = turn.last()
        fresh = feed.after(last)
        skipped = so_far.skipped + _count(feed.whole) - _count(fresh)
        positions = {**so_far.positions, feed.source: max(feed.position, last or 0)}
        target = Target.of(table)
        folded = fold(
            fresh, target.address, target.outside, ordered=target.ordering is not None, layered=target.layered
        )
        if folded.keys or folded.truncations:
            commit = turn.commit(feed.position, last, partial(write, target=target, folded=folded))
            if commit is None:
                continue
        written = sum(one.row is not None for one in folded.keys.values())
        return Applied(
            so_far.rows + written,
            so_far.deletes + len(folded.keys) - written,
            so_far.truncations + folded.truncations,
            skipped,
            positions,
            left,
        )


def _count(changes: Iterable[Change]) -> int:
    return sum(change.operation != "m" for change in changes)


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

"""Apply a batch of change events to a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from crdt_mor import Table, Transaction
from crdt_mor.cdc.changes import Change
from crdt_mor.cdc.folding import Folded, fold
from crdt_mor.cdc.statements import Target, write
from crdt_mor.cdc.turn import Turn
from crdt_mor.cdc.units import Feed, feeds
from crdt_mor.cdc.wal2json import decode_wal2json
from crdt_mor.errors import InvalidInputError

WAIT = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Applied:
    """The effect of an `apply`.

    Attributes:
        rows, deletes: numbers of keys written and deleted.
        skipped: number of events that earlier calls applied.
        positions: per source, the position to confirm to the feed.
        left: events of unfinished transactions, to pass again before the next events.
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
    source: str | None = None,
    wait: timedelta = WAIT,
) -> Applied:
    """Apply change events to a table, each once; docs/cdc.md.

    Args:
        events: JSON, dicts, Kafka records or `Change` objects, also as an Arrow batch.
        source: name of the feed, unless events are Kafka records.
        wait: how long an unfinished `apply` of the source may take before it is rolled back.
    """
    changes = [*_decoded(events, source)]
    _require_one_table(changes)
    applied = Applied()
    for feed in feeds(changes):
        applied = _applied(table, feed, wait, applied)
    return applied


def _decoded(events: Any, source: str | None) -> Iterator[Change]:
    return decode_wal2json(events, source=source or "")


def _require_one_table(changes: Iterable[Change]) -> None:
    names = {change.table for change in changes if change.table is not None}
    if len(names) > 1:
        raise InvalidInputError(
            f"the events come from several tables: call apply once for each, with its events. tables={sorted(names)}"
        )


def _applied(table: Table, feed: Feed, wait: timedelta, so_far: Applied) -> Applied:
    left = (*so_far.left, *(change.event for change in feed.left))
    if not feed.whole:
        return _with(so_far, left=left)
    turn = Turn(table, feed.source, wait)
    while True:
        last = turn.last()
        fresh = feed.after(last)
        skipped = so_far.skipped + _count(feed.whole) - _count(fresh)
        positions = {**so_far.positions, feed.source: max(feed.position, last or 0)}
        target = Target.of(table)
        folded = fold(fresh, target.address, ordered=target.ordering is not None)
        if folded.keys or folded.truncations:
            commit = turn.commit(feed.position, last, _writing(target, folded))
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


def _writing(target: Target, folded: Folded) -> Callable[[Transaction], None]:
    return lambda tx: write(tx, target, folded)


def _with(applied: Applied, *, left: tuple[Any, ...]) -> Applied:
    return Applied(applied.rows, applied.deletes, applied.truncations, applied.skipped, applied.positions, left)

"""Decide the contents of the table at a moment, by moving the table's clock there: all later events have later times.

    the moment is not after the clock            nothing is published
    the store's clock has passed the moment      the event is published; if a later event wins the race, it decides
    the store's clock is not there yet           nothing is published: the moment lies in the future

A pending write completes after the event, so after the moment. The event adopts Hudi's commits up to the moment. Later
found commits with an earlier completion time are shown, or refused if they lie below our base files (`hudi.adoption`).
"""

from __future__ import annotations

from crdt_mor.ground.observing_events import AdoptionEvent
from crdt_mor.hudi.adoption import adopting
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.log.steps import Nonce, Pause, Steps, StoreNow
from crdt_mor.log.tail import find_tail
from crdt_mor.model.instant import EPOCH, InstantTime, tick_after, to_ms
from crdt_mor.model.timeline import Timeline

AWAITED_MS = 250
"""A reader waits for a moment that lies at most this far ahead of the store's clock.

A reader's own clock is often a few milliseconds ahead."""

_LOOKS_MAX = 16


def decide(publisher: TablePublisher, known_tail: Timeline, moment: InstantTime) -> Steps[Timeline]:
    """Return the newest value, with its clock at `moment` or later if the store's clock is."""
    tail = yield from find_tail(known_tail)
    if moment <= tail.clock or not (yield from _is_past(moment)):
        return tail
    nonce = yield Nonce()
    told: AdoptionEvent | None = None

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        nonlocal told
        told = None
        if moment <= tail.clock:
            return None
        event, told = yield from adopting(publisher.projector, tail, nonce, wall_ms, until=moment)
        return tail.decide(nonce, wall_ms) if event is None else event

    value = yield from publisher.publish(derive, tail, wall_ms=to_ms(moment))
    if told is not None:
        publisher.tell(told)
    return value


def _is_past(moment: InstantTime) -> Steps[bool]:
    """Return True if the store's clock is past the time of the event that decides `moment`."""
    reached_ms = to_ms(tick_after(max(moment, EPOCH), 0))
    for attempt in range(_LOOKS_MAX):
        now_ms: int = yield StoreNow()
        if reached_ms <= now_ms:
            return True
        if reached_ms - now_ms > AWAITED_MS:
            return False
        yield Pause(attempt)
    return False

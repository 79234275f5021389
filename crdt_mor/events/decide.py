"""Moments: what a table showed at a moment is decided once its clock has reached it, since all later events are later.

A table that is written to moves its clock all the time. The clock of an idle table stays where the last event took it,
so that nothing would be decided of a moment after that, though the moment is long over. Then the reader that asks for
the moment decides it: it publishes an event that moves the clock there and does nothing else.

    the moment is not after the clock            nothing is published
    the store's clock has passed the moment      the event is published, by put-if-absent as all events are; a reader
                                                 that loses the race to a later event finds the moment decided
    the store's clock is not there yet           nothing is published: the moment lies in the future

A write that is pending completes after the event, so after the moment. What Hudi has completed by the moment becomes
part of the value in the same event. A commit of Hudi's that turns up later, with a completion time before the moment,
meets what every such commit meets (`hudi.adoption`): it is shown, or refused by name if it lies below a base file
of ours.
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
"""How far in the future of the store's clock a moment may lie that is waited for.

"Now" by a reader's own clock is often a few milliseconds ahead of the store's, whose clock ticks more coarsely.
"""

_LOOKS_MAX = 16


def decide(publisher: TablePublisher, known: Timeline, moment: InstantTime) -> Steps[Timeline]:
    """The newest value, whose clock has reached `moment` wherever the store's clock has passed it."""
    tail = yield from find_tail(known)
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
    """Whether the store's clock has passed the time to which deciding a moment may move the table's clock."""
    reached_ms = to_ms(tick_after(max(moment, EPOCH), 0))
    for attempt in range(_LOOKS_MAX):
        now_ms: int = yield StoreNow()
        if reached_ms <= now_ms:
            return True
        if reached_ms - now_ms > AWAITED_MS:
            return False
        yield Pause(attempt)
    return False

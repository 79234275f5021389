"""Add, prove and drop table rules, as protocol steps. See docs/design/rules.md.

    add        every write that begins from now on obeys the rule; small writes obey the value that they follow
    wait       until no earlier write is pending
    look       at the table's rows: no row that breaks the rule can appear any more
    prove      mark the rule as proven; or `withdraw` it

A process that dies in between leaves an unproven rule that writers obey; adding the rule again proves it. A process
withdraws only its own rules, and proves a rule only if no other event dropped or added it meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from crdt_mor.events.update import wait_for_writes
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.log.steps import Nonce, Steps
from crdt_mor.log.stopping import require_present
from crdt_mor.model import rules as model
from crdt_mor.model.instant import tick_after
from crdt_mor.model.rules import Place, Rule, Rules
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Pending


def add(
    publisher: TablePublisher,
    known_tail: Timeline,
    nonce: str,
    new: Sequence[Rule],
    check: Callable[[Timeline], None],
    *,
    are_proven_next: bool,
) -> Steps[Timeline]:
    """Add unproven rules. nonce: identifies them for `withdraw`. check: raises if the table cannot have them."""

    def added(tail: Timeline) -> Rules:
        check(tail)
        return model.adding(tail.rules, new, nonce, are_proven_next=are_proven_next)

    return (yield from _change(publisher, known_tail, added))


def drop(publisher: TablePublisher, known_tail: Timeline, dropped: Collection[Place]) -> Steps[Timeline]:
    return (yield from _change(publisher, known_tail, lambda tail: model.without(tail.rules, dropped)))


def prove(publisher: TablePublisher, known_tail: Timeline, looked_for: Collection[Rule]) -> Steps[Timeline]:
    """Mark rules as proven unless another event changed them. Precondition: all earlier writes have ended."""
    return (yield from _change(publisher, known_tail, lambda tail: model.proving(tail.rules, looked_for)))


def withdraw(publisher: TablePublisher, known_tail: Timeline, nonce: str) -> Steps[Timeline]:
    """Drop the rules of one event, unless another event changed them."""
    return (yield from _change(publisher, known_tail, lambda tail: model.withdrawing(tail.rules, nonce)))


def wait_for_begun(publisher: TablePublisher, value: Timeline, expiry_ms: int, wait_ms: int) -> Steps[Timeline]:
    """Wait until all writes that are pending in `value` have ended. Raises `EarlierWritePendingError` after
    `wait_ms`.
    """
    begun = {pending.requested for pending in value.pending}

    def left(tail: Timeline) -> Steps[list[Pending]]:
        return [pending for pending in tail.pending if pending.requested in begun]
        yield

    why = (
        "a write that began before the rule is still running, so the rule cannot be proven yet. The table is "
        "unchanged. Add the rule again after that write"
    )
    return (yield from wait_for_writes(publisher, value, left, expiry_ms, wait_ms, why))


def _change(publisher: TablePublisher, known_tail: Timeline, changed: Callable[[Timeline], Rules]) -> Steps[Timeline]:
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        rules = changed(tail)
        if rules == tail.rules:
            return None
        require_present(tail)
        return tail.following(nonce, tick_after(tail.clock, wall_ms), rules=rules)

    return (yield from publisher.publish(derive, known_tail))

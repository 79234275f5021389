"""The rules of a table change, as protocol steps; a rule that is added to a table with rows is proven.

    add        the rule is in the value: each write that begins from here on is held to it, and so are small writes in
               one event and groups, by the value that they follow
    wait       until no write is pending that began before
    look       at the rows that the table shows now: none that fails the rule can come to light any more
    prove      the rule is proven; or `withdraw`: it is taken back

So a rule that is proven holds for every row, whatever writers do meanwhile, and no writer waits. A process that dies
between these steps leaves a rule that writes are held to, and that is not proven; adding it again proves it. A
process withdraws only what it has added itself, and proves a rule only if no event has dropped or added it meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from crdt_mor.events.update import wait_for_writes
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.log.steps import Nonce, Steps
from crdt_mor.log.stopping import require_present
from crdt_mor.model import rules as model
from crdt_mor.model.rules import Place, Rule, Rules
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Pending
from crdt_mor.planners.rules import ruled


def add(
    publisher: TablePublisher,
    known: Timeline,
    nonce: str,
    new: Sequence[Rule],
    check: Callable[[Timeline], None],
    *,
    are_proven_next: bool,
) -> Steps[Timeline]:
    """Writes that begin from here on are held to these rules, which are not proven yet.

    nonce: by which they may be withdrawn. check: raises where the table of a value cannot have them.
    """

    def added(tail: Timeline) -> Rules:
        check(tail)
        return model.adding(tail.rules, new, nonce, are_proven_next=are_proven_next)

    return (yield from _change(publisher, known, added))


def drop(publisher: TablePublisher, known: Timeline, dropped: Collection[Place]) -> Steps[Timeline]:
    """Writes that begin from here on are not held to these rules any more."""
    return (yield from _change(publisher, known, lambda tail: model.without(tail.rules, dropped)))


def prove(publisher: TablePublisher, known: Timeline, looked_for: Collection[Rule]) -> Steps[Timeline]:
    """Rules are proven, as a value had them whose writes have all ended, unless others have touched them since."""
    return (yield from _change(publisher, known, lambda tail: model.proving(tail.rules, looked_for)))


def withdraw(publisher: TablePublisher, known: Timeline, nonce: str) -> Steps[Timeline]:
    """The rules that an event has added are dropped, but for those that another has touched since."""
    return (yield from _change(publisher, known, lambda tail: model.withdrawing(tail.rules, nonce)))


def wait_for_begun(publisher: TablePublisher, value: Timeline, expiry_ms: int, wait_ms: int) -> Steps[Timeline]:
    """The newest value, once all writes have ended that are pending in `value`, which has the rules.

    Raises `EarlierWritePendingError` where that lasts for longer than `wait_ms`.
    """
    begun = {pending.requested for pending in value.pending}

    def left(tail: Timeline) -> Steps[list[Pending]]:
        return [pending for pending in tail.pending if pending.requested in begun]
        yield

    why = (
        "a rule is proven once all writes have ended that began before it, and one of them is still under way. The "
        "table is as it was: add the rule again when that write has ended"
    )
    return (yield from wait_for_writes(publisher, value, left, expiry_ms, wait_ms, why))


def _change(publisher: TablePublisher, known: Timeline, changed: Callable[[Timeline], Rules]) -> Steps[Timeline]:
    """The rules of the tail become what is made of it, unless they are that."""
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        rules = changed(tail)
        if rules == tail.rules:
            return None
        require_present(tail)
        return ruled(tail, nonce, wall_ms, rules)

    return (yield from publisher.publish(derive, known))

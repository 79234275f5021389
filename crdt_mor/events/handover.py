"""A table is handed over to Hudi's writers and taken back, as protocol steps.

    hand over    the event, of a quiet and fully compacted value ─ the properties say Hudi's plain rule
    take back    Hudi's commits become part of the value ─ the properties say our rule ─ the event

So whatever process dies, nothing of ours begins while the properties say the plain rule; called again, either goes on.
A process that has stalled may change the properties when its event is long undone: so each looks at the value again
afterwards, and gives them what it asks for. Where it dies before, the properties alone keep our writers away.
"""

from __future__ import annotations

from crdt_mor.errors import InvalidInputError
from crdt_mor.hudi.actions import COMPACT
from crdt_mor.hudi.handover import change_properties, open_instants
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.hudi.restore import named_in
from crdt_mor.log.deciding import deciding
from crdt_mor.log.outcome import all_completions
from crdt_mor.log.steps import Nonce, Steps
from crdt_mor.log.tail import find_tail
from crdt_mor.model.handover import PLAIN, own_properties
from crdt_mor.model.instant import EPOCH
from crdt_mor.model.migration import require_arrived, require_not_moving
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.planners.handover import handed_over, taken_back


def hand_over(publisher: TablePublisher, known: Timeline) -> Steps[Timeline | None]:
    """Nothing begins in the table from here on, and its properties say so; None where it is to be compacted first.

    It is where there are logs, or plans of compactions that nobody has completed, as their process has died.

    Raises `InvalidInputError` where a write is pending or another plan open, or where Hudi has left behind what it has
    begun.
    """
    nonce = yield Nonce()
    is_uncompacted = False

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        nonlocal is_uncompacted
        if tail.handed_over != EPOCH:
            return None
        require_not_moving(tail.moving, "hand over")
        require_arrived(tail.origin)
        _require_quiet(tail)
        if is_uncompacted := bool(tail.plans):
            return None
        yield from publisher.help_project(tail)  # else what a dead process has ended would seem to have begun alone
        yield from _require_nothing_left(publisher.projector.folder)
        completions = yield from all_completions(tail)
        is_uncompacted = any(slice_.logs for slice_ in fold_slices(completions))
        return None if is_uncompacted else handed_over(tail, nonce, wall_ms)

    value = yield from publisher.publish(derive, known)
    if is_uncompacted or value.handed_over == EPOCH:
        return None
    return (yield from _settle(publisher, value))


def take_back(publisher: TablePublisher, known: Timeline) -> Steps[Timeline]:
    """Writers of ours begin again. Precondition: what Hudi has written is part of the value.

    Raises `InvalidInputError` where Hudi has begun something that has not ended.
    """
    nonce, since = (yield Nonce()), known.handed_over
    if since != EPOCH:
        names = yield from named_in(publisher.projector.folder)
        if begun := open_instants(names, since):
            raise InvalidInputError(
                "writers of Hudi's have begun what has not ended: let them end it, or roll it back with Hudi (call "
                f"run_rollback_inflight_tasks, or its next write), and take the table back then. instants={begun}"
            )
        yield from change_properties(own_properties(publisher.projector.config.merge))

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        return taken_back(tail, nonce, wall_ms) if tail.handed_over == since != EPOCH else None

    value = yield from publisher.publish(derive, known)
    return (yield from _settle(publisher, value))


def _settle(publisher: TablePublisher, value: Timeline) -> Steps[Timeline]:
    """Give the properties what the newest value asks for, which is returned. value: that one, or an earlier one."""
    own = own_properties(publisher.projector.config.merge)
    with deciding(is_made=True):
        while True:
            yield from change_properties(own if value.handed_over == EPOCH else PLAIN)
            tail = yield from find_tail(value)
            if tail.handed_over == value.handed_over:
                return tail
            value = tail


def _require_nothing_left(folder: str) -> Steps[None]:
    """Raise where an instant of Hudi's was requested and has not ended. Precondition: nothing of ours is under way."""
    names = yield from named_in(folder)
    requested = {instant: found for instant, found in names.items() if any(n.state == "requested" for n in found)}
    if left := open_instants(requested, EPOCH):
        raise InvalidInputError(
            "Hudi has begun what has not ended, which its writers cannot roll back once commits of ours lie after it: "
            "while no writer of Hudi's runs, move the files of these instants, and of a rollback among them, out of "
            f"{folder}, and hand the table over then. instants={left}"
        )


def _require_quiet(tail: Timeline) -> None:
    """Raise where a write or a plan is under way, unless it is a compaction's, which anybody may complete."""
    pending = [pending.requested for pending in tail.pending]
    plans = [plan.barrier for plan in tail.plans if plan.action != COMPACT.name]
    if pending or plans:
        raise InvalidInputError(
            "a table is handed over while nothing is under way in it: let these writes and plans end, or give them up "
            f"with table.maintenance.roll_back, and hand it over then. pending={pending} plans={plans}"
        )

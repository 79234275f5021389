"""Hand a table over to Hudi's writers and take it back, as protocol steps.

    hand over    publish the event, on a quiet, fully compacted value ─ set Hudi's plain rule in the properties
    take back    adopt Hudi's commits ─ set our rule in the properties ─ publish the event

So none of our writes begins under the plain rule, whatever process dies, and each call can be repeated. A stalled
process may set the properties too late, so each then reads the value again and corrects them.
"""

from __future__ import annotations

from crdt_mor.errors import InvalidInputError
from crdt_mor.hudi.actions import COMPACT
from crdt_mor.hudi.handover import change_properties, open_instants
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.hudi.restore import hudi_files_in
from crdt_mor.log.deciding import deciding
from crdt_mor.log.outcome import all_completions
from crdt_mor.log.steps import Nonce, Steps
from crdt_mor.log.tail import find_tail
from crdt_mor.model.handover import PLAIN, own_properties
from crdt_mor.model.instant import EPOCH, tick_after
from crdt_mor.model.migration import require_arrived, require_not_moving
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline import Timeline


def hand_over(publisher: TablePublisher, known_tail: Timeline) -> Steps[Timeline | None]:
    """Stop our writes and set Hudi's rule; None if logs or open compactions must be completed first."""
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
        yield from publisher.help_project(tail)  # otherwise a dead process's completed instant would look open
        yield from _require_nothing_left(publisher.projector.folder)
        completions = yield from all_completions(tail)
        is_uncompacted = any(slice_.logs for slice_ in fold_slices(completions))
        return None if is_uncompacted else handed_over(tail, nonce, wall_ms)

    value = yield from publisher.publish(derive, known_tail)
    if is_uncompacted or value.handed_over == EPOCH:
        return None
    return (yield from _settle(publisher, value))


def take_back(publisher: TablePublisher, known_tail: Timeline) -> Steps[Timeline]:
    """Let our writers begin again. Precondition: Hudi's commits are adopted. Raises `InvalidInputError` for open
    instants.
    """
    nonce, since = (yield Nonce()), known_tail.handed_over
    if since != EPOCH:
        names = yield from hudi_files_in(publisher.projector.folder)
        if begun := open_instants(names, since):
            raise InvalidInputError(
                "Hudi's timeline contains unfinished instants. Finish them or roll them back with Hudi "
                f"(run_rollback_inflight_tasks, or its next write), then call takeback() again. instants={begun}"
            )
        yield from change_properties(own_properties(publisher.projector.config.merge))

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        return taken_back(tail, nonce, wall_ms) if tail.handed_over == since != EPOCH else None

    value = yield from publisher.publish(derive, known_tail)
    return (yield from _settle(publisher, value))


def _settle(publisher: TablePublisher, value: Timeline) -> Steps[Timeline]:
    """Set the properties that the newest value asks for, and return that value."""
    own = own_properties(publisher.projector.config.merge)
    with deciding(is_made=True):
        while True:
            yield from change_properties(own if value.handed_over == EPOCH else PLAIN)
            tail = yield from find_tail(value)
            if tail.handed_over == value.handed_over:
                return tail
            value = tail


def _require_nothing_left(folder: str) -> Steps[None]:
    """Raise for unfinished instants of Hudi. Precondition: our writers are idle."""
    names = yield from hudi_files_in(folder)
    requested = {instant: found for instant, found in names.items() if any(n.state == "requested" for n in found)}
    if left := open_instants(requested, EPOCH):
        raise InvalidInputError(
            "unfinished instants of Hudi cannot be rolled back below commits of ours. Stop all Hudi writers, move "
            f"the files of these instants and their rollbacks out of {folder}, then hand the table over. "
            f"instants={left}"
        )


def _require_quiet(tail: Timeline) -> None:
    """Raise if a write or plan is open, except compactions: anybody may complete these."""
    pending = [pending.requested for pending in tail.pending]
    plans = [plan.barrier for plan in tail.plans if plan.action != COMPACT.name]
    if pending or plans:
        raise InvalidInputError(
            "writes are pending or plans are open. Let them end or give them up with table.maintenance.roll_back, "
            f"then hand the table over. pending={pending} plans={plans}"
        )


def handed_over(value: Timeline, nonce: str, wall_ms: int) -> Timeline:
    """Return the value in which no write or plan begins until the takeback; none may be pending."""
    assert not value.pending, "a pending write would end beside Hudi's writers"
    assert not value.plans, "an open plan would end beside Hudi's writers"
    clock = tick_after(value.clock, wall_ms)
    return value.following(nonce, clock, handed_over=clock)


def taken_back(value: Timeline, nonce: str, wall_ms: int) -> Timeline:
    return value.following(nonce, tick_after(value.clock, wall_ms), handed_over=EPOCH)

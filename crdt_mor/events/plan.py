"""Schedule, complete and cancel plans of all services, as protocol steps. See docs/design/compaction.md.

    schedule ──► open ──► complete     the outputs are visible
                   │
                   └────► cancel ───► the outputs are deleted, then the plan in Hudi's timeline

Hudi's readers leave out a slice if its base file belongs to no instant of their timeline. So a plan enters Hudi's
timeline before its first output, and leaves after its last. They also refuse two pending compactions of a file group.
So a cancelled plan leaves Hudi's timeline before the next version; that version's publisher makes sure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import cast

from crdt_mor.errors import TableNotFoundError, TableReplacedError
from crdt_mor.ground.observing_events import PlanEvent
from crdt_mor.hudi.actions import P, PlannedAction, planned_action
from crdt_mor.hudi.plan import read_plan
from crdt_mor.log.deciding import deciding
from crdt_mor.log.foreseen import Replies
from crdt_mor.log.outcome import find_completion, find_completion_by_nonce, is_given_up_in, may_be_dropped
from crdt_mor.log.paths import plan_path
from crdt_mor.log.publish import NO_SHORTCUTS, Publisher, Shortcuts
from crdt_mor.log.steps import Delete, Nonce, Put, Read, Steps, put_surely
from crdt_mor.log.stopping import require_present
from crdt_mor.log.tail import Tail, delete_if_table_is_gone, find_tail, look_once
from crdt_mor.model.authors import Author
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup, OpenPlan
from crdt_mor.planners.packing import droppable_until


def schedule(
    publisher: Publisher,
    known_tail: Timeline,
    action: PlannedAction[P],
    plan_from: Callable[[Timeline, Collection[FileGroup]], P | None],
    shortcuts: Shortcuts = NO_SHORTCUTS,
    replies: Replies | None = None,
) -> Steps[tuple[Timeline, P | None]]:
    """Schedule the plan that follows from the tail; None if there is nothing to do.

    plan_from: a pure function of the event's value and of the file groups in open plans. The plan must contain none of
    these. replies: gets the plan's object, for the projection.
    """
    nonce = yield Nonce()
    written: dict[str, bytes] = {}
    named = ""  # the path of the opened plan, unless cancelled

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        nonlocal named
        landed = yield from _barrier_of_attempt(nonce, known_tail.clock, tail)
        if landed is not None:
            named = plan_path(landed, nonce) if tail.find_rolled_back(landed) is None else ""
            return None  # a put that seemed lost landed
        require_present(tail)
        taken = yield from groups_in_plans(tail)
        plan = plan_from(tail, taken)
        if plan is None:
            return None
        assert taken.isdisjoint(plan.file_groups), "a file group has at most one open plan"
        path = named = plan_path(plan.barrier, nonce)
        written[path] = plan.encode()
        yield from put_surely(Put(path, written[path]))
        if replies is not None:
            replies[Read(path)] = written[path]
        return tail.schedule(nonce, wall_ms, action.name, path, action.retention(plan))

    try:
        value = yield from publisher.publish(derive, known_tail, shortcuts)
    except (TableReplacedError, TableNotFoundError):
        yield from delete_if_table_is_gone(known_tail, written)
        raise
    scheduled = next((plan for plan in value.plans if plan.nonce == nonce), None)
    for path in written:
        if path != named:
            yield Delete(path)  # a lost attempt; completed plans are swept
    if scheduled is None:
        return value, None
    plan = action.decode(written[scheduled.path], scheduled.path)
    groups = len(plan.file_groups)
    publisher.tell(PlanEvent(state="scheduled", barrier=scheduled.barrier, action=scheduled.action, file_groups=groups))
    return value, plan


def _barrier_of_attempt(nonce: str, since: InstantTime, tail: Timeline) -> Steps[InstantTime | None]:
    """Return the barrier of the open or ended plan with this nonce."""
    for plan in tail.plans:
        if plan.nonce == nonce:
            return plan.barrier
    for cancelled in tail.rolled_back:
        if cancelled.nonce == nonce:
            return cancelled.requested
    completion = yield from find_completion_by_nonce(nonce, since, tail)
    return None if completion is None else completion.requested


def groups_in_plans(tail: Timeline) -> Steps[set[FileGroup]]:
    taken: set[FileGroup] = set()
    for open_plan in tail.plans:
        plan = yield from read_plan(tail, open_plan)
        taken.update(plan.file_groups if plan is not None else ())
    return taken


def open_plans(publisher: Publisher, known_tail: Timeline, action: PlannedAction[P]) -> Steps[tuple[Timeline, list[P]]]:
    """Return the open plans of an action, oldest first, all projected."""
    tail = yield from find_tail(known_tail)
    yield from publisher.help_project(tail)  # the newest plan's process may have died before this
    frozen: list[P] = []
    for open_plan in sorted(tail.plans, key=lambda plan: plan.barrier):
        plan = (yield from read_plan(tail, open_plan)) if open_plan.action == action.name else None
        frozen += [cast("P", plan)] if plan is not None else []
    return tail, frozen


def keep_outputs(known_tail: Timeline, barrier: InstantTime, outputs: Iterable[str]) -> Steps[Tail | None]:
    """Return the tail if an executor's outputs may stay; delete them, and return None, if the plan was cancelled.

    An executor calls this after its puts: a cancel deletes only outputs put before its listing.
    """
    tail = yield from look_once(known_tail)
    if not (yield from is_given_up_in(barrier, tail)):
        return tail
    if may_be_dropped(barrier, (yield from find_tail(tail))):
        return None  # a savepoint of Hudi may need a completed plan's outputs; others are swept
    for path in outputs:
        yield Delete(path)
    return None


def complete(
    publisher: Publisher,
    known_tail: Timeline,
    barrier: InstantTime,
    files: Sequence[DataFile],
    author: Author | None = None,
    shortcuts: Shortcuts = NO_SHORTCUTS,
    *,
    drops_commits: bool = True,
) -> Steps[tuple[Timeline, Completion | None]]:
    """Publish the completion of a plan, unless it exists; None if the plan was cancelled.

    drops_commits: of views that end with the plan.
    """
    nonce = yield Nonce()
    open_plan: OpenPlan | None = None

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        nonlocal open_plan
        open_plan = tail.find_plan(barrier)
        if open_plan is None:
            return None
        plan = yield from read_plan(tail, open_plan)
        action = planned_action(open_plan.action)
        operation = action.operation
        if plan is not None:
            plan.require_outputs(files)
            operation = action.operation_of(plan) or operation
        droppable = None if plan is None or not drops_commits else _droppable(tail, action.deletion(plan))
        return tail.complete_plan(nonce, wall_ms, barrier, action.completed, operation, files, author, droppable)

    value = yield from publisher.publish(derive, known_tail, shortcuts)
    if open_plan is not None:
        publisher.tell(
            PlanEvent(
                state="completed", barrier=barrier, action=open_plan.action,
                file_groups=len({file.group for file in files}), rows=sum(file.rows for file in files),
                bytes=sum(file.size for file in files),
            )
        )  # fmt: skip
    with deciding(is_made=True):
        completion = yield from find_completion(barrier, value)
        if completion is None:
            yield from keep_outputs(value, barrier, [file.path for file in files])
        return value, completion


def _droppable(tail: Timeline, deletion: InstantTime | None) -> InstantTime | None:
    """Return the time up to which no view and no open plan needs commits."""
    if deletion is None:
        return None
    barriers = (plan.barrier for plan in tail.plans)
    return min([droppable_until(tail, deletion, tail.archive.watermark), *barriers])


def cancel(publisher: Publisher, known_tail: Timeline, barrier: InstantTime) -> Steps[Timeline]:
    """Cancel an open plan. Projecting this event deletes the outputs."""
    nonce = yield Nonce()

    open_plan: OpenPlan | None = None

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        nonlocal open_plan
        open_plan = tail.find_plan(barrier)
        return tail.cancel_plan(nonce, wall_ms, barrier) if open_plan else None

    value = yield from publisher.publish(derive, known_tail)
    if open_plan is not None:
        publisher.tell(PlanEvent(state="cancelled", barrier=barrier, action=open_plan.action))
    return value

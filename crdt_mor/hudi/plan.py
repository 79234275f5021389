"""The frozen plan behind an open plan of the value: read from its object and decoded as its action says."""

from __future__ import annotations

from crdt_mor.errors import InvalidInputError
from crdt_mor.hudi.actions import planned_action
from crdt_mor.log.steps import Steps, read_named
from crdt_mor.log.tail import find_tail
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import OpenPlan
from crdt_mor.planners.compaction import FrozenPlan


def read_plan(tail: Timeline, plan: OpenPlan) -> Steps[FrozenPlan | None]:
    """A plan that is open in `tail`; None if it has been completed or cancelled since.

    Its object may be gone then: a process that learns late that its plan was scheduled, and cancelled, deletes the
    object, and so does a sweep. An event that is derived from `tail` cannot be published any more in that case, so it
    may ignore the plan.
    """
    data = yield from read_named(plan.path)
    if data is not None:
        frozen: FrozenPlan = planned_action(plan.action).decode(data, plan.path)
        return frozen
    if (yield from find_tail(tail)).find_plan(plan.barrier) is None:
        return None
    raise InvalidInputError(f"the plan is gone; cancel it and plan again. barrier={plan.barrier} file={plan.path}")

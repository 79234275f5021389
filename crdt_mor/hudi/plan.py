"""Read the frozen plan of an open plan."""

from __future__ import annotations

from crdt_mor.errors import InvalidInputError
from crdt_mor.hudi.actions import planned_action
from crdt_mor.log.steps import Steps, read_named
from crdt_mor.log.tail import find_tail
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import OpenPlan
from crdt_mor.planners.compaction import FrozenPlan


def read_plan(tail: Timeline, plan: OpenPlan) -> Steps[FrozenPlan | None]:
    """Read an open plan of `tail`; None if it has ended since.

    Its object may then be deleted. An event derived from `tail` can no longer be published, and may ignore the plan.
    """
    data = yield from read_named(plan.path)
    if data is not None:
        frozen: FrozenPlan = planned_action(plan.action).decode(data, plan.path)
        return frozen
    if (yield from find_tail(tail)).find_plan(plan.barrier) is None:
        return None
    raise InvalidInputError(
        f"the plan is missing. Cancel the plan and plan again. barrier={plan.barrier} file={plan.path}"
    )

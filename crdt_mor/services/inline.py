"""Upkeep by writers: after its commit a writer compacts what is due in the file groups that it has written.

The commit is complete and visible by then, whatever becomes of the upkeep: what fails is told as an `UpkeepEvent`, with
its error, and raises nothing. Other services are left to `maintain`, as their cost has nothing to do with what one
writer wrote.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from crdt_mor.errors import CrdtMorError
from crdt_mor.model.due import DueGroup, due_compactions
from crdt_mor.model.instant import to_ms
from crdt_mor.model.plans import CompactionPlan
from crdt_mor.model.policies import Policies
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, FileGroup
from crdt_mor.observing import UpkeepEvent
from crdt_mor.services.maintain import (
    bounded,
    compacted,
    due_action,
    latest_slices,
    must_wait,
    open_since,
    schedule_due,
    state_of,
    tell,
)
from crdt_mor.services.upkeep import Upkeep
from crdt_mor.timeline import plans
from crdt_mor.timeline.actions import COMPACT
from crdt_mor.timeline.session import Session


def upkeep_after(session: Session, value: Timeline, completion: Completion) -> None:
    """Compact what is due in the file groups of a commit that `value` shows, if this session's writers are to do so.

    Raises no `Exception`.
    """
    try:
        policies = Policies.of(value.properties)
        if policies.inline if session.inline is None else session.inline:
            _compact(session, value, {file.group for file in completion.files}, policies)
    except Exception as error:  # noqa: BLE001  the commit stands, and whoever made it must learn that it does
        failed = state_of(error) if isinstance(error, CrdtMorError) else "failed"
        session.publisher.tell(
            UpkeepEvent(
                service="compaction", state=failed, why="a commit was made", inline=True,
                error=str(error) or type(error).__name__,
            )
        )  # fmt: skip


def _compact(session: Session, value: Timeline, groups: Collection[FileGroup], policies: Policies) -> None:
    now_ms = session.environment.now_ms()

    def due(value: Timeline, slices: Sequence[FileSlice], taken: Collection[FileGroup]) -> list[DueGroup]:
        written = [slice_ for slice_ in slices if slice_.group in groups]
        return due_compactions(value, written, session.config.merge, policies, now_ms, taken)

    found = bounded(due(value, latest_slices(session, value), ()))
    if not found or must_wait(session, value):
        return  # as after most commits, without a look at the store
    for plan in _left_behind(session, value, {one.group for one in found}, now_ms):
        for action in compacted(session, plan, Upkeep("compaction", "done", open_since(plan.barrier, now_ms))):
            tell(session, action, inline=True)
    fresh, chosen = schedule_due(session, due)
    if fresh is not None:
        for action in compacted(session, fresh, due_action("compaction", chosen, "done")):
            tell(session, action, inline=True)


def _left_behind(
    session: Session, value: Timeline, groups: set[FileGroup], now_ms: int
) -> list[CompactionPlan]:
    """The plans that hold one of these groups and have been open for so long that their executors must be dead.

    A plan that is younger is left to whoever is at work on it: two executors are safe, but one of them is in vain.
    """
    old = [p for p in value.plans if p.action == COMPACT.name and now_ms - to_ms(p.barrier) > session.expiry_ms]
    read = (session.run(plans.read_plan(value, plan)) for plan in old)
    return [plan for plan in read if isinstance(plan, CompactionPlan) and set(plan.file_groups) & groups]

"""Compact the due file groups of a writer's commit."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from crdt_mor.events.session import Session
from crdt_mor.hudi.actions import COMPACT
from crdt_mor.hudi.plan import read_plan
from crdt_mor.model.instant import to_ms
from crdt_mor.model.policies import Policies
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import FileGroup
from crdt_mor.planners.compaction import CompactionPlan
from crdt_mor.planners.compaction_due import DueGroup, due_compactions
from crdt_mor.services.compaction_finish import finish
from crdt_mor.services.maintain import bounded, compacted, must_wait, open_since, schedule_due, tell
from crdt_mor.services.maintain_report import Upkeep, due_action


def compact_written(session: Session, value: Timeline, groups: Collection[FileGroup], policies: Policies) -> None:
    now_ms = session.environment.now_ms()

    def due(value: Timeline, slices: Sequence[FileSlice], taken: Collection[FileGroup]) -> list[DueGroup]:
        written = [slice_ for slice_ in slices if slice_.group in groups]
        return due_compactions(value, written, session.config.merge, policies, now_ms, taken)

    found = bounded(due(value, session.views.slices(value).with_logs(), ()))
    if not found or must_wait(session, value):
        return  # as after most commits, without a request
    for plan in _left_behind(session, value, {one.group for one in found}, now_ms):
        for action in compacted(finish(session, plan), Upkeep("compaction", "done", open_since(plan.barrier, now_ms))):
            tell(session, action, inline=True)
    fresh, chosen = schedule_due(session, due)
    if fresh is not None:
        for action in compacted(finish(session, fresh), due_action("compaction", chosen, "done")):
            tell(session, action, inline=True)


def _left_behind(session: Session, value: Timeline, groups: set[FileGroup], now_ms: int) -> list[CompactionPlan]:
    """Return the open plans of these file groups with executors that must be dead."""
    old = [p for p in value.plans if p.action == COMPACT.name and now_ms - to_ms(p.barrier) > session.expiry_ms]
    read = (session.run(read_plan(value, plan)) for plan in old)
    return [plan for plan in read if isinstance(plan, CompactionPlan) and set(plan.file_groups) & groups]

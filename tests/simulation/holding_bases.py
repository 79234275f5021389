"""Compactions whose base files say what they hold, so that in every store of a small world one sees what a view shows.

A base file is a list of paths, a line each: of the log files that were folded into it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from crdt_mor.events import plan as plans
from crdt_mor.hudi.actions import COMPACT
from crdt_mor.log.segments import read_segment
from crdt_mor.log.steps import Put, Read, Steps
from crdt_mor.model.merge_spec import MergeSpec
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup
from crdt_mor.planners.compaction import CompactionPlan, plan_compaction
from tests.simulation.actors import PUBLISHER, Run, output_path

MERGE = MergeSpec.parse("latest")


def compactor(value: Timeline) -> Run:
    """Plans, executes and completes a compaction of all that is committed."""
    known = yield from completions_now(value)

    def compaction_from(tail: Timeline, taken: Collection[FileGroup]) -> CompactionPlan | None:
        completions = {c.requested: c for c in (*known, *tail.completions)}
        return plan_compaction(tail, fold_slices(completions.values()), MERGE, taken)

    tail, plan = yield from plans.schedule(PUBLISHER, value, COMPACT, compaction_from)
    return (yield from execute(tail, plan)) if plan is not None else None


def completions_now(value: Timeline) -> Steps[list[Completion]]:
    """Those of the value and of its segments."""
    found = list(value.completions)
    for segment in value.segments:
        found += yield from read_segment(segment)
    return found


def execute(tail: Timeline, plan: CompactionPlan) -> Run:
    """Puts the base file of a plan, and completes it."""
    path = output_path(plan.barrier)
    held: list[str] = []
    (group,) = plan.groups
    for file in (*group.logs, *([group.base] if group.base else [])):
        data = yield Read(file.path)
        if data is None:  # as the plan is over
            return ("late", plan.barrier)
        held += data.decode().split("\n") if file.is_base else [file.path]
    if not (yield from plans.keep_outputs(tail, plan.barrier, [])):
        return ("cancelled", plan.barrier)
    yield Put(path, "\n".join(sorted(held)).encode())
    if not (yield from plans.keep_outputs(tail, plan.barrier, [path])):
        return ("cancelled", plan.barrier)
    _, done = yield from plans.complete(PUBLISHER, tail, plan.barrier, [DataFile(path, 1, 1)])
    return ("compacted" if done else "cancelled", plan.barrier)


def logs_shown(completions: Iterable[Completion], objects: Mapping[str, Any]) -> list[str]:
    """The log files whose rows one sees where these are the completions: those of the slices, and in their bases."""
    shown: list[str] = []
    for found in fold_slices(completions):
        shown += [file.path for file in found.logs]
        if found.base is not None:
            shown += objects[found.base.path].decode().split("\n")
    return sorted(shown)

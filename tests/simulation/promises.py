"""What holds in every state of every small world: in each store, of each event, and of what actors are told."""

from __future__ import annotations

from functools import cache
from typing import Any

from crdt_mor.format.commit import decode_compaction_plan
from crdt_mor.hudi.actions import COMPACT, MomentaryAction, PlannedAction, action_ending_as, planned_action
from crdt_mor.log.paths import version_path
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import REPLACE_COMMIT
from crdt_mor.model.timeline import Timeline
from crdt_mor.planners.compaction import CompactionPlan, FrozenPlan
from tests.simulation.small_store import (
    HUDI,
    LATE,
    LOG,
    PROJECTOR,
    Saw,
    Violation,
    barrier_of,
    barriers_kept,
    begun_paths,
    completed_path,
    completions_of,
    decoded,
    planned_actions,
)


def check_event(before: Timeline, after: Timeline, objects: dict[str, Any]) -> None:
    """A genuine value keeps everything that was decided before it, and decides nothing twice.

    Its completions are those of the value before it, in the same order, and then its own, wherever they are kept.
    """
    old, new = completions_of(before, objects), completions_of(after, objects)
    if after.version != before.version + 1:
        raise Violation(f"version {after.version} after {before.version}")
    if new[: len(old)] != old:
        raise Violation("a commit was lost from the timeline")
    outcomes = [c.requested for c in new] + [r.requested for r in after.rolled_back]
    going_on = {p.requested for p in after.pending} | {p.barrier for p in after.plans}
    if len(outcomes) != len(set(outcomes)) or set(outcomes) & going_on:
        raise Violation(f"an instant with two outcomes: {outcomes}")
    for completion in (c for c in new[len(old) :] if c.action != REPLACE_COMMIT):  # which only Hudi's writers make
        ended = action_ending_as(completion.action)
        planned = isinstance(ended, PlannedAction) and completion.overwriting is None
        if planned and before.find_plan(completion.requested) is None:
            raise Violation(f"a plan was completed that was not open: {completion.requested}")


def check_open_plans(value: Timeline, objects: dict[str, Any]) -> None:
    """A file group is in one open plan at most."""
    groups = [group for plan in value.plans for group in frozen(plan.action, objects[plan.path]).file_groups]
    if len(groups) != len(set(groups)):
        raise Violation(f"two open plans of one file group: {value.plans}")


@cache
def frozen(action: str, data: bytes) -> FrozenPlan:
    plan: FrozenPlan = planned_action(action).decode(data, "")
    return plan


def planned(data: bytes) -> CompactionPlan:
    plan = frozen(COMPACT.name, data)
    assert isinstance(plan, CompactionPlan)
    return plan


@cache
def recorded(data: bytes) -> list[tuple[str, str | None]]:
    """The file groups of a plan in Hudi's timeline."""
    return [(group.partition_path or "", group.file_id) for group in decode_compaction_plan(data, "").operations]


def check_store(objects: dict[str, Any]) -> None:
    """Files of commits are there; Hudi's directory is a prefix, and all of what stands below the newest version."""
    tail = decoded(objects[LOG][-1])
    if objects.get(version_path(tail.version)) != objects[LOG][-1]:
        raise Violation("the tail is gone")
    completions = completions_of(tail, objects)
    for completion in completions:
        for file in completion.files:
            staged = completion.version == tail.version and file.staged in objects
            if file.path not in objects and not staged:
                raise Violation(f"a file of a committed instant was removed: {file.path}")
        if completion.action == REPLACE_COMMIT:
            continue
        action = action_ending_as(completion.action)
        paths = PROJECTOR.pending_paths(completion.requested, action.name)
        grown = completion.operation == "ALTER_SCHEMA"
        at_once = grown or completion.overwriting is not None or isinstance(action, MomentaryAction)
        told_late = at_once or (isinstance(action, PlannedAction) and not action.shown_while_open)
        begun = paths[: 0 if told_late else len(action.begin_states)]
        told = completed_path(completion) in objects and completion.version < tail.version
        for path in paths if told else begun:  # of the newest version, the others come after the completed file
            if path not in objects:
                raise Violation(f"Hudi never saw the instant begin, or forgot it: {path}")
        if completed_path(completion) not in objects and completion.version < tail.version:
            raise Violation(f"a hole in Hudi's directory: {completed_path(completion)}")
    mine = {completed_path(c) for c in completions}
    for path in objects:
        if path.startswith(HUDI) and "_" in path and path not in mine:
            raise Violation(f"Hudi was told of a commit that never was: {path}")
    # Of an overwrite that is the newest event Hudi may not know yet: nothing has completed behind it.
    newest = {c.requested for c in completions if c.overwriting is not None and c.version == tail.version}
    check_plans(objects, newest | {c.requested for c in completions if completed_path(c) in objects})


def check_plans(objects: dict[str, Any], completed: set[InstantTime]) -> None:
    """Hudi's readers can read the table, and miss nothing, whatever becomes of the plans.

    An output or a record that a stalled process put after the plan was cancelled is not held against it here: it
    removes that itself, or is dead, and then a sweep does.
    """
    pending: list[tuple[str, str | None]] = []
    for path, data in objects.items():
        barrier = barrier_of(path)
        if barrier is None or barrier in completed:
            continue
        paths = {action.name: PROJECTOR.pending_paths(barrier, action.name) for action in planned_actions()}
        records = {record: action for action, (record, *_) in paths.items()}
        later = {file for _, *files in paths.values() for file in files}
        if path in later and records.keys().isdisjoint(objects):
            raise Violation(f"Hudi's readers look for the record of a plan, and there is none: {path}")
        if path in objects[LATE]:
            continue
        if path in records:
            pending += recorded(data) if records[path] == COMPACT.name else []
        elif records.keys().isdisjoint(objects):
            raise Violation(f"beside an output without a plan Hudi's readers miss later commits: {path}")
    if len(pending) != len(set(pending)):
        raise Violation(f"two pending compactions of one file group in Hudi's timeline: {pending}")


def check_result(result: Any, objects: dict[str, Any]) -> None:
    """What a writer told its caller is so."""
    tail = decoded(objects[LOG][-1])
    completions = completions_of(tail, objects)
    match result:
        case ("acknowledged", requested):
            done = next((c for c in completions if c.requested == requested), None)
            if done is None:
                raise Violation(f"an acknowledged commit was lost: {requested}")
            if completed_path(done) not in objects:
                raise Violation(f"an acknowledged commit is not in Hudi's directory: {requested}")
        case ("compacted", barrier):
            done = next((c for c in completions if c.requested == barrier), None)
            if done is None or completed_path(done) not in objects:
                raise Violation(f"an acknowledged compaction was lost, or Hudi was not told of it: {barrier}")
        case ("cancelled", barrier):
            if any(c.requested == barrier for c in completions):
                raise Violation(f"a plan was said to be cancelled, but it was completed: {barrier}")
            if any(barrier_of(path) == barrier and path not in objects[LATE] for path in objects):
                raise Violation(f"a plan was said to be cancelled, and is not gone: {barrier}")
        case ("decided", moment, shown):
            if moment > tail.clock:
                raise Violation(f"a moment was said to be decided that the table's clock has not reached: {moment}")
            if sorted(c.requested for c in completions if c.completed <= moment) != list(shown):
                raise Violation(f"a commit came before a moment that was decided, or is gone: {moment} {shown}")
        case ("expired", requested):
            if any(c.requested == requested for c in completions):
                raise Violation(f"a writer was told that its commit was rolled back, but it was not: {requested}")


def check_saw(saw: Saw, objects: dict[str, Any]) -> None:
    """An incremental read, by version, misses no commit and sees none that is not."""
    truth = decoded(objects[LOG][-1])
    since = saw.before.version if saw.before else -1
    if saw.after.version < since:
        raise Violation("a reader went back in time")
    due = [c for c in completions_of(truth, objects) if since < c.version <= saw.after.version]
    shown = saw.after.completions if saw.shown is None else saw.shown
    got = [c for c in sorted(shown, key=lambda c: c.version) if c.version > since]
    if due != got:
        raise Violation(f"a reader missed a commit, or saw one that is not: {due} {got}")


def check_end(objects: dict[str, Any]) -> None:
    """Nobody has anything left to do, so nobody will remove what a given-up instant left in Hudi's directory."""
    tail = decoded(objects[LOG][-1])
    for path in objects:
        if (barrier := barrier_of(path)) is not None and barrier not in barriers_kept(tail, objects):
            raise Violation(f"a file of a cancelled plan stays: {path}")
    for given_up in tail.rolled_back:
        for path in begun_paths(given_up.requested):
            if path in objects:
                raise Violation(f"a file of a given-up instant stays in Hudi's directory: {path}")

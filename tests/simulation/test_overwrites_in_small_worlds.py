"""Overwrites keep their promises in every interleaving with stragglers, compactions, other overwrites and crashes.

In each state that can be reached Hudi's readers, by the rule by which they find the files of a slice, show just what
the commits mean of which Hudi has been told: of each file group what the last overwrite put there, and what was
requested after its barrier. Every rule that this takes is left out once, and the search finds what goes wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from crdt_mor.errors import CommitUnknownError, StorageUnavailableError, WriterExpiredError
from crdt_mor.events import job as jobs
from crdt_mor.events import overwrite as overwriting
from crdt_mor.events import plan as plans
from crdt_mor.events import rollback, sweep
from crdt_mor.events import write as events
from crdt_mor.hudi.overwrite import place
from crdt_mor.hudi.plan import read_plan
from crdt_mor.hudi.projection import Projector
from crdt_mor.log import publish
from crdt_mor.log.outcome import find_completion
from crdt_mor.log.steps import Put, Read, Steps
from crdt_mor.log.tail import find_tail
from crdt_mor.model.instant import EPOCH, InstantTime, to_ms
from crdt_mor.model.names import (
    WRITE_TOKEN,
    BaseFileName,
    LogFileName,
    TimelineFileName,
    bucket_file_id,
    data_file_name,
    join_path,
)
from crdt_mor.model.overwrite import OVERWRITE, Scope
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, Pending
from crdt_mor.planners.compaction import CompactionPlan, GroupInput
from crdt_mor.planners.overwrite import StagedBase, StagedOverwrite, overwritten, overwritten_at
from tests.driving import staged_path
from tests.simulation.actors import PUBLISHER, Run, planner, worker
from tests.simulation.promises import check_store, recorded
from tests.simulation.small_store import HUDI, LATE, LOG, Violation, completed_path, completions_of, decoded, is_version
from tests.simulation.small_world import World
from tests.simulation.worlds import ROLES, Place, Plant, Role, WriteRole, nothing, small_numbers
from tests.tiers import slow

FILE_ID = bucket_file_id(0)
COVERED, OTHER = "", "other"
SCOPE = Scope((COVERED,))


def says(*instants: str) -> bytes:
    """What a data file holds here: the requested times of the writes whose rows are in it."""
    return json.dumps(sorted(instants)).encode()


def log_of(partition: str, requested: InstantTime) -> DataFile:
    return DataFile(join_path(partition, str(LogFileName(FILE_ID, requested))), 1, 1)


# --- who lives here ---------------------------------------------------------------------------------------------------


def straggler(value: Timeline, begun: Pending, *partitions: str) -> Run:
    """A write that has begun before: it stages a file in each partition and completes."""
    files = [log_of(partition, begun.requested) for partition in partitions]
    for file in files:
        tail = yield from find_tail(value)
        if tail.find_pending(begun.requested) is None:
            return ("expired", begun.requested)
        yield Put(file.path, says(begun.requested))
    try:
        yield from events.complete(PUBLISHER, value, begun, "UPSERT", files, None)
    except WriterExpiredError:
        return ("expired", begun.requested)
    return ("acknowledged", begun.requested)


def staged_paths(begun: Pending) -> tuple[str, str]:
    return staged_path(begun.requested, "base"), staged_path(begun.requested, "empty")


def overwriter(value: Timeline, begun: Pending, *, rows: bool = True) -> Run:
    """A write that has begun and staged its base files before; it overwrites the one partition."""
    base, empty = staged_paths(begun)
    bases = (StagedBase(base, (COVERED, FILE_ID), 1, 1),) if rows else ()
    staged = StagedOverwrite(OVERWRITE, SCOPE, bases, (empty, 1))
    try:
        yield from overwriting.overwrite(PUBLISHER, value, begun, staged, None)
    except WriterExpiredError:
        return ("expired", begun.requested)
    return ("acknowledged", begun.requested)


def driver(value: Timeline, begun: Pending, name: str) -> Run:
    """One of the drivers of an overwrite whose tasks have staged: what `distributed.complete` does, step by step.

    It makes a base file of its own of what they staged, as where several tasks share a file group.
    """
    requested = begun.requested
    mine, empty = staged_path(requested, name), staged_paths(begun)[1]
    staged = StagedOverwrite(OVERWRITE, SCOPE, (StagedBase(mine, (COVERED, FILE_ID), 1, 1),), (empty, 1))
    driven = replace(begun, driver=name)
    outcome = "expired"
    try:
        driven = yield from jobs.take_over(PUBLISHER, value, driven)
        tail: Timeline = yield from find_tail(value)
        pending = tail.find_pending(requested)
        if pending is None:
            raise (yield from events.ended_error(requested, tail))
        if pending.driver != name:
            raise events.taken_over_error(requested)
        yield Put(mine, says(requested))
        done = yield from overwriting.overwrite(PUBLISHER, value, driven, staged, None)
        assert isinstance(done.completion, Completion)
        if done.repeated == any(file.staged == mine for file in done.completion.files):
            raise Violation(f"a driver takes another one's overwrite for its own, or its own for another one's: {done}")
        outcome = "repeated" if done.repeated else "acknowledged"
    except WriterExpiredError:
        tail = yield from rollback.give_up(PUBLISHER, value, requested, [mine], name)
        outcome = "repeated" if (yield from find_completion(requested, tail)) else "expired"
    except CommitUnknownError:
        yield from rollback.give_up(PUBLISHER, value, requested, [mine], name)
        outcome = "unknown"
    yield from jobs.clear_staged(PUBLISHER, value, requested, begun.nonce)
    return (outcome, requested)


def attempt(value: Timeline, begun: Pending) -> Run:
    """An attempt at a task that nobody counts: it stages a file, and cleans up if it finds the write over."""
    yield Put(staged_path(begun.requested, "late"), says(begun.requested))
    yield from jobs.clear_staged(PUBLISHER, value, begun.requested, begun.nonce)
    return ("late", begun.requested)


def freeze(tail: Timeline) -> CompactionPlan:
    """A plan of the file group that is overwritten, as it is in the tail."""
    pending = tuple(sorted(p.requested for p in tail.pending))
    slices = [s for s in fold_slices(tail.completions) if s.partition == COVERED]
    since = overwritten_at(tail, COVERED)
    groups = tuple(GroupInput(s.partition, s.file_id, s.base, s.logs, overwritten=since) for s in slices)
    return CompactionPlan(tail.next_barrier, pending, "", "latest", groups)


def execute(tail: Timeline, barrier: InstantTime) -> Run:
    """The stable rows become the base, the others are carried, as of every table but the default."""
    found = tail.find_plan(barrier)
    plan = (yield from read_plan(tail, found)) if found is not None else None
    if plan is None or not (yield from plans.keep_outputs(tail, barrier, [])):
        return []
    assert isinstance(plan, CompactionPlan)
    (group,) = plan.groups
    held: set[str] = set()
    for file in (*([group.base] if group.base else []), *group.logs):
        data = yield Read(file.path)
        if data is None:
            return []  # the plan is over, and its inputs are gone
        held.update(json.loads(data))
    stable_before = min(plan.pending_of(group), default="9")
    carried = {instant for instant in held if instant >= stable_before}
    outputs = [(str(BaseFileName(FILE_ID, WRITE_TOKEN, barrier)), held - carried)]
    outputs += [(str(LogFileName(FILE_ID, barrier)), carried)] if carried else []
    for path, instants in outputs:
        yield Put(path, says(*instants))
    kept = yield from plans.keep_outputs(tail, barrier, [path for path, _ in outputs])
    return [DataFile(path, 1, 1) for path, _ in outputs] if kept else []


# --- worlds -----------------------------------------------------------------------------------------------------------


class OverwriteWorld(World):
    """A world in which Hudi's readers are asked for the rows in every state."""

    def check(self, objects: dict[str, Any]) -> None:
        check_store(objects)
        for partition in (COVERED, OTHER):
            shown, meant = hudi_shows(objects, partition), what_commits_mean(objects, partition)
            if shown != meant:
                raise Violation(f"Hudi's readers show {sorted(shown)}, and not {sorted(meant)}: {partition=}")


def told(objects: dict[str, Any]) -> list[Completion]:
    """The completions of which Hudi has been told."""
    return [c for c in completions_of(decoded(objects[LOG][-1]), objects) if completed_path(c) in objects]


def what_commits_mean(objects: dict[str, Any], partition: str) -> set[str]:
    """The writes whose rows are to be seen in a partition, once Hudi knows of these commits."""
    seen: set[str] = set()
    for commit in sorted(told(objects), key=lambda c: c.requested):
        if commit.overwriting is not None:
            seen = {commit.overwriting.write} if any(file.rows for file in commit.files) else set()
            continue
        if commit.action == "deltacommit" and any(file.partition == partition for file in commit.files):
            seen.add(commit.requested)
    return seen if partition == COVERED else {
        c.requested for c in told(objects) if any(file.partition == partition for file in c.files)
    }  # fmt: skip


def hudi_shows(objects: dict[str, Any], partition: str) -> set[str]:
    """The writes whose rows Hudi's readers show: by names alone, and by what stands in the files."""
    parsed = [TimelineFileName.parse(path.rpartition("/")[2]) for path in objects if path.startswith(HUDI)]
    completed = {name.requested: name.completed for name in parsed if name and name.state == "completed"}
    planned = {
        name.requested: recorded(objects[f"{HUDI}/{name}"])
        for name in parsed
        if name and name.action == "compaction" and name.state == "requested" and name.requested not in completed
    }
    cancelled = {r.requested for r in decoded(objects[LOG][-1]).rolled_back}
    files = [
        (name, json.loads(data))
        for path, data in objects.items()
        if path[0] != "!"
        and path.rpartition("/")[0] == partition
        and (name := data_file_name(path)) is not None
        and not (path in objects[LATE] and name.instant in cancelled)  # its executor removes it, or a sweep does
    ]
    bases = {name.instant: rows for name, rows in files if isinstance(name, BaseFileName)}
    hidden = {instant for instant, groups in planned.items() if (partition, FILE_ID) in groups}
    opened = sorted([*(instant for instant in bases if instant not in hidden), EPOCH])
    latest = max((instant for instant in bases if instant in completed), default=EPOCH)
    shown = set(bases.get(latest, []))
    for name, rows in files:
        ended = completed.get(name.instant)
        if isinstance(name, LogFileName) and ended is not None and max(b for b in opened if b <= ended) == latest:
            shown.update(rows)
    return shown


def begun(count: int, *, commit: bool = True, plan: bool = False) -> Place:
    """A table in which so many writes have begun, and have staged base files; then a commit; and a plan.

    The commit was requested last, so that it is not stable for the plan.
    """
    place = Place.with_begun(count + commit)
    if commit:
        last = place.tail.pending[-1]
        place.run(straggler(place.tail, last, COVERED), "first")
        assert [c.requested for c in place.tail.completions] == [last.requested]
    place.settle()
    if plan:
        place.run(planner(place.tail, freeze=freeze), "planned")
        place.settle()
    for pending in place.tail.pending:
        base, empty = staged_paths(pending)
        place.objects |= {base: says(pending.requested), empty: says()}
    return place


small = small_numbers()


@pytest.fixture(autouse=True)
def nothing_is_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody but we write here."""

    def only_ours(publisher: object, known: Timeline) -> Steps[Timeline]:
        return (yield from find_tail(known))

    monkeypatch.setattr(overwriting, "adopt", only_ours)


MY_ROLES: Mapping[str, Role] = {
    **ROLES, "planner": partial(planner, freeze=freeze), "worker": partial(worker, execute=execute),
}  # fmt: skip
WRITES: Mapping[str, WriteRole] = {
    "straggler": lambda value, begun: straggler(value, begun, COVERED),
    "straggler of two": lambda value, begun: straggler(value, begun, COVERED, OTHER),
    "overwriter": overwriter,
    "emptier": partial(overwriter, rows=False),
}


def world(who: Sequence[str], *, plan: bool = False, commit: bool = True, **options: Any) -> World:
    """Actors with writes of their own, in the order in which these began; `plan`: a plan is open from the start.

    Drivers and attempts are of one job, which began before the other writes.
    """
    jobs_begun = int(any(role in ("driver", "attempt") for role in who))
    place = begun(sum(role in WRITES for role in who) + jobs_begun, plan=plan, commit=commit)
    job, writes = place.tail.pending[:jobs_begun], place.tail.pending[jobs_begun:]
    roles: dict[str, Role] = {**MY_ROLES}
    for own in job:
        roles["attempt"] = partial(attempt, begun=own)
        roles |= {f"driver{i}": partial(driver, begun=own, name=f"driver{i}") for i in range(len(who))}
    names = [f"driver{i}" if role == "driver" else role for i, role in enumerate(who)]
    place.live(names, roles, writes=WRITES, begun=writes)
    return OverwriteWorld(place.objects, place.actors, **{"faulty": is_version, **options})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("who", "options"),
    [
        (["straggler", "overwriter"], {}),
        (["straggler", "overwriter"], {"commit": False}),
        (["overwriter", "straggler of two"], {}),
        (["straggler", "emptier"], {"faults": 1}),
        (["overwriter", "overwriter"], {}),
        (["overwriter", "planner"], {}),
        (["overwriter", "worker"], {"plan": True}),
        (["straggler", "overwriter", "worker"], {"plan": True, "deletions": False}),
        (["straggler", "overwriter", "planner"], {"deletions": False}),
        (["overwriter", "sweeper"], {}),
        (["driver", "driver"], {"commit": False, "deletions": False}),
        (["driver", "attempt"], {}),
        (["driver", "attempt", "straggler"], {"deletions": False}),
        (["overwriter", "cleaner"], {"commit": False}),
    ],
    ids=str,
)
def test_an_overwrite_beside_others(who: Sequence[str], options: dict[str, Any]) -> None:
    assert world(who, **options).search() > 1_000


# --- planted bugs: every rule is needed -------------------------------------------------------------------------------


def a_straggler_keeps_its_files(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timeline, "void_files", lambda tail, requested, files: [])
    patch.setattr(publish, "require_invariants", lambda previous, following: None)


def plans_of_the_scope_stay_open(patch: pytest.MonkeyPatch) -> None:
    def none(tail: Timeline, scope: Scope) -> Steps[list[object]]:
        return []
        yield

    patch.setattr(overwriting, "plans_of", none)


def the_barrier_is_reserved_before_the_event(patch: pytest.MonkeyPatch) -> None:
    def early(value: Timeline, nonce: str, wall_ms: int, write: Pending, *rest: Any) -> Timeline:
        return overwritten(replace(value, clock=write.requested), nonce, to_ms(value.clock) + 2, write, *rest)

    patch.setattr(overwriting, "overwritten", early)
    patch.setattr(publish, "require_invariants", lambda previous, following: None)


def base_files_have_their_names_before_the_event(patch: pytest.MonkeyPatch) -> None:
    claim = publish.claim

    def named(tail: Timeline, value: Timeline) -> Steps[Timeline | None]:
        yield from place(tail, [c for c in value.completions if c.version == value.version])
        return (yield from claim(tail, value))

    patch.setattr(publish, "claim", named)


def hudi_is_told_before_the_base_files_have_names(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Projector, "place", lambda self, value: nothing())


def a_sweep_takes_what_is_staged_for_rubbish(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sweep, "name_base_files", lambda publisher, known: nothing())


def an_attempt_takes_what_is_staged_for_rubbish(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(jobs, "name_base_files", lambda publisher, known: nothing())


def a_driver_that_was_overtaken_may_overwrite(patch: pytest.MonkeyPatch) -> None:
    overwrite = overwriting.overwrite

    def careless(publisher: Any, known: Timeline, begun: Pending, *rest: Any) -> Steps[events.WriteOutcome]:
        tail = yield from find_tail(known)
        now = tail.find_pending(begun.requested)
        return (yield from overwrite(publisher, known, now or begun, *rest))

    patch.setattr(overwriting, "overwrite", careless)


@pytest.mark.parametrize(
    ("plant", "who", "options", "found"),
    [
        (a_straggler_keeps_its_files, ["straggler", "overwriter"], {}, "Hudi's readers show"),
        (the_barrier_is_reserved_before_the_event, ["straggler", "overwriter"], {}, "Hudi's readers show"),
        (hudi_is_told_before_the_base_files_have_names, ["straggler", "overwriter"], {}, "Hudi's readers show|removed"),
        slow(plans_of_the_scope_stay_open, ["overwriter", "worker"], {"plan": True}, "Hudi's readers show"),
        slow(base_files_have_their_names_before_the_event, ["straggler", "overwriter"], {}, "Hudi's readers show"),
        (an_attempt_takes_what_is_staged_for_rubbish, ["driver", "attempt"], {}, "was removed"),
        slow(a_driver_that_was_overtaken_may_overwrite, ["driver", "driver"], {"deletions": False}, "for its own"),
        slow(a_sweep_takes_what_is_staged_for_rubbish, ["overwriter", "sweeper"], {}, "removed|cannot be given"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_search_finds(
    plant: Plant, who: Sequence[str], options: dict[str, Any], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((Violation, StorageUnavailableError), match=found):
        world(who, **options).search(depth_first=True)

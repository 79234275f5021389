"""A clean keeps its promises in every interleaving: marks move, files go, beside who writes, reads and compacts.

The table has one file group, with a base file that a compaction has superseded and the logs around it. A base file here
says what it holds, so that in every store one sees what a view shows. The planner is the real one (`planners.clean`),
and so is the protocol. In each store that can be reached, so wherever anybody dies, the promises are:

    - every file is there that a view needs which the marks allow, by the rule of `fold_slices`; or a write that is
      pending, whose transaction has its view; or an open compaction
    - marks never move back, whatever becomes of the plan
    - a reader gets all of his view, or learns that a file is gone; never fewer rows
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from crdt_mor.events import plan as plans
from crdt_mor.hudi.actions import CLEAN, COMPACT
from crdt_mor.log import publish
from crdt_mor.log.paths import plan_path
from crdt_mor.log.steps import Delete, Put, Read, Steps, Walk, put_surely
from crdt_mor.log.tail import find_tail
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import LAST, InstantTime
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import EVERYTHING_KEPT, Completion, FileGroup, Retention
from crdt_mor.planners import clean as retention
from crdt_mor.planners.clean import CleanPlan, RetentionPolicy, plan_clean, plan_cleaning
from crdt_mor.store.protocol import Stat
from tests.simulation.actors import PUBLISHER, Run, complete
from tests.simulation.holding_bases import compactor
from tests.simulation.playing import data_files_in
from tests.simulation.promises import frozen
from tests.simulation.small_store import LOG, Violation, completions_of, decoded, is_version
from tests.simulation.small_world import World
from tests.simulation.worlds import ROLES, Place, Plant, small_numbers

LAST_COMMIT = RetentionPolicy(commits=1)

nothing_is_kept = small_numbers()


# --- who is there -----------------------------------------------------------------------------------------------------


def cleaner(value: Timeline) -> Run:
    """Finishes the cleans that are open, plans one of its own, and finishes that: as `services.clean` does."""
    tail, found = yield from plans.open_plans(PUBLISHER, value, CLEAN)
    for earlier in found:
        yield from finish(tail, earlier)
    listed: list[Stat] = yield Walk()
    there = {stat.path for stat in listed}
    tail, plan = yield from plans.schedule(PUBLISHER, tail, CLEAN, partial(clean_from, there))
    return (yield from finish(tail, plan)) if plan is not None else None


def finish(tail: Timeline, plan: CleanPlan) -> Run:
    """Deletes the files of an open plan, and completes it."""
    for file in plan.files:
        yield Delete(file.path)
    _, done = yield from plans.complete(PUBLISHER, tail, plan.barrier, [])
    return ("compacted" if done else "cancelled", plan.barrier)


def clean_from(there: Collection[str], tail: Timeline, taken: Collection[FileGroup]) -> CleanPlan | None:
    found = plan_cleaning(tail, tail.completions, LAST_COMMIT, 1, there)
    return plan_clean(tail, tail.completions, found, "commits") if found.files else None


def reader(value: Timeline) -> Run:
    """Reads the newest view, file after file."""
    tail = yield from find_tail(value)
    shown: list[str] = []
    for found in fold_slices(tail.completions):
        for file in (*found.logs, *([found.base] if found.base else [])):
            data = yield Read(file.path)
            if data is None:
                return ("refused", tail.clock)
            shown += data.decode().split("\n") if file.is_base else [file.path]
    if sorted(shown) != sorted(f.path for c in tail.completions for f in c.files if not f.is_base):
        raise Violation(f"a reader saw fewer rows, or some twice: {shown}")
    return ("read", tail.clock)


# --- the world --------------------------------------------------------------------------------------------------------


class Cleaned(World):
    """A table with commits `c` and compactions `k`, and with writes that began `b` before or between them.

    The writes that have begun have staged their files. plan: a clean that is open, executed by nobody so far.
    """

    def __init__(self, history: str, who: Sequence[str], *, open_clean: bool = False, **options: Any) -> None:
        place = Place()
        place.play(history)
        if open_clean:
            there = partial(clean_from, data_files_in(place.objects))
            place.run(plans.schedule(PUBLISHER, place.tail, CLEAN, there), "open.")
        place.settle()
        place.complete_all(complete)
        place.live(who, {**ROLES, "cleaner": cleaner, "compactor": compactor, "reader": reader}, letters=2)
        super().__init__(place.objects, place.actors, faulty=is_version, **options)

    def check(self, objects: dict[str, Any]) -> None:
        tail = decoded(objects[LOG][-1])
        completions = completions_of(tail, objects)
        gone = {file.path for data in plans_of_cleans(objects, tail, completions) for file in data.files}
        super().check({**objects, **{path: b"" for path in gone if path not in objects}})
        check_needed(tail, completions, objects)


def plans_of_cleans(objects: dict[str, Any], tail: Timeline, completions: Sequence[Completion]) -> list[CleanPlan]:
    """The cleans that were scheduled: open, completed, or cancelled when they had deleted something."""
    paths = [plan.path for plan in tail.plans if plan.action == CLEAN.name]
    paths += [plan_path(c.requested, c.nonce) for c in completions if c.action == CLEAN.completed]
    paths += [plan_path(r.requested, r.nonce) for r in tail.rolled_back if r.action == CLEAN.name]
    found = [frozen(CLEAN.name, objects[path]) for path in paths if path in objects]
    assert all(isinstance(plan, CleanPlan) for plan in found)
    return found  # type: ignore[return-value]


def check_needed(tail: Timeline, completions: Sequence[Completion], objects: dict[str, Any]) -> None:
    """Every file is there that somebody may look at."""
    since = tail.retention.since
    cuts = {Cut("completed", time) for time in (since, *(c.completed for c in completions)) if time >= since}
    cuts |= {Cut(by, p.requested) for p in tail.pending for by in ("completed", "requested")}
    needed = {file for cut in cuts for file in files_of([c for c in completions if cut.shows(c)])}
    for plan in tail.plans:
        data = objects[plan.path]
        if plan.action == COMPACT.name:
            (group,) = frozen(COMPACT.name, data).groups  # type: ignore[attr-defined]
            needed |= {file.path for file in (*group.logs, *([group.base] if group.base else []))}
    missing = sorted(path for path in needed if path not in objects)
    if missing:
        raise Violation(f"files are gone that somebody needs: {missing} since={since}")


def files_of(completions: Sequence[Completion]) -> set[str]:
    return {f.path for s in fold_slices(completions) for f in (*s.logs, *([s.base] if s.base else []))}


@pytest.mark.slow
def test_a_reader_across_a_clean_and_a_write_that_began_before_it() -> None:
    assert Cleaned("ckck", ["cleaner", "reader"]).search() > 100
    assert Cleaned("cbkc", ["cleaner"]).search() > 500


@pytest.mark.slow
@pytest.mark.parametrize(
    ("history", "who", "options"),
    [
        ("ckck", ["cleaner", "cleaner"], {"deletions": False}),
        ("ckck", ["cleaner", "cleaner"], {"deletions": False, "faults": 1}),
        ("ckck", ["cleaner", "canceller"], {"open_clean": True}),
        ("ckc", ["cleaner", "compactor"], {"deletions": False}),
        ("ckck", ["cleaner", "writer"], {"deletions": False}),
    ],
    ids=str,
)
def test_everything(history: str, who: Sequence[str], options: dict[str, Any]) -> None:
    assert Cleaned(history, who, **options).search() > 50


# --- planted bugs: every rule is needed -------------------------------------------------------------------------------


def files_go_before_the_event_is_known_to_be_there(patch: pytest.MonkeyPatch) -> None:
    """Who plans deletes at once what it plans, and publishes then."""
    put = put_surely

    def hasty(found: Put) -> Steps[None]:
        yield from put(found)
        for file in CleanPlan.decode(found.data, "").files:
            yield Delete(file.path)

    patch.setattr(plans, "put_surely", hasty)


def the_marks_stay_where_they_are(patch: pytest.MonkeyPatch) -> None:
    schedule = Timeline.schedule

    def careless(self: Timeline, nonce: str, wall_ms: int, action: str, path: str, *marks: Retention) -> Timeline:
        return schedule(self, nonce, wall_ms, action, path)

    patch.setattr(Timeline, "schedule", careless)


def a_pending_write_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    clean = clean_from

    def careless(there: Collection[str], tail: Timeline, taken: Collection[FileGroup]) -> CleanPlan | None:
        return clean(there, replace(tail, pending=()), taken)

    patch.setattr("tests.simulation.test_clean_in_small_worlds.clean_from", careless)


def an_earlier_view_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("crdt_mor.planners.clean._earlier_views", lambda value: [])


def the_newest_base_file_counts_whenever_it_came(patch: pytest.MonkeyPatch) -> None:
    """Files go that the newest view does not need, although earlier ones are kept."""
    beyond = retention._obsolete
    patch.setattr(retention, "_obsolete", lambda files, ends, mark: beyond(files, ends, LAST))


def a_cancel_takes_the_marks_back(patch: pytest.MonkeyPatch) -> None:
    cancel = Timeline.cancel_plan

    def careless(self: Timeline, nonce: str, wall_ms: int, barrier: InstantTime) -> Timeline:
        return replace(cancel(self, nonce, wall_ms, barrier), retention=EVERYTHING_KEPT)

    patch.setattr(Timeline, "cancel_plan", careless)
    patch.setattr(publish, "require_invariants", lambda previous, following: None)


@pytest.mark.parametrize(
    ("plant", "history", "who", "options", "found"),
    [
        (files_go_before_the_event_is_known_to_be_there, "ckck", ["cleaner"], {}, "somebody needs|was removed"),
        (the_marks_stay_where_they_are, "ckck", ["cleaner"], {}, "somebody needs"),
        (a_pending_write_is_not_looked_at, "cbkc", ["cleaner"], {}, "somebody needs"),
        (an_earlier_view_is_not_looked_at, "cbkc", ["cleaner"], {}, "somebody needs"),
        (the_newest_base_file_counts_whenever_it_came, "ckck", ["cleaner"], {}, "somebody needs"),
        (a_cancel_takes_the_marks_back, "ckck", ["cleaner", "canceller"], {"open_clean": True}, "somebody needs"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_search_finds(
    plant: Plant,
    history: str,
    who: Sequence[str],
    options: dict[str, Any],
    found: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Cleaned(history, who, **options)
    plant(monkeypatch)
    with pytest.raises(Violation, match=found):
        world.search(depth_first=True)

"""Plans keep their promises in every interleaving: schedule, execute by several workers, complete, cancel, plan again.

An instant has one outcome, no output of a completed plan is removed, no file group is in two open plans; and Hudi's
readers can read the table in every state: they never see two pending plans of a file group, never look for the record
of a plan in vain, and never miss a commit because of an output whose plan they do not know. Each has a planted bug.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from crdt_mor.events import plan as plans
from crdt_mor.hudi.projection import Projector
from crdt_mor.log import projection, publish
from crdt_mor.log.paths import plan_path, version_path
from crdt_mor.log.projection import EventFile
from crdt_mor.log.publish import Publisher
from crdt_mor.log.steps import Delete, Put, Read, Steps
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import FileGroup, OpenPlan
from crdt_mor.planners.compaction import CompactionPlan
from tests.driving import nonce_in_hex
from tests.simulation.actors import planned_world
from tests.simulation.small_store import Violation, is_version
from tests.simulation.small_world import World
from tests.simulation.worlds import Place, Plant, nothing, small_numbers
from tests.tiers import slow

nothing_is_kept = small_numbers()


def world(who: Sequence[str], plan: str = "projected", **options: Any) -> World:
    """A table with one file group, whose plan is there and projected, is there and not projected, or is not there."""
    place = Place(None if plan == "none" else planned_world(projected=plan == "projected")[0])
    place.live(who)
    # What else is put, and lands when everything is over, is left to a sweep.
    return World(place.objects, place.actors, **{"check_leftovers": True, "faulty": is_version, **options})


@pytest.mark.costly
@pytest.mark.parametrize(
    ("who", "options", "states"),
    [
        (["worker", "canceller"], {"plan": "unprojected"}, 200),
        (["canceller", "sweeper"], {}, 200),
        (["worker", "canceller"], {"faults": 1}, 1_000),
        (["canceller", "planner"], {"faults": 1}, 1_000),
        slow(["worker", "worker", "canceller"], {"plan": "unprojected"}, 10_000),
        slow(["worker", "canceller", "planner"], {}, 20_000),
    ],
    ids=str,
)
def test_workers_and_those_who_cancel_and_plan_again(who: Sequence[str], options: dict[str, Any], states: int) -> None:
    assert world(who, **options).search() > states


@pytest.mark.slow
@pytest.mark.parametrize(
    ("who", "options"),
    [
        (["planner", "planner", "canceller"], {"plan": "none"}),
        (["planner", "worker", "canceller"], {"plan": "none"}),
        (["worker", "canceller", "planner"], {"plan": "unprojected"}),
        (["worker", "canceller", "sweeper"], {}),
        (["planner", "canceller", "sweeper"], {}),
        (["worker", "worker", "canceller"], {"faults": 1}),
        (["worker", "canceller"], {"faults": 2}),
        (["canceller", "planner"], {"faults": 2}),
    ],
    ids=str,
)
def test_everything(who: Sequence[str], options: dict[str, Any]) -> None:
    assert world(who, **options).search() > 2_000


# --- planted bugs: every rule is needed -------------------------------------------------------------------------------


def a_cancelled_plan_stays_in_hudis_timeline(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Projector, "_withdraw", lambda self, barrier, action: nothing())


def only_who_cancels_removes_the_plan(patch: pytest.MonkeyPatch) -> None:
    project = Publisher.project

    def adds_only(self: Publisher, tail: Timeline) -> Steps[None]:
        yield from project(self, replace(tail, rolled_back=()))

    patch.setattr(Publisher, "help_project", adds_only)


def a_plan_is_removed_before_its_outputs(patch: pytest.MonkeyPatch) -> None:
    withdraw = Projector._withdraw

    def hasty(self: Projector, barrier: InstantTime, action: str) -> Steps[None]:
        for path in self.pending_paths(barrier, action):
            yield Delete(path)
        yield from withdraw(self, barrier, action)

    patch.setattr(Projector, "_withdraw", hasty)


def a_plan_leaves_without_its_outputs(patch: pytest.MonkeyPatch) -> None:
    def careless(self: Projector, barrier: InstantTime, action: str) -> Steps[None]:
        for path in reversed(self.pending_paths(barrier, action)):
            yield Delete(path)

    patch.setattr(Projector, "_withdraw", careless)


def who_cancels_trusts_the_put(patch: pytest.MonkeyPatch) -> None:
    claim = publish.claim

    def trusting(tail: Timeline, value: Timeline) -> Steps[Timeline | None]:
        if len(value.rolled_back) == len(tail.rolled_back):
            return (yield from claim(tail, value))
        return value if (yield Put(version_path(value.version), value.encode())) else None

    patch.setattr(publish, "claim", trusting)


def a_cancelled_plan_may_be_completed(patch: pytest.MonkeyPatch) -> None:
    find = Timeline.find_plan

    def careless(self: Timeline, barrier: InstantTime) -> OpenPlan:
        return find(self, barrier) or OpenPlan(barrier, "?", 0, plan_path(barrier, nonce_in_hex("first")))

    patch.setattr(Timeline, "find_plan", careless)
    patch.setattr(publish, "require_invariants", lambda previous, following: None)


def open_plans_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    def nothing_taken(tail: Timeline) -> Steps[set[FileGroup]]:
        return set()
        yield

    patch.setattr(plans, "groups_in_plans", nothing_taken)


def open_plans_are_executed_before_hudi_hears_of_them(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Publisher, "help_project", lambda self, tail: nothing())


def an_executor_does_not_look_again(patch: pytest.MonkeyPatch) -> None:
    def careless(known: Timeline, barrier: InstantTime, outputs: Iterable[str]) -> Steps[bool]:
        return True
        yield

    patch.setattr(plans, "keep_outputs", careless)


def who_projects_does_not_look_whether_the_plan_was_cancelled(patch: pytest.MonkeyPatch) -> None:
    def careless(instant: InstantTime, known: Timeline) -> Steps[bool]:
        return False
        yield

    patch.setattr(projection, "is_given_up_in", careless)


def inflight_is_put_before_the_plan_is_completed(patch: pytest.MonkeyPatch) -> None:
    files = Projector.files

    def early(self: Projector, value: Timeline) -> Steps[list[EventFile]]:
        found = yield from files(self, value)
        begun = [self.pending_paths(p.barrier, p.action)[1] for p in value.plans if p.version == value.version]
        return [*found, *(EventFile(path, bytes) for path in begun)]

    patch.setattr(Projector, "files", early)


def the_object_of_a_plan_that_is_over_is_taken_for_lost(patch: pytest.MonkeyPatch) -> None:
    def strict(tail: Timeline, plan: OpenPlan) -> Steps[CompactionPlan]:
        data = yield Read(plan.path)
        if data is None:
            raise Violation(f"a planner fails because of another: {plan.path}")
        return CompactionPlan.decode(data, plan.path)

    patch.setattr(plans, "read_plan", strict)


CANCEL = ["worker", "canceller"]
AGAIN = ["canceller", "planner"]


@pytest.mark.parametrize(
    ("plant", "who", "options", "found"),
    [
        (a_cancelled_plan_stays_in_hudis_timeline, AGAIN, {}, "two pending compactions|not gone"),
        (only_who_cancels_removes_the_plan, AGAIN, {"check_leftovers": False}, "two pending compactions"),
        (a_plan_is_removed_before_its_outputs, CANCEL, {}, "miss later commits"),
        (a_plan_leaves_without_its_outputs, CANCEL, {}, "miss later commits"),
        slow(who_cancels_trusts_the_put, ["worker", "planner", "canceller"], {}, "."),
        (a_cancelled_plan_may_be_completed, CANCEL, {}, "two outcomes|not open"),
        (open_plans_are_not_looked_at, AGAIN, {}, "two open plans"),
        (open_plans_are_executed_before_hudi_hears_of_them, CANCEL, {"plan": "unprojected"}, "miss later commits"),
        (an_executor_does_not_look_again, ["worker", *AGAIN], {}, "stays"),
        (who_projects_does_not_look_whether_the_plan_was_cancelled, AGAIN, {"plan": "unprojected"}, "stays"),
        (inflight_is_put_before_the_plan_is_completed, AGAIN, {"plan": "unprojected"}, "look for the record"),
        slow(
            the_object_of_a_plan_that_is_over_is_taken_for_lost,
            ["planner", "planner", "canceller"],
            {"plan": "none"},
            "because of another",
        ),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_search_finds(
    plant: Plant, who: Sequence[str], options: dict[str, Any], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation, match=found):
        world(who, **options).search(depth_first=True)

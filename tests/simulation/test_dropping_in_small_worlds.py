"""A clean that completes drops commits and packs segments anew, in every interleaving with those who seal.

The table has one file group, whose base files say what they hold; a clean is open, and what it gave up is archived.
Here a value carries one completion, so that every event seals, and a clean packs anew whenever there is more than one
live segment. In each store that can be reached, so whichever process dies and wherever, the promises are those of every
world, and:

    - only commits are dropped that no view needs which the marks allow, and that have left Hudi's active timeline
    - all other commits are in the value or in its segments, each once, in order; and the value says how many are gone
    - each version that stands names segments that stand
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from crdt_mor.events import plan as plans
from crdt_mor.hudi.actions import CLEAN
from crdt_mor.log import publish, segments
from crdt_mor.log.paths import segment_path, version_path
from crdt_mor.log.steps import Delete, Steps
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import LAST, InstantTime
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, FileGroup
from crdt_mor.planners import packing
from crdt_mor.planners.clean import CleanPlan, RetentionPolicy, plan_clean, plan_cleaning
from crdt_mor.planners.packing import droppable_until
from tests.simulation.actors import PUBLISHER, Run, complete
from tests.simulation.holding_bases import completions_now
from tests.simulation.landing import looked
from tests.simulation.playing import data_files_in
from tests.simulation.small_store import (
    LATE,
    LOG,
    PROJECTOR,
    Violation,
    barrier_of,
    barriers_kept,
    completed_path,
    completions_of,
    decoded,
)
from tests.simulation.small_world import World
from tests.simulation.worlds import ROLES, Place, Plant, seals, small_numbers

small_values = small_numbers(COMPLETIONS_MAX=1, SEGMENTS_MAX=3)


@pytest.fixture(autouse=True)
def two_segments_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clean packs anew whenever there is more than one live segment."""
    monkeypatch.setattr(packing, "SMALL_LIVE_MAX", 1)


def cleaner(value: Timeline, plan: CleanPlan) -> Run:
    """Completes the open clean, whose files are deleted already."""
    _, done = yield from plans.complete(PUBLISHER, value, plan.barrier, [])
    return ("compacted" if done else "cancelled", plan.barrier)


class Dropped(World):
    """A table with commits `c`, compactions `k` and archiving `a`, an open clean, and writes that have staged."""

    def __init__(self, history: str, who: Sequence[str], *, staged: int = 1, **options: Any) -> None:
        place = Place()
        place.play(history)
        plan = opened(place)
        place.begin(staged)
        place.settle()
        place.complete_all(complete)
        place.live(who, {**ROLES, "cleaner": partial(cleaner, plan=plan)}, store_now=10)
        self.cleaned = {file.path for file in plan.files}
        super().__init__(place.objects, place.actors, faulty=seals, **options)

    def land(self, objects: dict[str, Any], path: str, data: bytes) -> dict[str, Any] | None:
        if path in objects:
            return None
        after = {**objects, path: data}
        if path == version_path(decoded(objects[LOG][-1]).version + 1):
            after[LOG] = (*objects[LOG], data)
            check_event(decoded(objects[LOG][-1]), decoded(data), objects)
        barrier = barrier_of(path)
        if barrier is not None and barrier not in barriers_kept(decoded(objects[LOG][-1]), objects):
            after[LATE] = tuple(sorted({*objects[LATE], path}))
        return after

    def check(self, objects: dict[str, Any]) -> None:
        tail = decoded(objects[LOG][-1])
        shown = {p: data for p, data in objects.items() if not p.startswith(PROJECTOR.archive)}
        for completion in completions_of(tail, objects):
            if completion.requested <= tail.archive.watermark:
                action = "compaction" if completion.action == "commit" else completion.action
                archived = [*PROJECTOR.pending_paths(completion.requested, action), completed_path(completion)]
                shown = dict.fromkeys(archived, b"") | shown
        known = {file.path for c in completions_of(tail, objects) for file in c.files}
        super().check(dict.fromkeys(self.cleaned & known, b"") | shown)
        for data in objects[LOG]:
            value = decoded(data)
            if objects.get(version_path(value.version)) == data:
                completions_of(value, objects)


def opened(place: Place) -> CleanPlan:
    """A clean that keeps the last commit is scheduled, and its files are gone."""
    known = looked(completions_now(place.tail), place.objects)
    there = data_files_in(place.objects)

    def clean_from(tail: Timeline, taken: Collection[FileGroup]) -> CleanPlan | None:
        completions = list({c.requested: c for c in (*known, *tail.completions)}.values())
        found = plan_cleaning(tail, completions, RetentionPolicy(commits=1), 1, there)
        return plan_clean(tail, completions, found, "commits")

    _, plan = place.run(plans.schedule(PUBLISHER, place.tail, CLEAN, clean_from), "open.")
    assert plan is not None
    assert plan.files
    for file in plan.files:
        place.run(_delete(file.path), "gone.")
    return plan


def _delete(path: str) -> Steps[None]:
    yield Delete(path)


def check_event(before: Timeline, after: Timeline, objects: dict[str, Any]) -> None:
    """A value keeps all completions of the one before, in order, but for those that no view needs."""
    old, new = completions_of(before, objects), completions_of(after, objects)
    kept = {c.requested for c in new}
    lost = [c for c in old if c.requested not in kept]
    if new[: len(old) - len(lost)] != [c for c in old if c.requested in kept]:
        raise Violation("a commit was lost from the timeline, or is in another place")
    if len(lost) != after.retention.dropped_count - before.retention.dropped_count:
        raise Violation(f"the value does not say how many are gone: {lost}")
    for completion in lost:
        if completion.requested > before.archive.watermark:
            raise Violation(f"a commit was dropped that stands in Hudi's active timeline: {completion.requested}")
        if completion.completed > after.retention.dropped:
            raise Violation(f"a commit was dropped that the value says to have: {completion.requested}")
    since = after.retention.since
    for time in {since, *(c.completed for c in old if c.completed >= since)}:
        cut = Cut("completed", time)
        if _slices(old, cut) != _slices(new, cut):
            raise Violation(f"a commit was dropped that a view needs as of {time}: {[c.requested for c in lost]}")


def _slices(completions: Sequence[Completion], cut: Cut) -> Any:
    return fold_slices([c for c in completions if cut.shows(c)])


@pytest.mark.parametrize(
    ("history", "who", "options"),
    [
        ("ckcka", ["cleaner"], {"staged": 0}),
        ("ckckca", ["cleaner"], {"staged": 0, "faults": 1}),
        ("ckck", ["cleaner"], {"staged": 0}),
    ],
    ids=str,
)
def test_who_cleans_and_who_seals(history: str, who: Sequence[str], options: dict[str, Any]) -> None:
    world = Dropped(history, who, **options)
    assert world.search() > 10
    dropped = max(decoded(log[-1]).retention.dropped_count for log in world.logs)
    assert bool(dropped) == ("a" in history)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("history", "who", "options"),
    [
        ("ckcka", ["cleaner"], {}),
        ("ckcka", ["cleaner", "cleaner"], {"staged": 0}),
        ("ckcka", ["cleaner", "sweeper"], {"staged": 0}),
        ("ckcka", ["cleaner"], {"faults": 1}),
    ],
    ids=str,
)
def test_everything(history: str, who: Sequence[str], options: dict[str, Any]) -> None:
    assert Dropped(history, who, **options).search() > 100


# --- planted bugs: every rule is needed -------------------------------------------------------------------------------


def what_is_not_archived_is_dropped(patch: pytest.MonkeyPatch) -> None:
    droppable = droppable_until
    patch.setattr(plans, "droppable_until", lambda value, deletion, archived: droppable(value, deletion, LAST))


def whatever_is_superseded_is_dropped(patch: pytest.MonkeyPatch) -> None:
    repack = packing.repack

    def careless(found: Any, contents: Any, carried: Any, until: InstantTime) -> packing.Repacking:
        return repack(found, contents, carried, LAST)

    patch.setattr(segments, "repack", careless)
    patch.setattr(publish, "require_sealed", lambda event, sealed: None)


def what_is_packed_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    repack = packing.repack

    def careless(found: Any, contents: Any, carried: Any, until: InstantTime) -> packing.Repacking:
        return replace(repack(found, contents, carried, until), live=())

    patch.setattr(segments, "repack", careless)
    patch.setattr(publish, "require_sealed", lambda event, sealed: None)


def what_is_packed_goes_at_once(patch: pytest.MonkeyPatch) -> None:
    seal = segments.seal

    def hasty(tail: Timeline, value: Timeline, known: segments.Contents, own: list[str]) -> Steps[Timeline]:
        found = yield from seal(tail, value, known, own)
        for segment in tail.segments:
            if segment not in found.segments:
                yield Delete(segment_path(segment.name))
        return found

    patch.setattr(publish, "seal", hasty)


@pytest.mark.parametrize(
    ("plant", "history", "found"),
    [
        (what_is_not_archived_is_dropped, "ckck", "Hudi's active timeline|never was"),
        (whatever_is_superseded_is_dropped, "ckcka", "dropped that"),
        (what_is_packed_is_forgotten, "ckcka", "."),
        (what_is_packed_goes_at_once, "ckcka", "segment that is not there"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_search_finds(plant: Plant, history: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Dropped(history, ["cleaner"])
    plant(monkeypatch)
    with pytest.raises(Violation, match=found):
        world.search(depth_first=True)

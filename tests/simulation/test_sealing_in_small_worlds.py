"""Sealing keeps its promises in every interleaving: completions move to segments, and segments are rolled up.

Here a value carries one completion or two itself and names a segment or two of a level, so that every event seals and
every other one rolls up. In each store that can be reached, so after a crash at any operation as well, every segment
that the newest version names is there and holds what the version says, and the completions in segments and value
together are those of the version before and its own, each once, in order. A reader goes from one value to another
while others seal, and finds in the segments that its value names all of what that value shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from crdt_mor.log import outcome, publish, segments
from crdt_mor.log.paths import segment_path
from crdt_mor.log.publish import Publisher
from crdt_mor.log.segments import read_segment
from crdt_mor.log.steps import Delete, Put, Steps
from crdt_mor.log.tail import find_tail
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Segment
from tests.simulation.actors import (
    Run,
    complete,
    finish,
    latecomer,
    writer,
)
from tests.simulation.small_store import Saw, Violation, decoded
from tests.simulation.small_world import World
from tests.simulation.worlds import ROLES, Place, Plant, nothing, seals, small_numbers
from tests.tiers import slow

small_values = small_numbers(COMPLETIONS_MAX=1, SEGMENTS_MAX=2)


def reader(known: Timeline | None) -> Run:
    """Reads incrementally, for ever: a value, and then every segment that it names, one after the other."""
    while True:
        known = yield from _poll(known)


def _poll(known: Timeline | None) -> Run:
    tail = yield from find_tail(known)
    shown = yield from outcome.all_completions(tail)
    yield Saw(known, tail, tuple(shown))
    return tail


def world(
    *,
    commits: int = 1,
    staged: int = 0,
    begun: int = 0,
    late: int = 0,
    writers: int = 0,
    others: Sequence[str] = (),
    **options: Any,
) -> World:
    """A table with some commits, and who goes on with it. The roles are those of `test_small_world`."""
    place = Place()
    place.begin(staged + begun + late)
    place.commit(commits)
    place.settle()
    place.go_on([complete] * staged + [latecomer] * late + [finish] * begun)
    place.add("n", [writer] * writers)
    place.live(others, {**ROLES, "reader": reader}, letters=None)
    return World(place.objects, place.actors, faulty=seals, **options)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("options", "states"),
    [
        slow({"staged": 2, "others": ["reader"]}, 5_000),
        ({"commits": 2, "staged": 2}, 500),
        ({"commits": 2, "staged": 1, "late": 1, "others": ["reader"]}, 200),
        ({"commits": 3, "staged": 1, "others": ["reader"], "faults": 1}, 100),
        ({"commits": 2, "begun": 1, "others": ["cleaner", "reader"]}, 300),
    ],
    ids=str,
)
def test_who_seals_and_who_reads(options: dict[str, Any], states: int) -> None:
    found = world(**options)
    assert found.search() > states
    named = {segment.level for log in found.logs for segment in decoded(log[-1]).segments}
    assert 1 in named, "segments were rolled up"


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"staged": 2, "others": ["cleaner"]},
        {"commits": 2, "staged": 1, "writers": 1},
    ],
    ids=str,
)
def test_everything(options: dict[str, Any]) -> None:
    assert world(**options).search() > 3_000


# --- planted bugs: every rule is needed -------------------------------------------------------------------------------


def a_lost_reply_is_taken_for_a_segment(patch: pytest.MonkeyPatch) -> None:
    def careless(put: Put) -> Steps[None]:
        yield put

    patch.setattr(segments, "put_surely", careless)


def what_is_rolled_up_is_deleted_at_once(patch: pytest.MonkeyPatch) -> None:
    roll_up = segments._roll_up_live

    def hasty(
        tail: Timeline, known: list[Segment], full: list[Segment], level: int, contents: segments.Contents
    ) -> Steps[list[Segment]]:
        found = yield from roll_up(tail, known, full, level, contents)
        for segment in full:
            yield Delete(segment_path(segment.name))
        return found

    patch.setattr(segments, "_roll_up_live", hasty)


def a_segment_holds_the_own_event_too(patch: pytest.MonkeyPatch) -> None:
    """What is sealed is a function of the tail and of who follows it, while the name is one of the tail alone."""

    def seal(tail: Timeline, value: Timeline, known: segments.Contents, own: list[str]) -> Steps[Timeline]:
        found = yield from segments.seal(replace(tail, completions=value.completions), value, known, own)
        return replace(found, completions=())

    patch.setattr(publish, "seal", seal)
    patch.setattr(publish, "require_sealed", lambda event, sealed: None)


def nobody_helps_and_what_is_sealed_is_never_projected(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Publisher, "help_project", lambda self, tail: nothing())


def a_reader_takes_the_segments_of_another_value(patch: pytest.MonkeyPatch) -> None:
    def careless(value: Timeline) -> Steps[list[Completion]]:
        later = yield from find_tail(value)
        found = list(value.completions)
        for segment in later.segments:
            found += yield from read_segment(segment)
        return found

    patch.setattr(outcome, "all_completions", careless)


def a_writer_looks_for_its_commit_in_the_value_alone(patch: pytest.MonkeyPatch) -> None:
    def careless(requested: InstantTime, tail: Timeline) -> Steps[Completion | None]:
        return tail.find_completion(requested)
        yield

    patch.setattr(outcome, "find_completion", careless)
    patch.setattr("crdt_mor.events.write.find_completion", careless)
    patch.setattr("crdt_mor.events.rollback.find_completion", careless)


@pytest.mark.parametrize(
    ("plant", "options", "found"),
    [
        (a_lost_reply_is_taken_for_a_segment, {"staged": 1, "faults": 1}, "segment that is not there"),
        (what_is_rolled_up_is_deleted_at_once, {"commits": 2, "staged": 2}, "segment that is not there"),
        (a_segment_holds_the_own_event_too, {"staged": 2}, "."),
        (nobody_helps_and_what_is_sealed_is_never_projected, {"staged": 2}, "Hudi's directory"),
        (a_reader_takes_the_segments_of_another_value, {"staged": 2, "others": ["reader"]}, "a reader"),
        (a_writer_looks_for_its_commit_in_the_value_alone, {"staged": 2}, "told"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_search_finds(plant: Plant, options: dict[str, Any], found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation, match=found):
        world(**options).search(depth_first=True)

"""Wide commits keep their promises in every interleaving: each is in a segment in the very event that publishes it.

Here every commit is wide, so that no version carries one: a publisher puts the segment before the version, and discards
it where the race is lost; a helper finds what to tell Hudi in the segment; a sweep removes what a crash left. A value
names two segments of a level. In each store that can be reached, so whichever process dies and wherever, the promises
are those of every world, and:

    - each version that stands names segments that stand
    - no version carries a wide commit
    - the next process gives up what is pending and sweeps, and then no segment stands that the tail does not name
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from crdt_mor.events import leftovers
from crdt_mor.hudi import projection
from crdt_mor.log import outcome, publish, segments
from crdt_mor.log.paths import segment_path, version_path
from crdt_mor.log.steps import Delete, Put, Read, Steps
from crdt_mor.log.tail import find_tail
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, Pending
from tests.driving import nonce_in_hex
from tests.simulation.actors import (
    Run,
    clock_mover,
    complete,
    data_path,
    finish,
)
from tests.simulation.small_store import LOG, Saw, Violation, decoded
from tests.simulation.worlds import (
    ROLES,
    Place,
    Plant,
    RecoveringWorld,
    check_recovered,
    recovered,
    seals,
    small_numbers,
)
from tests.tiers import long, slow

everything_is_wide = small_numbers(COMPLETIONS_BYTES_MAX=1, SEGMENTS_MAX=2)


def latecomer(value: Timeline, begun: Pending) -> Run:
    """A write that has put the segment of its commit, stalls before it puts the version, and dies after that."""
    file = DataFile(data_path(begun.requested), 1, 1)
    event = value.complete(nonce_in_hex("late"), 0, begun.requested, "UPSERT", [file])
    late = yield from segments.seal(value, event, {}, [])
    yield Put(version_path(late.version), late.encode())


def reader(known: Timeline) -> Run:
    """Goes from one value to another, once, and reads every segment that the other names."""
    tail = yield from find_tail(known)
    yield Saw(known, tail, tuple((yield from outcome.all_completions(tail))))


class Wide(RecoveringWorld):
    """A table with some commits, and writes that were begun, have staged, or have stalled after putting their segment.

    standing: so many versions stand at first.
    """

    def __init__(
        self,
        *,
        commits: int = 1,
        staged: int = 0,
        begun: int = 0,
        late: int = 0,
        others: Sequence[str] = (),
        standing: int = 1,
        **options: Any,
    ) -> None:
        place = Place()
        place.begin(staged + begun + late)
        place.commit(commits)
        place.settle(standing)
        place.go_on([complete] * staged + [latecomer] * late + [finish] * begun)
        place.live(others, {**ROLES, "decider": clock_mover, "reader": reader}, store_now=10)
        super().__init__(place.objects, place.actors, faulty=seals, **options)

    def check(self, objects: dict[str, Any]) -> None:
        super().check(objects)
        for data in objects[LOG]:
            value = decoded(data)
            if any(c.files for c in value.completions):
                raise Violation(f"a version carries a wide commit: {value.version}")
            if objects.get(version_path(value.version)) == data:
                for segment in value.segments:
                    if segment_path(segment.name) not in objects:
                        raise Violation(f"version {value.version} names a segment that is not there: {segment.name}")
        self.check_recovery(objects)

    def recover(self, objects: dict[str, bytes]) -> None:
        check_recovered(recovered(objects))


@pytest.mark.costly
@pytest.mark.parametrize(
    ("options", "states"),
    [
        ({"staged": 2}, 500),
        slow({"staged": 1, "late": 1, "others": ["decider"]}, 1_000),
        ({"commits": 2, "staged": 1, "others": ["reader"], "faults": 1}, 100),
        ({"begun": 1, "others": ["cleaner"]}, 50),
        ({"commits": 3, "late": 1, "others": ["sweeper", "reader"], "standing": 3}, 500),
    ],
    ids=str,
)
def test_who_publishes_and_who_sweeps(options: dict[str, Any], states: int) -> None:
    assert Wide(**options).search() > states


@pytest.mark.parametrize(
    "options",
    [
        long({"staged": 2, "others": ["sweeper"]}),
        slow({"staged": 2, "faults": 1}),
        slow({"staged": 1, "late": 1, "others": ["sweeper"]}),
        slow({"begun": 1, "others": ["cleaner", "sweeper"]}),
        slow({"staged": 1, "others": ["sweeper"], "faults": 1}),
    ],
    ids=str,
)
def test_everything(options: dict[str, Any]) -> None:
    assert Wide(**options).search() > 1_000


# --- planted bugs: every rule is needed -------------------------------------------------------------------------------


def who_helps_does_not_look_into_segments(patch: pytest.MonkeyPatch) -> None:
    def careless(value: Timeline) -> Steps[tuple[Completion, ...]]:
        return ()
        yield

    patch.setattr(projection, "wide_completions", careless)


def a_lost_reply_is_taken_for_a_segment(patch: pytest.MonkeyPatch) -> None:
    def careless(put: Put) -> Steps[None]:
        yield put

    patch.setattr(segments, "put_surely", careless)


def who_is_unsure_takes_it_for_lost(patch: pytest.MonkeyPatch) -> None:
    def careless(tail: Timeline, value: Timeline) -> Steps[bool]:
        return True
        yield

    patch.setattr(publish, "_has_lost", careless)


def a_ghost_is_taken_for_the_version_that_won(patch: pytest.MonkeyPatch) -> None:
    """Who has put a version that others followed, and that is deleted by now, finds a late put in its place."""

    def careless(tail: Timeline, value: Timeline) -> Steps[bool]:
        data = yield Read(version_path(value.version))
        return data is not None and not value.is_in(data)

    patch.setattr(publish, "_has_lost", careless)


def all_attempts_share_a_name(patch: pytest.MonkeyPatch) -> None:
    name = segments.SegmentName

    def shared(version: int, nonce: str, level: int, kind: str, own: list[str] | None = None) -> segments.SegmentName:
        return name(version, "shared" if kind == "wide" else nonce, level, kind, own)

    patch.setattr(segments, "SegmentName", shared)


def what_no_version_names_yet_is_swept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leftovers, "_made_from", lambda path: -1)


def older_versions_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    oldest = leftovers._oldest_version

    def careless() -> Steps[Timeline | None]:
        found = yield from oldest()
        return replace(found, segments=()) if found is not None else None

    patch.setattr(leftovers, "_oldest_version", careless)


def nobody_sweeps_segments(patch: pytest.MonkeyPatch) -> None:
    def careless(known: Timeline) -> Steps[None]:
        return
        yield

    patch.setattr("crdt_mor.events.sweep.sweep_leftovers", careless)


def the_segment_of_a_version_that_won_is_discarded(patch: pytest.MonkeyPatch) -> None:
    project = publish.Publisher.project

    def careless(self: publish.Publisher, value: Timeline) -> Steps[None]:
        yield from project(self, value)
        for segment in value.segments[:1]:
            yield Delete(segment_path(segment.name))

    patch.setattr(publish.Publisher, "project", careless)


@pytest.mark.parametrize(
    ("plant", "options", "found"),
    [
        (who_helps_does_not_look_into_segments, {"staged": 1}, "Hudi's directory"),
        (a_lost_reply_is_taken_for_a_segment, {"staged": 1, "faults": 1}, "segment that is not there"),
        (who_is_unsure_takes_it_for_lost, {"staged": 1, "faults": 1}, "segment that is not there"),
        slow(
            a_ghost_is_taken_for_the_version_that_won,
            {"staged": 1, "late": 1, "others": ["decider"]},
            "segment that is not there",
        ),
        (all_attempts_share_a_name, {"staged": 2}, "."),
        (
            what_no_version_names_yet_is_swept,
            {"commits": 3, "late": 1, "others": ["sweeper"], "standing": 2},
            "segment that is not there",
        ),
        (older_versions_are_not_looked_at, {"commits": 3, "others": ["sweeper"], "standing": 2}, "not there"),
        (nobody_sweeps_segments, {"staged": 2}, "no sweep removes it"),
        (the_segment_of_a_version_that_won_is_discarded, {"staged": 1}, "not there"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_search_finds(plant: Plant, options: dict[str, Any], found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Wide(**options)
    plant(monkeypatch)
    with pytest.raises(Violation, match=found):
        world.search(depth_first=True)

"""The file ids of buckets that are in an object of their own are there, and the right ones, in every interleaving.

Here no version carries an id itself. Hudi has replaced the file group of the one bucket again and again, and processes
adopt that, each some of it: they put the object before the version that names it, and discard it where the race is
lost. Other processes publish versions that name the same object, look for the newest version, and sweep. In each store
that can be reached, so whichever process dies and wherever, the promises are those of every world, and:

    - each version that stands names an object that stands, and holds the ids that follow from that version's commits
    - a process finds a value with these ids
    - the next process sweeps, and then no object stands that the tail does not name
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from crdt_mor.log import segments, tail
from crdt_mor.log.outcome import all_completions
from crdt_mor.log.paths import segment_path, version_path
from crdt_mor.log.steps import Put, Steps
from crdt_mor.model.file_ids import FileIds, Unread, live_groups
from crdt_mor.model.instant import from_ms, to_ms
from crdt_mor.model.names import REPLACE_COMMIT, bucket_file_id
from crdt_mor.model.overwrite import DELETE_PARTITION
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import decode_file_ids
from crdt_mor.model.timeline_parts import Completion
from tests.driving import nonce_in_hex
from tests.simulation.actors import PUBLISHER, Run
from tests.simulation.small_store import Violation, completions_of, stood
from tests.simulation.stored_parts import (
    StoredParts,
    a_lost_reply_is_taken_for_an_object,
    a_process_that_is_unsure_takes_it_for_lost,
    a_sweep_asks_the_newest_version_alone,
    a_sweep_knows_segments_alone,
    nobody_sweeps,
)
from tests.simulation.worlds import (
    Place,
    Plant,
    small_numbers,
)
from tests.tiers import slow

no_version_carries_ids = small_numbers(FILE_IDS_MAX=0)


def replacing(number: int) -> Completion:
    """A commit of Hudi's that replaces the file group of the bucket."""
    requested = from_ms(1_001 + 10 * number)
    groups = (("", bucket_file_id(0)),)
    return Completion(requested, from_ms(to_ms(requested) + 2), 0, "", REPLACE_COMMIT, DELETE_PARTITION, (), groups)


def adopter(value: Timeline, number: int) -> Run:
    """Adopts one commit of Hudi's, as `hudi.adoption` does with what it finds."""

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        known = yield from all_completions(tail)
        own = replacing(number)
        if any(c.requested == own.requested for c in known):
            return None
        return tail.adopt(nonce_in_hex(f"adopts {number}"), wall_ms, [own], tail.schema, live_groups([*known, own], 1))

    yield from PUBLISHER.publish(derive, value)


def latecomer(value: Timeline, number: int) -> Run:
    """The same, but it stalls after its object is put, and dies after its version is put."""
    own = replacing(number)
    nonce, groups = nonce_in_hex(f"late {number}"), live_groups([*value.completions, own], 1)
    event = value.adopt(nonce, 0, [own], value.schema, groups)
    late = yield from segments.seal(value, event, {}, [])
    yield Put(version_path(late.version), late.encode())


class Stored(StoredParts):
    """A table of which some of Hudi's commits are adopted, and processes that adopt one more each.

    standing: so many versions stand at first.
    """

    def __init__(
        self,
        *,
        adopted: int = 1,
        adopters: int = 0,
        late: int = 0,
        others: Sequence[str] = (),
        standing: int = 1,
        **options: Any,
    ) -> None:
        place = Place(stood({version_path(0): Timeline.genesis("[]", "the-table").encode()}))
        for number in range(adopted):
            place.run(adopter(place.tail, number), f"before{number}.")
        changing = [adopter] * adopters + [latecomer] * late
        roles = [partial(role, number=adopted + n) for n, role in enumerate(changing)]
        super().__init__(place, roles, others, standing, **options)

    def check_named(self, value: Timeline, objects: dict[str, Any]) -> None:
        meant = live_groups(completions_of(value, objects), 1).file_ids
        if not meant.groups:
            return
        if value.file_ids.stored is None:
            raise Violation(f"version {value.version} carries file ids")
        path = segment_path(value.file_ids.stored)
        if path not in objects:
            raise Violation(f"version {value.version} names file ids that are not there: {path}")
        if decode_file_ids(objects[path], path) != meant:
            raise Violation(f"version {value.version} names other file ids than its commits mean: {path}")

    def check_result(self, result: object, objects: dict[str, Any]) -> None:
        match result:
            case ("found", Timeline() as value):
                if value.file_ids != live_groups(value.completions, 1).file_ids:
                    raise Violation(f"a process has found other file ids: {value.file_ids}")
            case _:
                super().check_result(result, objects)


@pytest.mark.parametrize(
    ("options", "states"),
    [
        ({"adopters": 2}, 100),
        ({"adopters": 1, "others": ["finder"], "faults": 1}, 100),
        ({"adopted": 3, "late": 1, "others": ["sweeper", "finder"], "standing": 3}, 300),
        slow({"adopters": 1, "others": ["sweeper", "finder"]}, 4_000),
        slow({"adopters": 1, "late": 1, "others": ["decider"]}, 200),
        slow({"adopters": 2, "others": ["finder"]}, 4_000),
        slow({"adopters": 2, "faults": 1}, 10_000),
    ],
    ids=str,
)
def test_file_ids_are_there_for_each_version_that_stands(options: dict[str, Any], states: int) -> None:
    assert Stored(**options).search() > states


# --- planted bugs: every rule is needed -------------------------------------------------------------------------------


def all_attempts_share_a_name(patch: pytest.MonkeyPatch) -> None:
    name = segments.SegmentName
    patch.setattr(
        segments, "SegmentName", lambda version, nonce, level, kind, own=None: name(version, "0" * 32, level, kind, own)
    )


def a_process_keeps_the_ids_that_it_has_read_first(patch: pytest.MonkeyPatch) -> None:
    read = segments.with_objects

    def careless(value: Timeline, known: Timeline | None = None) -> Steps[Timeline]:
        if isinstance(value.file_ids, Unread) and known is not None and known.file_ids.stored is not None:
            return replace(value, file_ids=FileIds(known.file_ids.groups, value.file_ids.stored))
        return (yield from read(value, known))

    patch.setattr(tail, "with_objects", careless)


@pytest.mark.parametrize(
    ("plant", "options", "found"),
    [
        (a_lost_reply_is_taken_for_an_object, {"adopters": 1, "faults": 1}, "not there"),
        (all_attempts_share_a_name, {"adopters": 2}, "other file ids"),
        (a_process_that_is_unsure_takes_it_for_lost, {"adopters": 1, "faults": 1}, "not there"),
        (a_sweep_knows_segments_alone, {"adopted": 3, "others": ["sweeper"], "standing": 2}, "not there"),
        (a_sweep_asks_the_newest_version_alone, {"adopted": 3, "others": ["sweeper"], "standing": 2}, "not there"),
        (nobody_sweeps, {"adopters": 1}, "no sweep removes it"),
        (a_process_keeps_the_ids_that_it_has_read_first, {"adopters": 1, "others": ["finder"]}, "other file ids"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_search_finds(plant: Plant, options: dict[str, Any], found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Stored(**options)
    plant(monkeypatch)
    with pytest.raises(Violation, match=found):
        world.search(depth_first=True)

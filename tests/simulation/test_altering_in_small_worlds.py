"""A name means one column, in every interleaving of growth with renames and drops, and with crashes.

What a writer adds is seen under the name that it meant when its event is acknowledged, never under another column's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor.errors import InvalidInputError, SchemaMismatchError
from crdt_mor.events import write as writes
from crdt_mor.events.alteration import alter
from crdt_mor.log.paths import version_path
from crdt_mor.model.alteration_event import AlterationRequest
from crdt_mor.model.config import TableConfig
from crdt_mor.model.invariants import BrokenInvariantError
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.timeline import Timeline
from tests.simulation.actors import PUBLISHER, Run
from tests.simulation.small_store import Violation, is_version
from tests.simulation.small_world import World
from tests.simulation.worlds import ROLES, Place, Plant, Role, small_numbers

small = small_numbers()

CONFIG = TableConfig("t", KeySpec(("k",)), buckets=1)
SCHEMA = '[["k","string"],["a","int64"],["c","int64"]]'


def adder(known: Timeline) -> Run:
    """A write brings the column b."""
    try:
        batch = pa.schema([("b", pa.int64())])
        value = yield from writes.grow(PUBLISHER, known, batch, lambda schema: None, new={"b": "b"})
    except SchemaMismatchError:
        return ("refused",)
    return ("added", value.names.by_shown(value.columns).get("b"))


def renamer(known: Timeline) -> Run:
    """The column a is to be called b."""
    return (yield from _altered(known, AlterationRequest({"a": "b"}, (), {})))


def dropper(known: Timeline) -> Run:
    """The column b, whichever it is, is dropped."""
    return (yield from _altered(known, AlterationRequest({}, ("b",), {})))


def _altered(known: Timeline, asked: AlterationRequest) -> Run:
    try:
        yield from alter(PUBLISHER, known, asked, CONFIG, lambda *_: None)
    except InvalidInputError:
        return ("refused",)
    return ("altered",)


class NamedWorld(World):
    """A world in which a writer is asked what it has added."""

    def check_result(self, result: Any, objects: dict[str, Any]) -> None:
        super().check_result(result, objects)
        if result[0] == "added" and result[1] != "b":
            raise Violation(f"a column that was added is another one: {result}")


OTHERS: Mapping[str, Role] = {**ROLES, "adder": adder, "renamer": renamer, "dropper": dropper}


def world(who: Sequence[str], **options: Any) -> World:
    place = Place({version_path(0): Timeline.genesis(SCHEMA, "the-table").encode()})
    place.live(who, OTHERS, writes={})
    return NamedWorld(place.objects, place.actors, **{"faulty": is_version, **options})


@pytest.mark.costly
@pytest.mark.parametrize(
    ("who", "options"),
    [
        (["adder", "renamer"], {"deletions": False}),
        (["adder", "dropper"], {"deletions": False}),
        (["adder", "renamer"], {"faults": 1}),
        (["adder", "renamer", "dropper"], {"deletions": False}),
        (["adder", "adder", "renamer"], {"deletions": False}),
    ],
    ids=str,
)
def test_a_name_means_one_column(who: Sequence[str], options: dict[str, Any]) -> None:
    assert world(who, **options).search() > 10


def growth_is_not_asked_what_it_means(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writes, "require_meant", lambda value, new: None)


@pytest.mark.parametrize("plant", [growth_is_not_asked_what_it_means], ids=lambda p: p.__name__)
def test_the_search_finds(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((Violation, BrokenInvariantError)):
        world(["adder", "renamer"]).search(depth_first=True)

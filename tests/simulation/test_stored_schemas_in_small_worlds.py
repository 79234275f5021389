"""The schema that is in an object of its own is there, and the right one, in every interleaving.

Here no version carries its schema. Writers add a column each, some of them the same one: they put the object before the
version that names it, and discard it where the race is lost. Other processes publish versions that name the same
object, look for the newest version, and sweep. In each store that can be reached, so whichever process dies and
wherever, the promises are those of every world, and:

    - each version that stands names an object that stands, with the columns that the versions before it have added
    - a process finds a value with these columns, and each of them keeps its id
    - the next process sweeps, and then no object stands that the tail does not name
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import FormatError
from crdt_mor.events import write as writes
from crdt_mor.log import segments, tail
from crdt_mor.log.paths import segment_path, version_path
from crdt_mor.log.steps import Put, Steps
from crdt_mor.log.tail import find_tail
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import decode_schema
from tests.simulation.actors import PUBLISHER, Run
from tests.simulation.small_store import Violation, stood
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

no_version_carries_its_schema = small_numbers(SCHEMA_MAX=0)

FIRST = '[["k","string"]]'


def adder(value: Timeline, column: str) -> Run:
    """Adds a column, unless it is there."""
    batch = pa.schema([(column, pa.list_(pa.int64()))])
    grown = yield from writes.grow(PUBLISHER, value, batch, lambda schema: None, new={column: column})
    return ("found", grown)


def latecomer(value: Timeline, column: str) -> Run:
    """The same, but it stalls after its object is put, and dies after its version is put."""
    batch = pa.schema([(column, pa.list_(pa.int64()))])
    grown = TableSchema.from_json(value.schema).grow(batch).to_json()
    late = yield from segments.seal(value, value.grow("ab" * 16, 0, grown), {}, [])
    yield Put(version_path(late.version), late.encode())


class Stored(StoredParts):
    """A table with some columns, and processes that add one more each.

    standing: so many versions stand at first. same: all add one column.
    """

    def __init__(
        self,
        *,
        added: int = 1,
        adders: int = 0,
        late: int = 0,
        others: Sequence[str] = (),
        standing: int = 1,
        same: bool = False,
        **options: Any,
    ) -> None:
        place = Place(stood({version_path(0): Timeline.genesis(FIRST, "the-table").encode()}))
        for number in range(added):
            place.run(adder(place.run(find_tail(None), f"found{number}."), f"old{number}"), f"before{number}.")
        changing = [adder] * adders + [latecomer] * late
        columns = ["new" if same else f"new{n}" for n in range(len(changing))]
        roles = [partial(role, column=column) for role, column in zip(changing, columns, strict=True)]
        super().__init__(place, roles, others, standing, **options)

    def check_named(self, value: Timeline, objects: dict[str, Any]) -> None:
        if not value.version:
            return
        if value.schema_object is None:
            raise Violation(f"version {value.version} carries its schema")
        path = segment_path(value.schema_object)
        if path not in objects:
            raise Violation(f"version {value.version} names a schema that is not there: {path}")
        _check_columns(replace(value, schema=decode_schema(objects[path], path)))

    def check_result(self, result: object, objects: dict[str, Any]) -> None:
        match result:
            case ("found", Timeline() as value):
                _check_columns(value)
            case _:
                super().check_result(result, objects)


def _check_columns(value: Timeline) -> None:
    """The columns that the events added, which the value itself lists too."""
    if value.columns != ("k", *value.added):
        raise Violation(f"version {value.version} has another schema: {value.schema} {value.added}")


@pytest.mark.parametrize(
    ("options", "states"),
    [
        ({"adders": 2}, 100),
        ({"adders": 2, "same": True}, 100),
        ({"adders": 1, "others": ["finder"], "faults": 1}, 100),
        ({"added": 3, "late": 1, "others": ["sweeper", "finder"], "standing": 3}, 300),
        slow({"adders": 1, "others": ["sweeper", "finder"]}, 1_000),
        slow({"adders": 1, "late": 1, "others": ["decider"]}, 200),
        slow({"adders": 2, "same": True, "others": ["finder"]}, 1_000),
        slow({"adders": 2, "faults": 1}, 1_000),
    ],
    ids=str,
)
def test_the_schema_is_there_for_each_version_that_stands(options: dict[str, Any], states: int) -> None:
    assert Stored(**options).search() > states


# --- planted bugs: every rule is needed -------------------------------------------------------------------------------


def an_object_is_named_by_its_content_alone(patch: pytest.MonkeyPatch) -> None:
    class Shared(segments.SegmentName):
        def of(self, number: int) -> str:
            return f"{0:020d}-{'0' * 32}-0-{self.kind}" if self.kind.startswith("schema") else super().of(number)

    patch.setattr(segments, "SegmentName", Shared)


def a_process_keeps_the_schema_that_it_has_read_first(patch: pytest.MonkeyPatch) -> None:
    read = segments.with_objects

    def careless(value: Timeline, known: Timeline | None = None) -> Steps[Timeline]:
        if not value.schema and known is not None:
            return replace(value, schema=known.schema)
        return (yield from read(value, known))

    patch.setattr(tail, "with_objects", careless)


@pytest.mark.parametrize(
    ("plant", "options", "found"),
    [
        (a_lost_reply_is_taken_for_an_object, {"adders": 1, "faults": 1}, "not there"),
        (an_object_is_named_by_its_content_alone, {"adders": 2, "same": True}, "not there"),
        (a_process_that_is_unsure_takes_it_for_lost, {"adders": 1, "faults": 1}, "not there"),
        (a_sweep_knows_segments_alone, {"added": 3, "others": ["sweeper"], "standing": 2}, "not there"),
        (a_sweep_asks_the_newest_version_alone, {"added": 3, "others": ["sweeper"], "standing": 2}, "not there"),
        (nobody_sweeps, {"adders": 1}, "no sweep removes it"),
        (a_process_keeps_the_schema_that_it_has_read_first, {"adders": 1, "others": ["finder"]}, "another schema"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_search_finds(plant: Plant, options: dict[str, Any], found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Stored(**options)
    plant(monkeypatch)
    with pytest.raises((Violation, FormatError), match=found):
        world.search(depth_first=True)

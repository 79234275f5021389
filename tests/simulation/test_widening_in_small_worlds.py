"""A type that widened holds what each writer asked for, in every interleaving of writers, renames and crashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor.columns.kinds import type_named
from crdt_mor.columns.schema import TableSchema
from crdt_mor.columns.types import join_types
from crdt_mor.errors import InvalidInputError
from crdt_mor.events import write as writes
from crdt_mor.events.alteration import alter
from crdt_mor.log.paths import version_path
from crdt_mor.model.alteration_event import AlterationRequest
from crdt_mor.model.config import TableConfig
from crdt_mor.model.invariants import BrokenInvariantError
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.timeline import Timeline
from tests.simulation.actors import PUBLISHER, Run
from tests.simulation.small_store import LOG, Violation, decoded, is_version
from tests.simulation.small_world import World
from tests.simulation.worlds import ROLES, Place, Role, small_numbers

small = small_numbers()

CONFIG = TableConfig("t", KeySpec(("k",)), buckets=1)
SCHEMA = '[["k","string"],["a","decimal128(6, 2)"]]'
WIDE, DEEP, WHOLE = pa.decimal128(12, 2), pa.decimal128(10, 4), pa.int64()


def writer(known: Timeline, kind: pa.DataType) -> Run:
    """A write with `schema_mode="merge"` brings the type."""
    value = yield from writes.grow(PUBLISHER, known, pa.schema([("a", kind)]), lambda schema: None)
    return ("widened", str(kind), type_in(value))


def alterer(known: Timeline, kind: pa.DataType) -> Run:
    """The column is widened without rows, unless it has another name by now."""
    try:
        value = yield from alter(PUBLISHER, known, AlterationRequest({}, (), {}, {"a": kind}), CONFIG, lambda *_: None)
    except InvalidInputError:
        return ("refused",)
    return ("widened", str(kind), type_in(value))


def renamer(known: Timeline) -> Run:
    yield from alter(PUBLISHER, known, AlterationRequest({"a": "b"}, (), {}), CONFIG, lambda *_: None)
    return ("renamed",)


def type_in(value: Timeline) -> str:
    return str(TableSchema.from_json(value.schema).declared.field("a").type)


def holds(wide: str, kind: str) -> bool:
    return bool(join_types(type_named(wide), type_named(kind), "a") == type_named(wide))


class WidenedWorld(World):
    """A world in which the newest type holds each type that was acknowledged."""

    def check_result(self, result: Any, objects: dict[str, Any]) -> None:
        super().check_result(result, objects)
        if result[0] != "widened":
            return
        for type_ in (result[2], type_in(decoded(objects[LOG][-1]))):
            if not holds(type_, result[1]):
                raise Violation(f"a type does not hold what was asked for: {result} {type_}")


OTHERS: Mapping[str, Role] = {
    **ROLES,
    "wide": partial(writer, kind=WIDE),
    "deep": partial(writer, kind=DEEP),
    "altered deep": partial(alterer, kind=DEEP),
    "altered to integers": partial(alterer, kind=WHOLE),
    "renamer": renamer,
}


def world(who: Sequence[str], **options: Any) -> World:
    place = Place({version_path(0): Timeline.genesis(SCHEMA, "the-table").encode()})
    place.live(who, OTHERS, writes={})
    return WidenedWorld(place.objects, place.actors, **{"faulty": is_version, **options})


@pytest.mark.costly
@pytest.mark.parametrize(
    ("who", "options"),
    [
        (["wide", "altered deep"], {"deletions": False}),
        (["wide", "deep"], {"deletions": False}),
        (["wide", "altered deep", "altered to integers"], {"deletions": False}),
        (["altered deep", "renamer"], {"faults": 1}),
        (["wide", "altered deep", "renamer"], {"deletions": False}),
    ],
    ids=str,
)
def test_type_holds_what_each_writer_asked_for(who: Sequence[str], options: dict[str, Any]) -> None:
    assert world(who, **options).search() > 10


def test_search_finds_a_growth_that_forgets_the_type_before(monkeypatch: pytest.MonkeyPatch) -> None:
    grow = Timeline.grow

    def narrow(self: Timeline, nonce: str, wall_ms: int, schema: str, *more: Any) -> Timeline:
        return grow(self, nonce, wall_ms, schema.replace("decimal128(14, 4)", str(DEEP)), *more)

    monkeypatch.setattr(Timeline, "grow", narrow)
    with pytest.raises((Violation, BrokenInvariantError)):
        world(["wide", "deep"]).search(depth_first=True)

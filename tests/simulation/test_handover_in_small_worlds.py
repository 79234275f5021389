"""Nothing of ours begins in a table that is handed over to Hudi's writers, in every interleaving and crash.

A process that stalls while it hands a table over, and finds it taken back since, leaves the properties as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from crdt_mor.errors import CommitUnknownError, InvalidInputError
from crdt_mor.events import handover, one_event
from crdt_mor.events import write as writes
from crdt_mor.events.one_event import LoneCommit, LoneWrite
from crdt_mor.format.properties import decode_table, encode_table
from crdt_mor.hudi import handover as properties
from crdt_mor.log import stopping
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.log.publish import Shortcuts
from crdt_mor.log.steps import Put
from crdt_mor.log.tail import find_tail
from crdt_mor.model.handover import PLAIN, is_plain, own_properties
from crdt_mor.model.instant import EPOCH, claim_after
from crdt_mor.model.names import LogFileName, bucket_file_id
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import DataFile
from tests.simulation.actors import PUBLISHER, Run, finish
from tests.simulation.promises import check_store
from tests.simulation.small_store import LOG, Violation, decoded, is_version
from tests.simulation.small_world import World
from tests.simulation.worlds import ROLES, Place, Plant, Role, small_numbers
from tests.tiers import long, slow

small = small_numbers()

FOREVER = 1 << 60
HANDED, TAKEN = "handed", "taken"
"""Objects that say that an actor has ended."""


def hander(known: Timeline) -> Run:
    """Hands the table over, which has no commits."""
    try:
        handed = yield from handover.hand_over(PUBLISHER, known)
    except InvalidInputError:
        return ("busy",)
    except CommitUnknownError:
        return ("unknown",)  # a put without an answer may land after the refusal
    yield Put(HANDED, b"")
    return ("handed",) if handed is not None else ("busy",)


def taker(known: Timeline) -> Run:
    """Takes it back, if it finds it handed over."""
    tail = yield from find_tail(known)
    yield from handover.take_back(PUBLISHER, tail)
    yield Put(TAKEN, b"")
    return ("taken",)


def beginner(known: Timeline) -> Run:
    """A write of a process that remembers the table as it was."""
    try:
        value, begun = yield from writes.begin(PUBLISHER, known, FOREVER)
    except InvalidInputError:
        return ("refused",)
    return (yield from finish(value, begun))


def loner(known: Timeline) -> Run:
    """A write in one event, which follows the newest value."""
    value = yield from find_tail(known)
    try:
        stopping.require_open(value, None)
    except InvalidInputError:
        return ("refused",)
    requested = claim_after(value.clock, 0)
    file = DataFile(str(LogFileName(bucket_file_id(1), requested)), 1, 1)
    lone = LoneWrite(requested, "UPSERT", ((file, b"rows"),))
    committed = yield from one_event.commit(PUBLISHER, value, lone, None, Shortcuts(helped=value.version))
    return ("acknowledged", requested) if isinstance(committed, LoneCommit) else ("expired", None)


class HandedWorld(World):
    """A world in which every state is asked whether a table that is handed over is quiet. One actor hands it over."""

    def check(self, objects: dict[str, Any]) -> None:
        check_store(objects)
        tail = decoded(objects[LOG][-1])
        if tail.handed_over != EPOCH and (tail.pending or tail.completions):
            raise Violation("a write is under way, or unfolded, in a table that is handed over")
        if {HANDED, TAKEN} <= objects.keys():
            says = is_plain(decode_table(objects[PROPERTIES], PROPERTIES))
            if says != (tail.handed_over != EPOCH):
                raise Violation("all have ended, and the properties do not say what the value says")


OTHERS: Mapping[str, Role] = {**ROLES, "hander": hander, "taker": taker, "beginner": beginner, "loner": loner}


def world(who: Sequence[str], **options: Any) -> World:
    """A table without commits, and those who want something of it."""
    place = Place()
    own = {name: text for name, text in own_properties(PUBLISHER.projector.config.merge).items() if text is not None}
    place.objects[PROPERTIES] = encode_table({"hoodie.table.name": "t", **own})
    place.live(who, OTHERS)
    return HandedWorld(place.objects, place.actors, **{"faulty": is_version, "deletions": False, **options})


@pytest.mark.parametrize(
    ("who", "options"),
    [
        (["hander", "beginner"], {}),
        (["hander", "loner"], {}),
        (["hander", "taker"], {}),
        slow(["hander", "beginner"], {"faults": 1}),
        slow(["hander", "loner"], {"faults": 1}),
        slow(["hander", "taker"], {"faults": 1}),
        slow(["hander", "taker", "loner"], {}),
        long(["hander", "taker", "beginner"], {}),
    ],
    ids=str,
)
def test_a_table_that_is_handed_over_is_quiet(who: Sequence[str], options: dict[str, Any]) -> None:
    assert world(who, **options).search() > 20


# --- planted bugs: every rule is needed -------------------------------------------------------------------------------


def nobody_asks_the_value(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stopping, "require_not_handed_over", lambda since: None)


def what_is_pending_is_no_matter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(handover, "_require_quiet", lambda tail: None)


def nobody_looks_again(patch: pytest.MonkeyPatch) -> None:
    def once(publisher: Any, value: Timeline) -> Run:
        own = own_properties(PUBLISHER.projector.config.merge)
        yield from properties.change_properties(own if value.handed_over == EPOCH else PLAIN)
        return value

    patch.setattr(handover, "_settle", once)


@pytest.mark.parametrize(
    ("plant", "who"),
    [
        (nobody_asks_the_value, ["hander", "beginner"]),
        (nobody_asks_the_value, ["hander", "loner"]),
        (what_is_pending_is_no_matter, ["hander", "beginner"]),
        (nobody_looks_again, ["hander", "taker"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "-".join(value),
)
def test_the_search_finds(plant: Plant, who: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):  # a `Violation`, or one of the engine's own, which stops the process
        world(who).search(depth_first=True)

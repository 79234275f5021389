"""What a moment shows is decided for good, in every interleaving of readers that ask for it with writers and cleaners.

A reader that has been told what a moment shows is told the same in every state that can follow: `check_result` of
`promises` compares the answer with all commits that are completed by the moment from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from crdt_mor.events import decide
from crdt_mor.log import publish
from crdt_mor.log.paths import version_path
from crdt_mor.log.steps import Put, Steps, StoreNow
from crdt_mor.log.tail import find_tail
from crdt_mor.model.instant import InstantTime, from_ms, to_ms
from crdt_mor.model.timeline import Timeline
from tests.simulation.actors import begun_world, complete, decider, finish, latecomer, writer
from tests.simulation.small_store import LOG, Violation, decoded
from tests.simulation.small_world import World
from tests.simulation.worlds import Place, Plant, small_numbers
from tests.tiers import slow

NOW = 40
"""What the store's clock says, in ms: later than the clock of the table ever gets by itself."""

nothing_is_kept = small_numbers()


def after(value: Timeline, ms: int) -> InstantTime:
    return from_ms(to_ms(value.clock) + ms)


class ClockedWorld(World):
    def check(self, objects: dict[str, Any]) -> None:
        super().check(objects)
        if decoded(objects[LOG][-1]).clock > from_ms(NOW):
            raise Violation("the table's clock is beyond the store's")


def world(
    *, readers: Sequence[int] = (5,), begun: int = 0, staged: int = 0, late: int = 0, writers: int = 0,
    cleaners: int = 0, **options: Any,
) -> ClockedWorld:  # fmt: skip
    """Readers that ask for moments so many ms after the clock, and what they race with."""
    place = Place.with_begun(begun + staged + late)
    place.add("r", [partial(decider, place.tail, after(place.tail, ms)) for ms in readers])
    place.add("n", [writer] * writers)
    place.go_on([finish] * begun + [complete] * staged + [latecomer] * late)
    place.live(["cleaner"] * cleaners, letters=None)
    return ClockedWorld(place.objects, place.actors, store_now=NOW, **options)


# --- every interleaving -----------------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"begun": 1}, id="a-write-completes"),
        pytest.param({"begun": 1, "cleaners": 1}, marks=pytest.mark.slow, id="a-write-completes-or-is-given-up"),
        pytest.param({"late": 1, "cleaners": 1}, id="a-writer-dies-after-its-put"),
        pytest.param({"readers": (3, 6)}, id="two-readers"),
        pytest.param({"readers": (3, 6), "staged": 1}, marks=pytest.mark.slow, id="two-readers-and-a-write"),
        pytest.param({"staged": 1, "faults": 1}, marks=pytest.mark.slow, id="a-lost-reply"),
        pytest.param({"readers": (5,), "writers": 1}, marks=pytest.mark.slow, id="a-write-begins"),
    ],
)
def test_a_moment_that_was_decided_shows_the_same_for_ever(options: dict[str, Any]) -> None:
    searched = world(**options)
    searched.search()
    results = [state.result for actor in searched.actors for state in actor.local if state.step is None]
    assert any(isinstance(result, tuple) and result[0] == "decided" for result in results)


def test_the_future_is_never_decided() -> None:
    searched = world(readers=(NOW,), staged=1)
    searched.search()
    assert {state.result for state in searched.actors[0].local if state.step is None} == {
        ("future", after(begun_world(1)[1], NOW))
    }


# --- planted bugs -----------------------------------------------------------------------------------------------------


def a_reader_trusts_its_put(patch: pytest.MonkeyPatch) -> None:
    """The clock counts as moved without the put having been won."""

    def careless(tail: Timeline, value: Timeline) -> Steps[Timeline | None]:
        if len(value.completions) > len(tail.completions) or value.pending != tail.pending:
            return (yield from claim(tail, value))
        yield Put(version_path(value.version), value.encode())
        return value

    claim = publish.claim
    patch.setattr(publish, "claim", careless)


def a_reader_trusts_a_put_that_was_won(patch: pytest.MonkeyPatch) -> None:
    """What it derived from may be gone, so that what it put is a ghost below the tail."""

    def careless(tail: Timeline, value: Timeline) -> Steps[Timeline | None]:
        if len(value.completions) > len(tail.completions) or value.pending != tail.pending:
            return (yield from claim(tail, value))
        return value if (yield Put(version_path(value.version), value.encode())) else None

    claim = publish.claim
    patch.setattr(publish, "claim", careless)


def a_moment_is_decided_in_memory(patch: pytest.MonkeyPatch) -> None:
    """The store's clock has passed the moment, so nothing seems to be left to publish."""

    def careless(publisher: Any, known: Timeline, moment: InstantTime) -> Steps[Timeline]:
        tail = yield from find_tail(known)
        yield StoreNow()
        return tail.decide("r", to_ms(moment))

    patch.setattr("crdt_mor.events.decide.decide", careless)


def a_moment_is_decided_before_it_has_come(patch: pytest.MonkeyPatch) -> None:
    def careless(moment: InstantTime) -> Steps[bool]:
        yield StoreNow()
        return True

    patch.setattr(decide, "_is_past", careless)


@pytest.mark.parametrize(
    ("plant", "options", "found"),
    [
        (a_reader_trusts_its_put, {"staged": 1}, "has not reached|came before"),
        slow(a_reader_trusts_a_put_that_was_won, {"staged": 2}, "has not reached|came before"),
        (a_moment_is_decided_in_memory, {"staged": 1}, "has not reached|came before"),
        (a_moment_is_decided_before_it_has_come, {"readers": (NOW,), "staged": 1}, "beyond the store's"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_search_finds(plant: Plant, options: dict[str, Any], found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation, match=found):
        world(**options).search(depth_first=True)

"""The protocol keeps its promises in every interleaving, and no rule of it can be left out.

The promises: no acknowledged commit is lost, an instant has at most one outcome, no file of a committed instant is
removed, Hudi's directory holds a prefix in completion order, an incremental reader misses nothing. `small_world` says
how the search works and why it is sound; its checks raise `Violation` with the steps that lead there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from crdt_mor.log import projection, publish
from crdt_mor.log.paths import version_path
from crdt_mor.log.publish import Publisher
from crdt_mor.log.steps import Delete, GetStat, List, Nonce, Now, Put, Read, Steps, Together
from crdt_mor.log.tail import expire_versions
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.invariants import BrokenInvariantError, require_invariants
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Pending
from crdt_mor.store.protocol import Stat
from tests.driving import one_by_one
from tests.simulation.actors import (
    GENESIS,
    begun_world,
    complete,
    finish,
    latecomer,
    writer,
)
from tests.simulation.small_store import Violation
from tests.simulation.small_world import World
from tests.simulation.worlds import Place, Plant, nothing, small_numbers
from tests.tiers import long, slow

nothing_is_kept = small_numbers()


def world(
    *,
    begun: int = 0,
    staged: int = 0,
    late: int = 0,
    dead: int = 0,
    writers: int = 0,
    others: Sequence[str] = (),
    **options: Any,
) -> World:
    """Writers that have begun, staged their file, derived their completion, died after their begin; that will begin."""
    place = Place.with_begun(begun + staged + late + dead)
    place.add("n", [writer] * writers)
    place.go_on([finish] * begun + [complete] * staged + [latecomer] * late)
    place.live(others, letters=None)
    return World(place.objects, place.actors, **options)


# --- the search itself ------------------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize(
    "options",
    [
        {"writers": 1, "others": ["cleaner"]},
        slow({"begun": 1, "others": ["cleaner", "reader"]}),
        {"begun": 2, "deletions": False},
        slow({"begun": 1, "others": ["cleaner"], "faults": 1}),
    ],
)
def test_letting_reads_wait_loses_no_store_and_no_state_of_a_finished_actor(options: dict[str, Any]) -> None:
    patient, eager = world(**options), world(**options, reads_wait=False)
    assert patient.search() < eager.search()
    assert patient.stores == eager.stores
    for a, b in zip(patient.actors, eager.actors, strict=True):
        assert {s.result for s in a.local} == {s.result for s in b.local}


def test_no_attempt_repeats_the_nonce_of_one_that_may_still_land() -> None:
    """Else a put that lands late, when its version is long deleted, would pass for the version it once was."""
    objects, value = begun_world(1)
    steps = one_by_one(complete(value, value.pending[0]))
    put = version_path(value.version + 1)
    attempts: list[Timeline] = []
    reply: Any = None
    while len(attempts) < 2:
        step = steps.send(reply)
        reply = {Nonce: "event", Now: 0, GetStat: None, Read: None}.get(type(step))
        if isinstance(step, Nonce):
            reply = f"n{len(attempts)}"
        if isinstance(step, Read | GetStat) and step.path in objects:
            reply = objects[step.path] if isinstance(step, Read) else Stat(step.path, 0, 0)
        if isinstance(step, Put) and step.path == put:
            attempts.append(Timeline.decode(step.data, put))
    steps.close()
    assert attempts[0].nonce != attempts[1].nonce
    assert attempts[0].completions == attempts[1].completions


# --- every interleaving -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_writer_a_cleaner_a_reader_and_deletions() -> None:
    assert world(writers=1, others=["cleaner", "reader"]).search() > 10_000


@pytest.mark.parametrize(("deletions", "least"), [(False, 900), long(True, 10_000)])
def test_two_writers_that_race_from_the_first_begin(deletions: bool, least: int) -> None:
    assert world(writers=2, deletions=deletions).search() > least


@pytest.mark.slow
def test_two_writers_from_their_begin_on() -> None:
    assert world(begun=2, faults=1, deletions=False).search() > 1_000


@pytest.mark.slow
def test_two_writers_a_cleaner_and_deletions_from_their_begin_on() -> None:
    assert world(begun=2, others=["cleaner"], check_leftovers=True).search() > 100_000


@pytest.mark.slow
def test_a_put_may_lose_its_reply_land_late_or_be_repeated() -> None:
    assert world(begun=1, others=["cleaner"], faults=2).search() > 1_000


@pytest.mark.parametrize(
    "options",
    [
        slow({"staged": 1, "late": 1, "others": ["cleaner", "reader"]}),  # one dies after its put
        slow({"staged": 1, "late": 1, "others": ["cleaner"], "faults": 1}),
        long({"staged": 1, "writers": 1, "others": ["cleaner"]}),  # one begins, one completes
        long({"writers": 2, "faults": 1}),
    ],
)
def test_everything(options: dict[str, Any]) -> None:
    assert world(**options).search() > 100_000


@pytest.mark.long
def test_two_writers_a_cleaner_a_reader_and_deletions_all_at_once() -> None:
    """The largest world: ten minutes of one core, and 2 GiB.

    Both writes run from their begin to their end. What begins race with is searched above, in worlds of their own.
    """
    assert world(begun=2, others=["cleaner", "reader"]).search() > 20_000_000


@pytest.mark.parametrize("stuck", [0, 2, 9])
def test_versions_are_deleted_strictly_oldest_first_as_far_as_the_store_lets_us(stuck: int) -> None:
    """What the search assumes of processes that delete versions: nothing goes before what is older and cannot go."""
    value = GENESIS
    for i in range(5):
        value = value.begin(f"n{i}", 0)
    assert deleted(value, value, stuck) == [version_path(i) for i in range(min(4, stuck + 1))]
    assert deleted(value, GENESIS, stuck) == [], "of the table that was made here meanwhile"


def deleted(tail: Timeline, standing: Timeline, stuck: int) -> list[str]:
    """What is deleted of six versions. `standing` is the one that is read, `stuck` the number of one that stays."""
    steps = expire_versions(tail)
    found: list[str] = []
    reply: Any = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration:
            return found
        match step:
            case List():
                reply = [Stat(version_path(i), 0, 0) for i in range(6)]
            case Read():
                reply = standing.encode()
            case Delete(path):
                found.append(path)
                reply = path != version_path(stuck)


# --- planted bugs: every rule is needed -------------------------------------------------------------------------------


def rule_1_an_outcome_for_an_instant_that_is_not_pending(patch: pytest.MonkeyPatch) -> None:
    find = Timeline.find_pending

    def careless(self: Timeline, requested: InstantTime) -> Pending:
        return find(self, requested) or Pending(requested, "?", 0)

    patch.setattr(Timeline, "find_pending", careless)
    patch.setattr(publish, "require_invariants", lambda previous, following: None)


def rule_2_nobody_helps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Publisher, "help_project", lambda self, tail: nothing())


def rule_3_writers_trust_their_put(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(publish, "claim", _trusting(lambda tail, value: len(value.rolled_back) == len(tail.rolled_back)))


def rule_3_cleaners_trust_their_put(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(publish, "claim", _trusting(lambda tail, value: len(value.rolled_back) > len(tail.rolled_back)))


def rule_3_a_ghost_vouches_for_a_ghost(patch: pytest.MonkeyPatch) -> None:
    def looks_only(tail: Timeline) -> Steps[bool]:
        return (yield GetStat(version_path(tail.version))) is not None

    patch.setattr(publish, "is_genuine", looks_only)


def rule_3_whatever_is_read_back_is_mine(patch: pytest.MonkeyPatch) -> None:
    def careless(tail: Timeline, value: Timeline) -> Steps[Timeline | None]:
        yield Put(version_path(value.version), value.encode())
        return value if (yield from publish.is_genuine(tail)) else None

    patch.setattr(publish, "claim", careless)


def rule_4_acknowledged_before_it_is_projected(patch: pytest.MonkeyPatch) -> None:
    project = Publisher.project
    patch.setattr(Publisher, "help_project", project)
    patch.setattr(Publisher, "project", lambda self, value, **_: nothing())


def the_start_of_a_climb_is_not_read_again(patch: pytest.MonkeyPatch) -> None:
    def careless(start: Timeline) -> Steps[Timeline | None]:
        low = start.version
        while (yield GetStat(version_path(low + 1))) is not None:
            low += 1
        if low == start.version:
            return start
        data = yield Read(version_path(low))
        return Timeline.decode(data, "") if data is not None else None

    patch.setattr("crdt_mor.log.tail._gallop", careless)


def what_a_listing_showed_is_not_looked_for_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 1 << 40)
    patch.setattr("crdt_mor.log.tail._is_behind_a_gap", lambda tail, listed: False)
    patch.setattr("crdt_mor.log.tail.is_kept", lambda known, tail: False)  # it counts on the true number


def who_projects_does_not_look_whether_the_instant_was_given_up(patch: pytest.MonkeyPatch) -> None:
    def careless(instant: InstantTime, known: Timeline) -> Steps[bool]:
        return False
        yield

    patch.setattr(projection, "is_given_up_in", careless)


def a_lost_reply_of_a_projection_is_taken_for_success(patch: pytest.MonkeyPatch) -> None:
    def careless(puts: Sequence[Put]) -> Steps[tuple[bool, list[Put]]]:
        yield Together(tuple(puts))
        return True, []

    patch.setattr(projection, "put_all_surely", careless)


def _trusting(whose: Callable[[Timeline, Timeline], bool]) -> Callable[[Timeline, Timeline], Steps[Timeline | None]]:
    claim = publish.claim

    def careless(tail: Timeline, value: Timeline) -> Steps[Timeline | None]:
        if not whose(tail, value):
            return (yield from claim(tail, value))
        return value if (yield Put(version_path(value.version), value.encode())) else None

    return careless


ONE: dict[str, Any] = {"begun": 1, "others": ["cleaner"]}
TWO = {"begun": 2, "others": ["cleaner"]}
LATE = {"staged": 1, "late": 1, "dead": 1, "others": ["cleaner"]}


@pytest.mark.costly
@pytest.mark.parametrize(
    ("plant", "options", "found"),
    [
        (rule_1_an_outcome_for_an_instant_that_is_not_pending, ONE, "two outcomes"),
        (rule_2_nobody_helps, {"begun": 2}, "Hudi's directory"),
        slow(rule_3_writers_trust_their_put, TWO, "."),
        slow(rule_3_cleaners_trust_their_put, TWO, "was removed"),
        slow(rule_3_a_ghost_vouches_for_a_ghost, LATE, "."),
        (rule_3_whatever_is_read_back_is_mine, ONE, "."),
        (rule_4_acknowledged_before_it_is_projected, ONE, "not in Hudi's directory"),
        (the_start_of_a_climb_is_not_read_again, {"late": 1, "dead": 1, "others": ["cleaner", "reader"]}, "a reader"),
        (what_a_listing_showed_is_not_looked_for_again, {"late": 1, "dead": 2, "others": ["cleaner", "reader"]}, "."),
        (
            who_projects_does_not_look_whether_the_instant_was_given_up,
            {"writers": 1, "others": ["cleaner"], "check_leftovers": True},
            "stays",
        ),
        (a_lost_reply_of_a_projection_is_taken_for_success, {**ONE, "faults": 1}, "Hudi's directory"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_search_finds(plant: Plant, options: dict[str, Any], found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation, match=found):
        world(**options).search(depth_first=True)


def test_an_invariant_stops_who_breaks_rule_1_before_anything_is_put(monkeypatch: pytest.MonkeyPatch) -> None:
    require = require_invariants
    rule_1_an_outcome_for_an_instant_that_is_not_pending(monkeypatch)
    monkeypatch.setattr(publish, "require_invariants", require)
    with pytest.raises(BrokenInvariantError, match="invariant=an_instant_has_one_state"):
        world(**ONE).search(depth_first=True)

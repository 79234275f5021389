"""Commits that are alone, in every interleaving with one another, with other writers, a cleaner, a sweep and deletions.

The promises are those of `test_small_world`, and that of the claim: Hudi's readers show every file of a completed
instant, from whatever process, so that under the time of a commit no file but its own may ever stand.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from crdt_mor.errors import StorageUnavailableError
from crdt_mor.events import one_event as alone
from crdt_mor.events import sweep
from crdt_mor.events import write as events
from crdt_mor.events.one_event import LoneCommit, LoneWrite
from crdt_mor.hudi.records import claim_record
from crdt_mor.log.projection import Projected
from crdt_mor.log.publish import Shortcuts
from crdt_mor.log.steps import Delete, Nonce, Put, Steps, Together
from crdt_mor.log.tail import find_tail
from crdt_mor.model.instant import InstantTime, begin_after, claim_after
from crdt_mor.model.names import LogFileName, bucket_file_id, data_file_name
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import DataFile
from tests.simulation.actors import PUBLISHER, finish, writer
from tests.simulation.small_store import LOG, Violation, completions_of, decoded, is_version
from tests.simulation.small_world import World
from tests.simulation.worlds import Place, Plant, small_numbers
from tests.tiers import long, slow

Run = Generator[Any, Any, Any]

AHEAD_MS = 20
"""A time that the clock of no table here reaches before the writers whose wall clocks say so."""


nothing_is_kept = small_numbers()


def log_of(owner: int, requested: InstantTime) -> tuple[DataFile, bytes]:
    """The one file of a writer, in a file group of its own; its size tells whose it is."""
    return DataFile(str(LogFileName(bucket_file_id(owner), requested)), 1 + owner, 1), b"rows" * (1 + owner)


def backwards(steps: Steps[Any]) -> Steps[Any]:
    """A protocol with what it does side by side done in the reverse order."""
    reply: object = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as end:
            return end.value
        reply = None
        if isinstance(step, Together):
            reply = (yield Together(step.steps[::-1]))[::-1]
        else:
            reply = yield step


def loner(owner: int, value: Timeline, *, bucket: bool = False, again: bool = False, ahead: bool = False) -> Run:
    """A write that follows `value` in one event; where that fails, and it tries `again`, one that begins first.

    ahead: it looks for the newest version first, and its wall clock is ahead of the table's.
    """
    if ahead:
        value = yield from find_tail(value)
    requested = claim_after(value.clock, AHEAD_MS if ahead else 0)
    write = LoneWrite(requested, "UPSERT", (log_of(owner, requested),))
    late: list[Projected] | None = [] if bucket else None
    shortcuts = Shortcuts(helped=-1 if ahead else value.version, late=late)
    try:
        committed = yield from alone.commit(PUBLISHER, value, write, None, shortcuts)
    except StorageUnavailableError:  # the user is told that nothing was published
        return ("lost", requested, owner)
    if isinstance(committed, LoneCommit):
        if late:
            yield from PUBLISHER.look_again(late)
        return ("acknowledged", requested)
    if not again:
        return ("lost", requested, owner)
    value, begun = yield from events.begin(PUBLISHER, value, 1 << 60)
    file, data = log_of(owner, begun.requested)
    yield Put(file.path, data)
    yield from events.complete(PUBLISHER, value, begun, "UPSERT", [file], None)
    return ("acknowledged", begun.requested)


class LonelyWorld(World):
    """A world in which writers may be alone."""

    def check(self, objects: dict[str, Any]) -> None:
        super().check(objects)
        tail = decoded(objects[LOG][-1])
        named = {path: name.instant for path in objects if (name := data_file_name(path)) is not None}
        owners = []
        for completion in completions_of(tail, objects):
            if not completion.files:
                continue
            (file,) = completion.files
            owners += [file.size] * (file.size > 1)  # those of other writers have 1
            there = {path for path, instant in named.items() if instant == completion.requested}
            if there != {file.path} or objects[file.path] != b"rows" * file.size:
                raise Violation(f"files under the time of another's commit: {completion.requested} {sorted(there)}")
        if len(owners) != len(set(owners)):
            raise Violation(f"a write was committed twice: {owners}")

    def check_result(self, result: Any, objects: dict[str, Any]) -> None:
        super().check_result(result, objects)
        match result:
            case ("lost", requested, owner):
                for completion in completions_of(decoded(objects[LOG][-1]), objects):
                    if completion.requested == requested and completion.files[0].size == 1 + owner:
                        raise Violation(f"a writer was told that it lost, and is committed: {requested}")


def world(
    *,
    alone: int = 0,
    buckets: int = 0,
    begun: int = 0,
    writers: int = 0,
    again: bool = False,
    turned: bool = False,
    ahead: bool = False,
    others: tuple[str, ...] = (),
    **options: Any,
) -> LonelyWorld:
    """Writers that are alone on a disk and in a bucket, that have begun, and that will begin.

    turned: what is done side by side is done in the reverse order.
    """
    place = Place.with_begun(begun)
    lone = partial(loner, value=place.tail, again=again, ahead=ahead)
    roles = [partial(lone, 1 + i, bucket=i >= alone) for i in range(alone + buckets)]
    turn = backwards if turned else lambda steps: steps
    place.add("a", [lambda role=role: turn(role()) for role in roles])  # type: ignore[misc]
    place.go_on([finish] * begun)
    place.add("n", [writer] * writers)
    place.live(others, letters=None)
    return LonelyWorld(place.objects, place.actors, **options)


# --- every interleaving -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        slow({"buckets": 2, "writers": 1, "turned": True}),
        {"alone": 1, "begun": 1, "others": ("reader",)},
        slow({"buckets": 2, "ahead": True, "begun": 1}),
        slow({"alone": 2, "writers": 1}),
        slow({"buckets": 2, "writers": 1}),
        slow({"buckets": 1, "begun": 1, "others": ("cleaner",)}),
        slow({"buckets": 2, "others": ("sweeper",)}),
        slow({"buckets": 2, "again": True}),
        slow({"alone": 1, "begun": 1, "others": ("cleaner",), "turned": True}),
        long({"buckets": 2, "begun": 1, "others": ("cleaner", "reader")}),
        long({"buckets": 1, "writers": 1, "others": ("sweeper",)}),
        long({"alone": 1, "writers": 1, "others": ("sweeper",), "turned": True}),
    ],
)
def test_every_interleaving(options: dict[str, Any]) -> None:
    assert world(**options).search() > 100


@pytest.mark.parametrize(
    "options",
    [
        {"buckets": 1, "faults": 2},
        slow({"buckets": 1, "begun": 1, "faults": 1}),
        slow({"buckets": 2, "ahead": True, "begun": 1, "faults": 1, "deletions": False}),
        slow({"alone": 1, "begun": 1, "faults": 2, "faulty": is_version}),
        long({"buckets": 1, "begun": 1, "faults": 1, "others": ("cleaner",)}),
    ],
)
def test_any_put_may_lose_its_reply_land_late_or_be_repeated(options: dict[str, Any]) -> None:
    assert world(**options).search() > 100


def test_what_is_done_side_by_side_may_be_done_in_any_order() -> None:
    """A writer that races with nobody reaches the same end both ways."""
    ends = []
    for turned in (False, True):
        lonely = world(buckets=1, turned=turned)
        lonely.search()
        ends.append({state.result for actor in lonely.actors for state in actor.local} - {None})
    assert ends[0] == ends[1] == {("acknowledged", "19700101000000002")}


# --- planted bugs: every rule is needed -------------------------------------------------------------------------------


def nobody_claims(patch: pytest.MonkeyPatch) -> None:
    def trusting(publisher: Any, requested: InstantTime, *_: object) -> Steps[Any]:
        nonce = yield Nonce()
        return alone._Claim(publisher.projector.claim_path(requested), nonce), []

    patch.setattr(alone, "_claim", trusting)


def another_claim_is_taken_for_ones_own(patch: pytest.MonkeyPatch) -> None:
    def careless(publisher: Any, requested: InstantTime, *_: object) -> Steps[Any]:
        nonce = yield Nonce()
        path = publisher.projector.claim_path(requested)
        yield Put(path, claim_record(nonce))
        return alone._Claim(path, nonce), []

    patch.setattr(alone, "_claim", careless)


def one_class_of_times(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(globals(), "claim_after", begin_after)
    patch.setattr("crdt_mor.log.publish.require_invariants", lambda previous, following: None)


def a_sweep_looks_ahead_of_the_clock(patch: pytest.MonkeyPatch) -> None:
    remove = sweep._remove_garbage

    def hasty(publisher: Any, known: Timeline) -> Steps[Any]:
        return remove(publisher, replace(known, clock=claim_after(known.clock, AHEAD_MS * 2)))

    patch.setattr(sweep, "_remove_garbage", hasty)


def the_claim_goes_first(patch: pytest.MonkeyPatch) -> None:
    withdraw = alone._Attempt.withdraw

    def hasty(self: Any, *found: Any) -> Steps[None]:
        yield Delete(self.claim.path)
        yield from withdraw(self, *found)

    patch.setattr(alone._Attempt, "withdraw", hasty)


def the_claim_goes_though_a_put_may_land_late(patch: pytest.MonkeyPatch) -> None:
    withdraw = alone._Attempt.withdraw
    patch.setattr(alone._Attempt, "withdraw", lambda self, answered, *others: withdraw(self, True, *others))


def rule_3_the_put_is_trusted(patch: pytest.MonkeyPatch) -> None:
    def trusting(tail: Timeline, value: Timeline, created: bool | None) -> Steps[Timeline | None]:
        return value if created else None
        yield Nonce()

    patch.setattr(alone, "confirmed", trusting)


def a_put_without_an_answer_is_taken_for_lost(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: Any, value: Timeline) -> Steps[Timeline]:
        return (yield from find_tail(self.tail))

    patch.setattr(alone._Attempt, "_decided", hasty)


def a_put_that_was_not_seen_to_succeed_is_taken_for_lost(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: Any, value: Timeline, answered: bool) -> Steps[None]:
        yield from self.withdraw(answered)

    patch.setattr(alone._Attempt, "find_out", hasty)


@pytest.mark.parametrize(
    ("plant", "options"),
    [
        (nobody_claims, {"buckets": 2}),
        (another_claim_is_taken_for_ones_own, {"alone": 2}),
        (one_class_of_times, {"buckets": 1, "writers": 1}),
        (a_sweep_looks_ahead_of_the_clock, {"buckets": 1, "others": ("sweeper",)}),
        slow(the_claim_goes_first, {"buckets": 2, "ahead": True, "begun": 1}),
        long(the_claim_goes_though_a_put_may_land_late, {"buckets": 2, "ahead": True, "begun": 1, "faults": 1}),
        (rule_3_the_put_is_trusted, {"buckets": 1, "writers": 1}),
        (a_put_without_an_answer_is_taken_for_lost, {"buckets": 1, "faults": 1}),
        (a_put_that_was_not_seen_to_succeed_is_taken_for_lost, {"buckets": 1, "faults": 1}),
    ],
)
def test_the_search_finds(plant: Plant, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation):
        world(**options).search()

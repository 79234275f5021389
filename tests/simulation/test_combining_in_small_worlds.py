"""Writers that post their events and publish each other's, in every interleaving, beside a cleaner, a sweep, deletions.

The promises are those of `test_small_world`, and one more: a write begins once, whichever process has published its
begin, and however often. A writer that posts here does so at once, like a process that has met a crowd before.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any

import pytest

from crdt_mor.errors import WriterExpiredError
from crdt_mor.events import sweep, write
from crdt_mor.log.combining import Crowd, Posting
from crdt_mor.log.intents import BeginIntent, CompleteIntent, Intent, encode_intent
from crdt_mor.log.paths import intent_path, version_path
from crdt_mor.log.publish import Shortcuts
from crdt_mor.log.steps import Put, Steps, put_surely
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import DataFile, Pending, RolledBack
from crdt_mor.store.protocol import Stat
from tests.simulation.actors import PUBLISHER, complete, data_path, writer
from tests.simulation.local_states import Actor
from tests.simulation.small_store import LOG, Violation, begun_paths, decoded, is_version
from tests.simulation.small_world import World
from tests.simulation.worlds import Place, Plant, small_numbers
from tests.tiers import long, slow

Run = Generator[Any, Any, Any]

nothing_is_kept = small_numbers()


def crowded() -> Shortcuts:
    """Those of a process that has met others: it posts at once."""
    return Shortcuts(crowd=Crowd(is_crowded=True))


def poster(value: Timeline, *, ends_posted: bool = True) -> Run:
    """One commit of one file, whose begin is posted, and its end, if it is not alone by then."""
    try:
        value, begun = yield from write.begin(PUBLISHER, value, 1 << 60, shortcuts=crowded())
    except WriterExpiredError:
        return ("expired", None)
    yield from put_surely(Put(data_path(begun.requested), b"rows"))
    return (yield from (end if ends_posted else complete)(value, begun))


def beginner(value: Timeline) -> Run:
    """A write that begins, posted, and then stands still."""
    with suppress(WriterExpiredError):
        yield from write.begin(PUBLISHER, value, 1 << 60, shortcuts=crowded())


def end(value: Timeline, begun: Pending) -> Run:
    """A write that has staged its file, and posts its end."""
    file = DataFile(data_path(begun.requested), 1, 1)
    try:
        yield from write.complete(PUBLISHER, value, begun, "UPSERT", [file], None, shortcuts=crowded())
    except WriterExpiredError:
        return ("expired", begun.requested)
    return ("acknowledged", begun.requested)


@cache
def begins_in(log: tuple[bytes, ...]) -> dict[str, set[str]]:
    """The requested times of the writes that have begun, by the nonce of their begin."""
    found: dict[str, set[str]] = {}
    for data in log:
        value = decoded(data)
        instants: tuple[Pending | RolledBack, ...] = (*value.pending, *value.rolled_back)
        for begun in instants:
            found.setdefault(begun.nonce, set()).add(begun.requested)
    return found


class CrowdedWorld(World):
    """A world of writers that post. once: no put is late, so that each write begins once at most."""

    def __init__(self, objects: dict[str, bytes], actors: Sequence[Actor], *, once: bool, **options: Any) -> None:
        self.once = once
        super().__init__(objects, actors, **options)

    def check(self, objects: dict[str, Any]) -> None:
        super().check(objects)
        twice = {nonce: times for nonce, times in begins_in(objects[LOG]).items() if len(times) > 1}
        if self.once and twice:
            raise Violation(f"a write has begun twice: {twice}")


def world(
    *,
    posters: int = 0,
    soon_alone: int = 0,
    beginners: int = 0,
    ends: int = 0,
    writers: int = 0,
    others: tuple[str, ...] = (),
    posted: Callable[[Timeline], tuple[Timeline, list[Intent]]] | None = None,
    once: bool = True,
    **options: Any,
) -> CrowdedWorld:
    """Writers that post all they do, or their begin, and are alone or stand still then, or their end; and others.

    posted: a value, and what writers that are dead have posted.
    """
    place = Place.with_begun(ends)
    if posted is not None:
        value, intents = posted(place.tail)
        objects = {path: b"" for p in value.pending for path in begun_paths(p.requested)}
        objects |= {intent_path(i.nonce): encode_intent(i, "the-table") for i in intents}
        place = Place({**objects, version_path(value.version): value.encode()})
    place.add("p", [partial(poster, place.tail)] * posters)
    place.add("s", [partial(poster, place.tail, ends_posted=False)] * soon_alone)
    place.add("b", [partial(beginner, place.tail)] * beginners)
    place.go_on([end] * ends, "e")
    place.add("n", [writer] * writers)
    place.live(others, letters=None)
    return CrowdedWorld(place.objects, place.actors, once=once, **options)


def a_dead_writer_was_given_up(value: Timeline) -> tuple[Timeline, list[Intent]]:
    """Its begin is still posted."""
    value = value.begin("dead", 0)
    requested = value.pending[-1].requested
    return value.roll_back("cleaner", 0, requested), [BeginIntent("dead", None, None)]


def dead_writers_have_posted(value: Timeline) -> tuple[Timeline, list[Intent]]:
    """One its begin, and one the end of a write that is pending."""
    value = value.begin("ending", 0)
    requested = value.pending[-1].requested
    end = CompleteIntent("end", requested, "", "UPSERT", ())
    return value, [BeginIntent("begun", None, None), end]


# --- every interleaving -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"beginners": 1, "ends": 1},
        {"ends": 2},
        {"beginners": 2, "deletions": False},
        slow({"beginners": 1, "posted": dead_writers_have_posted, "others": ("cleaner",)}),
        slow({"beginners": 1, "posted": a_dead_writer_was_given_up, "others": ("sweeper",)}),
        {"beginners": 1, "soon_alone": 1, "deletions": False},
        slow({"beginners": 2}),
        slow({"beginners": 1, "soon_alone": 1}),
        slow({"ends": 1, "beginners": 1, "others": ("reader",)}),
        slow({"ends": 1, "beginners": 1, "others": ("cleaner",)}),
        slow({"posters": 1, "beginners": 1}),
        slow({"posters": 1, "writers": 1}),
        long({"posters": 2}),
        long({"ends": 2, "beginners": 1}),
        long({"ends": 1, "beginners": 1, "others": ("cleaner", "sweeper"), "deletions": False}),
        long({"beginners": 3, "deletions": False}),
    ],
)
def test_every_interleaving(options: dict[str, Any]) -> None:
    assert world(**options).search() > 100


@pytest.mark.parametrize(
    "options",
    [
        slow({"ends": 2, "faults": 1, "faulty": is_version}),
        slow({"beginners": 1, "ends": 1, "faults": 1, "once": False}),
        slow({"ends": 2, "faults": 1}),
        long({"posters": 1, "beginners": 1, "faults": 1, "once": False}),
    ],
)
def test_any_put_may_lose_its_reply_land_late_or_be_repeated(options: dict[str, Any]) -> None:
    assert world(**options).search() > 100


# --- planted bugs: every rule is needed -------------------------------------------------------------------------------


def an_old_list_beside_a_new_tail(patch: pytest.MonkeyPatch) -> None:
    read = Posting._read

    def stale(self: Posting, listed: list[Stat], table_id: str) -> Steps[list[Intent]]:
        if not self._known:
            return (yield from read(self, listed, table_id))
        return [intent for intent, _ in self._known.values() if intent is not None]

    patch.setattr(Posting, "_read", stale)


def an_owner_goes_on_without_removing_its_intent(patch: pytest.MonkeyPatch) -> None:
    def forgetful(self: Posting) -> Steps[None]:
        return
        yield

    patch.setattr(Posting, "withdraw", forgetful)


def forgotten_while_the_intent_stands(patch: pytest.MonkeyPatch) -> None:
    def forgetful(known: Timeline, now_ms: int) -> Steps[set[Any]]:
        return set()
        yield

    patch.setattr(sweep, "sweep_intents", forgetful)


def what_has_begun_begins_again(patch: pytest.MonkeyPatch) -> None:
    def pending_alone(self: Timeline, nonce: str) -> Pending | None:
        return next((p for p in self.pending if p.nonce == nonce), None)

    patch.setattr(Timeline, "find_by_nonce", pending_alone)


@pytest.mark.parametrize(
    ("plant", "options"),
    [
        slow(an_old_list_beside_a_new_tail, {"beginners": 1, "soon_alone": 1, "deletions": False}),
        slow(an_owner_goes_on_without_removing_its_intent, {"beginners": 1, "soon_alone": 1, "deletions": False}),
        (
            forgotten_while_the_intent_stands,
            {"beginners": 1, "posted": a_dead_writer_was_given_up, "others": ("sweeper",)},
        ),
        (what_has_begun_begins_again, {"beginners": 1, "posted": a_dead_writer_was_given_up}),
    ],
)
def test_the_search_finds(plant: Plant, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation):
        world(**options).search(depth_first=True)


def test_one_version_may_publish_the_events_of_several_writers() -> None:
    """The search would prove nothing if nobody ever took another's event."""
    crowded = world(ends=2, deletions=False)
    crowded.search()
    values = [decoded(data) for log in crowded.logs for data in log]
    assert max(sum(c.version == value.version for c in value.completions) for value in values) == 2

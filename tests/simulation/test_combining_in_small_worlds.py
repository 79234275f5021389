"""Writers that post their events and publish each other's, in every interleaving, beside a cleaner, a sweep, deletions.

The promises are those of `test_small_world`, and one more: a write begins once, whichever process has published its
begin, and however often; one that was given up may begin again, as nobody has had it. A writer that posts here does so
at once, like a process that has met a crowd before, or once it has lost a race. Windows are three versions wide.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from crdt_mor.errors import WriterExpiredError
from crdt_mor.events import write
from crdt_mor.log.combining import Crowd, Posting
from crdt_mor.log.intents import BeginIntent, CompleteIntent, PostedEvent, combine, encode_intent
from crdt_mor.log.paths import POSTS, event_path, version_path
from crdt_mor.log.posts import NAME_CHARS
from crdt_mor.log.publish import Shortcuts
from crdt_mor.log.steps import Put, put_surely
from crdt_mor.model.posts import PostName
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import DataFile, Pending
from tests.simulation.actors import PUBLISHER, complete, data_path, writer
from tests.simulation.small_store import Violation, begun_paths, check_begins, decoded, is_version
from tests.simulation.small_world import World
from tests.simulation.worlds import Place, Plant, small_numbers
from tests.tiers import long, slow

Run = Generator[Any, Any, Any]

nothing_is_kept = small_numbers()


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crdt_mor.model.posts.WINDOW", 3)
    monkeypatch.setattr("crdt_mor.log.posts.LOOKS_A_RANK", 1)
    monkeypatch.setattr("crdt_mor.log.projection.LOOKS_A_RANK", 1)
    monkeypatch.setattr("crdt_mor.log.posts.GATHERING_LOOKS", 0)
    monkeypatch.setattr("crdt_mor.log.combining.EVENT_RACES_MAX", 0)


def crowded(*, met: bool = True) -> Shortcuts:
    """Those of a process that posts: at once, if it has met others."""
    return Shortcuts(crowd=Crowd(is_crowded=met))


def poster(value: Timeline, *, met: bool = True, ends_posted: bool = True) -> Run:
    """One commit of one file, whose begin is posted, and its end, if it is not alone by then."""
    try:
        value, begun = yield from write.begin(PUBLISHER, value, 1 << 60, shortcuts=crowded(met=met))
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


class CrowdedWorld(World):
    """A world of writers that post."""

    def check(self, objects: dict[str, Any]) -> None:
        super().check(objects)
        check_begins(objects)


def world(
    *,
    posters: int = 0,
    racers: int = 0,
    soon_alone: int = 0,
    beginners: int = 0,
    ends: int = 0,
    writers: int = 0,
    others: tuple[str, ...] = (),
    posted: Callable[[Timeline], tuple[Timeline, list[PostedEvent]]] | None = None,
    versions: int = 5,
    **options: Any,
) -> CrowdedWorld:
    """Writers that post all they do, or their begin, and are alone or stand still then, or their end; and others.

    racers: writers that post their begin once they have lost a race, and are alone then. posted: a value, and what
    writers that are dead have posted. versions: where they are deleted at once, a writer that misses the version of its
    begin begins again, and so does the next, for ever.
    """
    place = Place.with_begun(ends)
    if posted is not None:
        value, events = posted(place.tail)
        objects = {path: b"" for p in value.pending for path in begun_paths(p.requested)}
        objects |= {event_path(event.post): encode_intent(event.intent, "the-table") for event in events}
        place = Place({**objects, version_path(value.version): value.encode()})
    place.add("p", [partial(poster, place.tail)] * posters)
    place.add("r", [partial(poster, place.tail, met=False, ends_posted=False)] * racers)
    place.add("s", [partial(poster, place.tail, ends_posted=False)] * soon_alone)
    place.add("b", [partial(beginner, place.tail)] * beginners)
    place.go_on([end] * ends, "e")
    place.add("n", [writer] * writers)
    place.live(others, letters=None)
    return CrowdedWorld(place.objects, place.actors, versions=versions, **options)


def a_dead_writer_has_begun(value: Timeline) -> tuple[Timeline, list[PostedEvent]]:
    """Its begin is still posted."""
    event = PostedEvent(PostName(value.version, "dead"), BeginIntent("dead", None, None))
    return combine(value, 0, [event])[0], [event]


def dead_writers_have_posted(value: Timeline) -> tuple[Timeline, list[PostedEvent]]:
    """One its begin, and one the end of a write that is pending."""
    value = value.begin("ending", 0)
    end = CompleteIntent("end", value.pending[-1].requested, "", "UPSERT", ())
    begin = BeginIntent("begun", None, None)
    return value, [PostedEvent(PostName(value.version, i.nonce[:NAME_CHARS]), i) for i in (begin, end)]


# --- every interleaving -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        slow({"beginners": 1, "ends": 1}),
        {"ends": 2},
        slow({"beginners": 2, "deletions": False}),
        slow({"beginners": 1, "posted": dead_writers_have_posted, "others": ("cleaner",)}),
        slow({"beginners": 1, "posted": a_dead_writer_has_begun, "others": ("sweeper",)}),
        slow({"beginners": 1, "soon_alone": 1, "deletions": False}),
        slow({"beginners": 2}),
        slow({"beginners": 1, "soon_alone": 1}),
        slow({"beginners": 1, "racers": 1}),
        slow({"ends": 1, "beginners": 1, "others": ("reader",), "versions": 4}),
        long({"ends": 1, "beginners": 1, "others": ("cleaner",)}),
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


def is_posted(put: Put) -> bool:
    """For `faulty` of a world in which puts of posts alone may be hit by a fault."""
    return put.path.startswith(POSTS)


@pytest.mark.parametrize(
    "options",
    [
        slow({"ends": 2, "faults": 1, "faulty": is_version}),
        slow({"beginners": 1, "ends": 1, "faults": 1}),
        slow({"beginners": 1, "soon_alone": 1, "faults": 1, "faulty": is_posted, "deletions": False}),
        slow({"beginners": 1, "racers": 1, "faults": 1, "faulty": is_version, "deletions": False}),
        slow({"ends": 2, "faults": 1}),
        long({"posters": 1, "beginners": 1, "faults": 1}),
    ],
)
def test_any_put_may_lose_its_reply_land_late_or_be_repeated(options: dict[str, Any]) -> None:
    assert world(**options).search() > 100


def nobody_withdraws(patch: pytest.MonkeyPatch) -> None:
    """What was posted stays: no process may delete it, or the store does not answer."""

    def nothing(self: Posting) -> Run:
        return
        yield

    patch.setattr(Posting, "withdraw", nothing)


TWO = {"beginners": 1, "soon_alone": 1, "deletions": False}
LATE = {"beginners": 1, "racers": 1, "faults": 1, "faulty": is_version, "deletions": False}


@pytest.mark.parametrize(
    "options", [slow(TWO), slow(LATE), slow({"posters": 1, "beginners": 1}), slow({"ends": 1, "racers": 1})]
)
def test_no_deletion_of_a_post_is_relied_upon(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    nobody_withdraws(monkeypatch)
    assert world(**options).search() > 100


# --- planted bugs: every rule is needed -------------------------------------------------------------------------------


def a_version_does_not_note_what_it_publishes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("crdt_mor.log.intents.noting", lambda noted, posts: noted)


def an_owner_does_not_note_its_own(patch: pytest.MonkeyPatch) -> None:
    with_others = Posting.with_others

    def careless(self: Posting, tail: Timeline, event: Timeline, wall_ms: int) -> Run:
        value = yield from with_others(self, tail, event, wall_ms)
        return value if self.others else event

    patch.setattr(Posting, "with_others", careless)


def a_post_is_open_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("crdt_mor.model.timeline_value.is_open", lambda post, version: post.version <= version)
    patch.setattr("crdt_mor.model.posts.WINDOW", 2)


def an_event_is_posted_while_a_put_of_it_may_land(patch: pytest.MonkeyPatch) -> None:
    is_turn = Posting.is_turn

    def careless(self: Posting, tail: Timeline, *, may_land: bool = False) -> Run:
        return (yield from is_turn(self, tail))

    patch.setattr(Posting, "is_turn", careless)


@pytest.mark.parametrize(
    ("plant", "options"),
    [
        (a_version_does_not_note_what_it_publishes, TWO),
        (an_owner_does_not_note_its_own, TWO),
        (a_post_is_open_for_ever, TWO),
        slow(an_event_is_posted_while_a_put_of_it_may_land, LATE),
    ],
)
def test_the_search_finds(plant: Plant, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    nobody_withdraws(monkeypatch)
    plant(monkeypatch)
    with pytest.raises(Violation):
        world(**options).search(depth_first=True)


def test_one_version_may_publish_the_events_of_several_writers() -> None:
    """The search would prove nothing if nobody ever took another's event."""
    crowded = world(ends=2, deletions=False)
    crowded.search()
    values = [decoded(data) for log in crowded.logs for data in log]
    assert max(sum(c.version == value.version for c in value.completions) for value in values) == 2

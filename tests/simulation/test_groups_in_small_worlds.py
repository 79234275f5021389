"""Group commits in every interleaving: owners of posts, publishers, late copies, and all that may happen between.

The search visits all reachable stores, so any process may die anywhere. Beside the promises of every world:

    - No write is committed twice, under one name or under two, and no two writes with one token.
    - An acknowledged write stays committed, and Hudi knows of it. A refused write is never committed.
    - Only the commit's own files have its time.
    - A post that an eraser has found is never committed later.
    - A larger write begins once, although its begin is posted and taken along.

`docs/design/groups.md` explains each rule. Windows are two versions wide here, and posts are carried at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from zlib import crc32

import pytest

from crdt_mor.events import group
from crdt_mor.events.group import GroupCommit, Look
from crdt_mor.events.one_event import LoneWrite
from crdt_mor.log.combining import Load
from crdt_mor.log.paths import POSTS, post_path, version_path
from crdt_mor.log.posts import NAME_CHARS, Post, encode_post
from crdt_mor.log.projection import EventFile, EventProjector, last_put
from crdt_mor.log.publish import Shortcuts
from crdt_mor.log.steps import Put, Read, Steps, Together
from crdt_mor.log.tail import find_tail
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.posts import Noted, PostName
from crdt_mor.model.timeline import Timeline
from crdt_mor.store.protocol import Stat
from tests.driving import nonce_in_hex
from tests.simulation import grouping
from tests.simulation.actors import PUBLISHER, Run, finish, planner
from tests.simulation.grouping import (
    FIRST,
    START,
    GroupWorld,
    RestoredWorld,
    as_it_was,
    beginner,
    carrying_beginner,
    carrying_ender,
    carrying_planner,
    carrying_reader,
    copier,
    ender,
    eraser,
    grower,
    loner,
    overwriter,
    owner,
    post_of,
    restorer,
    until,
)
from tests.simulation.small_store import Violation, is_version
from tests.simulation.worlds import ROLES, Place, Plant, Role, nothing, small_numbers
from tests.tiers import long, slow

nothing_is_kept = small_numbers()


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crdt_mor.model.posts.WINDOW", 2)
    monkeypatch.setattr("crdt_mor.planners.way.PASSED_MAX", 0)
    monkeypatch.setattr("crdt_mor.log.posts.LOOKS_A_RANK", 1)
    monkeypatch.setattr("crdt_mor.log.projection.LOOKS_A_RANK", 1)
    monkeypatch.setattr("crdt_mor.log.posts.GATHERING_LOOKS", 0)
    monkeypatch.setattr("crdt_mor.log.posts._place", dead_first)


def dead_first(tail: Timeline, stat: Stat) -> tuple[bool, int]:
    """The places of those that have posted, in which the turn is first that of owners that have died."""
    return "dead" not in stat.path, crc32(f"{tail.nonce} {stat.path}".encode())


def told(value: object) -> str:
    """A parameter of a test in its name, the same in each process: a function by its own name."""
    return re.sub(r"<function (\w+) at 0x\w+>", r"\1", str(value))


def is_post(put: Put) -> bool:
    """For `faulty` of a world in which puts of posts alone may be hit by a fault."""
    return put.path.startswith(POSTS)


def decided(value: Timeline, count: int) -> list[Timeline]:
    """The versions that follow a value by as many events that move nothing but the clock."""
    found = []
    for n in range(count):
        value = value.decide(f"decided{n}", 0)
        found.append(value)
    return found


def putter(*values: Timeline) -> Run:
    """A process that has derived these versions, and puts one after another."""
    for value in values:
        if not (yield Put(version_path(value.version), value.encode())):
            return


OWNERS: dict[str, Callable[..., Run]] = {
    "owner": owner,
    "bucket": partial(owner, bucket=True),
    "token": partial(owner, token=("application", 1)),
    "rigid": partial(owner, fits=as_it_was),
    "gives up": partial(owner, fits=partial(until, 0)),
    "gives up later": partial(owner, fits=partial(until, 1)),
    "lone": loner,
    "along": partial(loner, along=True),
    "along in a bucket": partial(loner, along=True, bucket=True),
    "ahead": partial(loner, along=True, ahead=True),
    "ahead in a bucket": partial(loner, along=True, bucket=True, ahead=True),
}
"""Actors with a write of their own."""

OTHERS: dict[str, Role] = {
    **ROLES,
    "grower": grower,
    "eraser": eraser,
    "begins": beginner,
    "begins and ends": partial(beginner, completes=True),
    "restorer": restorer,
    "decider": lambda value: PUBLISHER.publish(lambda tail, _: tail.decide("decider", 0), value),
    "carries": carrying_beginner,
    "carries in a bucket": partial(carrying_beginner, bucket=True),
    "posts and carries": partial(carrying_beginner, is_crowded=True),
    "carries to the end": partial(carrying_beginner, completes=True),
    "posts and carries to the end": partial(carrying_beginner, completes=True, is_crowded=True),
    "plans and carries": carrying_planner,
    "reads and carries": carrying_reader,
    "two more": lambda value: putter(*decided(value, 2)),
    "three more": lambda value: putter(*decided(value, 3)),
}


def world(
    *who: str,
    begun: int = 0,
    ends: int = 0,
    carried_ends: int = 0,
    overwrites: int = 0,
    copies: int = 0,
    dead: int = 0,
    slept: int = 0,
    plan: bool = False,
    taken: bool = False,
    **options: Any,
) -> GroupWorld:
    """Actors; those with a write of their own have one number after another, and are named by it.

    begun, ends, overwrites: writes that have begun, and are completed; the ends are posted. carried_ends: ends that
    carry posts of others. copies: of how many of the owners' posts a second copy lands late. dead: posts of owners that
    have died. slept: how many versions have followed the one that the actors remember; another process, which has
    derived the first of them as well, is about to put it.
    plan: one is open. taken: a post was taken so long ago that its name is forgotten; a second copy of it has landed.
    """
    place = Place({version_path(0): START.encode()})
    place.begin(begun + ends + carried_ends + overwrites)
    if plan:
        place.run(planner(place.tail), "planned")
    if taken:
        put_post(place, FIRST + 80, PostName(place.tail.version, "taken"))
        place.run(loner(FIRST + 81, place.tail, along=True), "taker")
        for later in decided(place.tail, 2):
            place.run(putter(later), "forgetting")
    place.settle()
    value = place.tail
    for n in range(dead):
        put_post(place, FIRST + 90 + n, PostName(value.version, f"dead{n:08x}"))
    for later in decided(value, slept):
        place.run(putter(later), "slept")
    if slept:
        place.add("l", [partial(putter, value.decide("late", 0))])
    for n, role in enumerate(who):
        if role in OWNERS:
            place.add(f"w{n}.", [partial(OWNERS[role], FIRST + n, value)])
        else:
            place.add(f"o{n}.", [partial(OTHERS[role], value)])
    for n in range(copies):
        name = PostName(value.version, nonce_in_hex(f"w{n}.01")[:NAME_CHARS])
        data = encode_post(post_of(FIRST + n, name=name), value.table_id)
        place.add(f"c{n}.", [partial(copier, post_path(name), data)])
    place.go_on([finish] * begun + [ender] * ends + [carrying_ender] * carried_ends + [overwriter] * overwrites, "b")
    kind = RestoredWorld if "restorer" in who else GroupWorld
    return kind(place.objects, place.actors, **options)


def put_post(place: Place, number: int, name: PostName) -> None:
    """An owner has put a post, and died."""
    place.objects[post_path(name)] = encode_post(post_of(number, name=name), place.tail.table_id)


@pytest.fixture(autouse=True)
def nothing_is_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody but we write here."""
    monkeypatch.setattr("crdt_mor.events.overwrite.adopt", lambda publisher, known: find_tail(known))


# --- every interleaving -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "options"),
    [
        slow(["owner", "owner"], {"deletions": False}),
        (["owner"], {"slept": 3, "dead": 1}),
        (["bucket"], {"slept": 3}),
        (["ahead in a bucket"], {"slept": 3}),
        slow(["along in a bucket", "owner"], {"deletions": False}),
        slow(["gives up"], {"slept": 3}),
        (["owner", "along"], {"taken": True, "deletions": False}),
        slow(["owner", "along"], {"copies": 1, "deletions": False}),
        slow(["gives up", "along"], {}),
        (["owner", "eraser"], {}),
        (["owner", "restorer"], {"deletions": False}),
        slow(["rigid", "grower"], {}),
        slow(["along", "begins"], {}),
        slow(["along"], {"ends": 1, "deletions": False}),
        slow(["owner", "begins"], {"deletions": False}),
        slow(["owner"], {"ends": 1}),
        slow(["bucket", "begins and ends"], {"deletions": False}),
        slow(["along in a bucket"], {"slept": 3}),
        slow(["ahead in a bucket", "owner"], {"deletions": False}),
        slow(["ahead", "decider", "sweeper"], {"deletions": False}),
        slow(["ahead in a bucket", "grower", "sweeper"], {"deletions": False}),
        slow(["owner", "owner"], {}),
        slow(["bucket", "owner"], {}),
        slow(["owner", "gives up later"], {}),
        slow(["gives up", "along in a bucket"], {"copies": 1}),
        slow(["token", "token"], {"deletions": False}),
        slow(["owner", "lone"], {"copies": 1}),
        slow(["owner", "along", "along"], {"deletions": False}),
        slow(["owner", "along", "two more"], {}),
        slow(["owner", "along", "sweeper"], {"deletions": False}),
        slow(["bucket", "along", "eraser"], {"deletions": False}),
        slow(["rigid", "along", "grower"], {"deletions": False}),
        slow(["bucket", "restorer"], {"deletions": False}),
        slow(["owner", "worker"], {"plan": True}),
        slow(["owner", "planner"], {"copies": 1}),
        slow(["owner"], {"overwrites": 1}),
        slow(["owner"], {"begun": 1, "copies": 1}),
        slow(["owner", "eraser"], {"dead": 1}),
        slow(["owner", "sweeper"], {"dead": 1, "copies": 1}),
        long(["owner", "owner", "owner"], {"deletions": False}),
        long(["token", "token"], {}),
        long(["owner", "gives up", "along"], {}),
        long(["owner", "along"], {"begun": 1, "copies": 1}),
    ],
    ids=told,
)
def test_every_interleaving(who: Sequence[str], options: dict[str, Any]) -> None:
    assert world(*who, **options).search() > 100


@pytest.mark.parametrize(
    ("who", "options"),
    [
        (["carries"], {"dead": 1, "deletions": False}),
        (["plans and carries"], {"dead": 1, "deletions": False}),
        (["reads and carries"], {"dead": 1}),
        slow(["carries"], {"dead": 1, "slept": 3}),
        slow(["owner", "carries"], {"deletions": False}),
        slow(["owner", "posts and carries"], {"deletions": False}),
        slow(["carries", "along"], {"dead": 1, "deletions": False}),
        slow(["carries", "carries"], {"dead": 1, "deletions": False}),
        slow(["carries", "eraser"], {"dead": 1, "deletions": False}),
        slow(["gives up", "carries"], {"deletions": False}),
        slow(["rigid", "carries", "grower"], {"deletions": False}),
        slow(["token", "carries"], {"dead": 1, "deletions": False}),
        slow(["owner"], {"carried_ends": 1, "deletions": False}),
        slow(["owner", "plans and carries"], {"deletions": False}),
        slow(["owner", "reads and carries"], {"deletions": False}),
        slow(["carries"], {"dead": 1, "faults": 1, "deletions": False}),
        slow(["owner", "carries"], {"copies": 1, "deletions": False}),
        slow(["carries", "restorer"], {"dead": 1, "deletions": False}),
        slow(["bucket", "carries in a bucket"], {"deletions": False}),
        long(["owner", "carries"], {}),
        long(["carries to the end", "carries"], {"dead": 1, "deletions": False}),
        long(["posts and carries to the end", "carries"], {"dead": 1, "deletions": False}),
    ],
    ids=told,
)
def test_every_interleaving_of_publishers_that_carry_posts(who: Sequence[str], options: dict[str, Any]) -> None:
    assert world(*who, **options).search() > 5


@pytest.mark.parametrize(
    ("who", "options"),
    [
        (["owner"], {"faults": 1}),
        slow(["owner", "along"], {"faulty": is_post, "deletions": False}),
        slow(["ahead in a bucket", "owner"], {"faulty": is_version, "deletions": False}),
        slow(["owner", "owner"], {"faulty": is_version, "deletions": False}),
        slow(["gives up", "along"], {"faulty": is_version, "deletions": False}),
        long(["owner", "owner"], {"deletions": False}),
        long(["bucket", "along"], {}),
    ],
    ids=told,
)
def test_any_put_may_lose_its_reply_land_late_or_be_repeated(who: Sequence[str], options: dict[str, Any]) -> None:
    assert world(*who, **{"faults": 1, **options}).search() > 100


@pytest.mark.parametrize(
    ("who", "options"),
    [(["owner", "along"], {"deletions": False}), slow(["owner", "along", "decider"], {"deletions": False})],
    ids=told,
)
def test_an_outcome_is_found_in_segments(
    who: Sequence[str], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 0)
    assert world(*who, **options).search() > 100


def test_last_put_with_hints_behind_returns_the_last_durable_file() -> None:
    """Hints of a write that ends here were put by its begin, so they show nothing."""
    group_file, end = EventFile("group.deltacommit", bytes), EventFile("end.deltacommit", bytes)
    hints = [EventFile(f"end.{state}", bytes, durable=False) for state in ("requested", "inflight")]
    assert last_put([group_file, end, *hints]) == end
    assert last_put(hints) is None


# --- planted bugs: every rule is needed -------------------------------------------------------------------------------


def nothing_is_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("crdt_mor.log.publish.require_invariants", lambda previous, following: None)


def a_name_is_forgotten_within_the_window(patch: pytest.MonkeyPatch) -> None:
    def hasty(noted: Noted, version: int) -> Noted:
        return tuple((made_at, names) for made_at, names in noted if version < made_at + 1)

    patch.setattr("crdt_mor.model.timeline.still_kept", hasty)
    nothing_is_asked(patch)


def a_post_is_open_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("crdt_mor.model.posts.is_open", lambda post, version: post.version <= version)
    patch.setattr("crdt_mor.model.timeline_value.is_open", lambda post, version: post.version <= version)
    nothing_is_asked(patch)


def no_value_judges_what_was_listed(patch: pytest.MonkeyPatch) -> None:
    """What was open when it was put goes into each version that is derived later."""
    patch.setattr(group, "chosen", lambda listed, tail, now_ms: list(listed))
    nothing_is_asked(patch)


def an_owner_that_gives_up_voids_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(group, "void", lambda publisher, known, posts: find_tail(known))


def an_eraser_voids_nothing(patch: pytest.MonkeyPatch) -> None:
    an_owner_that_gives_up_voids_nothing(patch)


def what_a_void_found_taken_is_refused(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: Any, look: Look) -> Steps[Timeline]:
        return (yield from group.void(self.publisher, look.genuine, [self.name]))

    patch.setattr(group._Posted, "_void", hasty)


def a_void_whose_version_is_gone_is_believed(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: Any, look: Look) -> Steps[GroupCommit | Timeline]:
        value = yield from group.void(self.publisher, look.genuine, [self.name])
        outcome = yield from self._outcome(look.proved(value))
        return value if outcome is None else outcome

    patch.setattr(group._Posted, "_void", hasty)


def an_outcome_is_believed_of_a_ghost(patch: pytest.MonkeyPatch) -> None:
    outcome = group._Posted._outcome

    def trusting(self: Any, look: Look) -> Steps[Any]:
        known = look.genuine
        steps = outcome(self, look)
        reply: Any = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                return end.value
            reply = yield step
            if isinstance(step, Together) and step.steps[0] == Read(version_path(known.version)):
                reply = [known.encode(), *reply[1:]]

    patch.setattr(group._Posted, "_outcome", trusting)


def a_commit_follows_what_may_be_a_ghost(patch: pytest.MonkeyPatch) -> None:
    commit = group._Posted._commit
    patch.setattr(group._Posted, "_commit", lambda self, look, stats: commit(self, look.proved(look.newest), stats))


def a_lone_commit_follows_what_may_be_a_ghost(patch: pytest.MonkeyPatch) -> None:
    def trusting(known: Timeline, data: bytes) -> Steps[Timeline]:
        return Timeline.decode(data, "")
        yield

    patch.setattr(group, "next_if_newest", trusting)


def a_time_that_the_clock_has_passed_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(group, "_has_passed", lambda tail, requested: False)
    nothing_is_asked(patch)


def history_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(group, "find_taken", nothing)
    patch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 0)


def acknowledged_before_hudi_knows(patch: pytest.MonkeyPatch) -> None:
    def trusting(projector: EventProjector, value: Timeline) -> Steps[bool]:
        return True
        yield

    patch.setattr(group, "wait_for_projection", trusting)


def a_restore_is_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(group, "restored_since", lambda restores, version: None)


def events_that_are_taken_along_are_not_noted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("crdt_mor.log.intents.noting", lambda noted, posts: noted)
    patch.setattr("crdt_mor.log.combining.Posting.withdraw", nothing)
    patch.setattr("crdt_mor.model.posts.WINDOW", 3)


def a_commit_of_others_does_not_note_their_posts(patch: pytest.MonkeyPatch) -> None:
    def forgetful(tail: Timeline, requested: InstantTime, posts: Sequence[Post]) -> LoneWrite | None:
        made = rightly(tail, requested, posts)
        return made and replace(made, members=tuple(replace(member, post=None) for member in made.members))

    rightly = grouping.fitting
    patch.setattr(grouping, "fitting", forgetful)
    nothing_is_asked(patch)


def the_own_event_is_not_noted(patch: pytest.MonkeyPatch) -> None:
    def forgetful(tail: Timeline, load: Load, shortcuts: Shortcuts) -> Steps[Timeline | None]:
        unposted = (*(event.intent for event in load.events), *load.unposted)
        return (yield from rightly(tail, replace(load, events=(), unposted=unposted), shortcuts))

    rightly = grouping.carry
    patch.setattr(grouping, "CARRIER", replace(grouping.CARRIER, carry=forgetful))
    patch.setattr("crdt_mor.log.combining.Posting.withdraw", nothing)
    patch.setattr("crdt_mor.model.posts.WINDOW", 3)


@pytest.mark.parametrize(
    ("plant", "who", "options", "found"),
    [
        (a_commit_of_others_does_not_note_their_posts, ["owner", "carries"], {"deletions": False}, "."),
        slow(
            the_own_event_is_not_noted,
            ["posts and carries to the end", "carries"],
            {"dead": 1, "deletions": False},
            "begun twice",
        ),
        slow(a_name_is_forgotten_within_the_window, ["owner", "along"], {}, "twice"),
        (a_post_is_open_for_ever, ["along"], {"taken": True}, "twice"),
        slow(no_value_judges_what_was_listed, ["owner", "owner"], {}, "twice"),
        (an_owner_that_gives_up_voids_nothing, ["gives up", "along"], {}, "refused, and is committed"),
        slow(what_a_void_found_taken_is_refused, ["gives up", "along"], {}, "refused, and is committed"),
        long(a_void_whose_version_is_gone_is_believed, ["owner", "gives up", "along"], {}, "refused, and is committed"),
        (an_eraser_voids_nothing, ["along", "eraser"], {"dead": 1}, "after it was erased"),
        slow(an_outcome_is_believed_of_a_ghost, ["owner", "along", "three more"], {"dead": 1}, "."),
        (a_commit_follows_what_may_be_a_ghost, ["owner"], {"slept": 3}, "."),
        slow(a_lone_commit_follows_what_may_be_a_ghost, ["ahead in a bucket"], {"slept": 3}, "."),
        slow(
            a_time_that_the_clock_has_passed_is_kept,
            ["along in a bucket", "grower", "sweeper"],
            {"deletions": False},
            "was removed",
        ),
        slow(history_is_not_looked_at, ["owner", "along", "decider"], {"deletions": False}, "."),
        slow(acknowledged_before_hudi_knows, ["owner", "along"], {}, "Hudi was not told"),
        (a_restore_is_not_looked_for, ["owner", "restorer"], {"deletions": False}, "."),
        slow(
            events_that_are_taken_along_are_not_noted, ["owner", "begins and ends"], {"deletions": False}, "begun twice"
        ),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_search_finds(
    plant: Plant, who: Sequence[str], options: dict[str, Any], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation, match=found):
        world(*who, **options).search()

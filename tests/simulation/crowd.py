"""Many writers of one table, simulated: the protocols themselves over a store in memory, by a virtual clock.

Every request takes its time and has its effect in the middle of it; those made side by side take it together, sixteen
at once. So a run is the same on every machine, and says what the round trips cost and nothing else. A writer commits
one row again and again, by the way that `planners.way` chooses.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import count
from typing import Any
from unittest.mock import patch

from crdt_mor.events import group, one_event
from crdt_mor.events import write as events
from crdt_mor.events.group import Draft
from crdt_mor.events.one_event import ExpectedObject, LoneWrite
from crdt_mor.ground.clock import Process
from crdt_mor.hudi.projection import Projector, TablePublisher
from crdt_mor.log import giving_way
from crdt_mor.log.combining import Crowd, Load
from crdt_mor.log.paths import POSTS, PROPERTIES, VERSIONS, is_event, post_in, version_path
from crdt_mor.log.posts import Post
from crdt_mor.log.projection import Projected
from crdt_mor.log.publish import Shortcuts
from crdt_mor.log.steps import (
    Delete,
    GetStat,
    List,
    MakeDurable,
    Nonce,
    Now,
    Pause,
    Put,
    Read,
    Steps,
    StoreNow,
    Together,
    Wait,
    perform,
)
from crdt_mor.log.tail import find_tail
from crdt_mor.model.authors import Author
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import InstantTime, claim_after, from_ms
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.names import LogFileName, bucket_file_id
from crdt_mor.model.posts import PostName
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import DataFile
from crdt_mor.planners.way import BUSY_MS, Seen, Write, way
from crdt_mor.store.at_once import REQUESTS_AT_ONCE
from crdt_mor.store.memory import MemoryStore
from crdt_mor.store.protocol import Stat

Run = Generator[Any, Any, Any]

START_MS = 1_767_225_600_000
EXPIRY_MS = 600_000
SERVICE_PAUSES = 40  # about five seconds, between events of a service
ROW = b"r" * 2_000
BUCKETS = 4
COMMITS_MAX = 1 << 20
BLOCKS = COMMITS_MAX * COMMITS_MAX  # the first number of rows of those who commit blocks
BLOCK_PAUSE_MS = 500


def carry(tail: Timeline, load: Load, shortcuts: Shortcuts) -> Steps[Timeline | None]:
    """Commits whole writes of others, as `events.carrying` does."""
    return (yield from group.carry(PUBLISHER, tail, load, group_of_others, None, shortcuts))


def group_of_others(tail: Timeline, requested: InstantTime, posts: Sequence[Post]) -> LoneWrite | None:
    return commit_of(tail, requested, posts) if posts else None


PUBLISHER = TablePublisher(Projector(TableConfig("t", KeySpec(("id",)), buckets=64)), carry=carry)


@dataclass(frozen=True)
class Acknowledged:
    """A commit: when its writer knew of it, how long it had waited for it, both in milliseconds, and the
    number of rows that tells it from others."""

    at: float
    took: float
    name: int


@dataclass
class Simulation:
    """Writers over one store, each request at its time.

    latency_ms: of a request, give or take a third of it. deadly: the chance of a process to die at a request, which may
    still take effect. fsync_ms: of a disk, where nothing is done side by side, how long what lasts is waited for; None:
    a bucket. now: milliseconds since the beginning.
    lost: how many puts of versions came too late. newest: the newest version. landed: the newest version as each whole
    write was posted.
    """

    seed: int
    latency_ms: float
    deadly: float = 0.0
    fsync_ms: float | None = None
    now: float = 0.0
    commits: list[Acknowledged] = field(default_factory=list)
    requests: int = 0
    lost: int = 0
    newest: int = 1
    landed: dict[PostName, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._ids = count()
        self._named: set[str] = set()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self.store = MemoryStore(self.now_ms)

    # What a protocol asks of an `Environment` as it is performed, and what it does not:

    def now_ms(self) -> int:
        return START_MS + int(self.now)

    def nonce(self) -> str:
        return f"{next(self._ids):08x}".ljust(32, "0")

    def jitter(self) -> float:
        return self._chance.random()

    def sleep(self, seconds: float) -> None:
        raise AssertionError("pauses are scheduled")

    def every(self, seconds: float, work: Callable[[], None], name: str) -> AbstractContextManager[None]:
        raise AssertionError("no protocol has anything done in the background")

    def process(self) -> Process:
        raise AssertionError("no protocol asks which process it is")

    def start(self, steps: Run) -> None:
        """A process goes on with `steps`, from a moment of the first second."""
        self._at(self.now + self._chance.random() * 1000, lambda: self._go_on(steps, None))

    def beside(self, steps: Run) -> None:
        """A process does `steps`, and something else meanwhile."""
        self._go_on(steps, None)

    def run(self, until_s: float) -> None:
        """Let time pass until then."""
        while self._due and self._due[0][0] <= until_s * 1000:
            self.now, _, happen = heapq.heappop(self._due)
            happen()

    def _at(self, when: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._ids), happen))

    def _go_on(self, steps: Run, reply: object) -> None:
        while True:
            try:
                step = steps.send(reply)
            except StopIteration:
                return
            match step:
                case Now() | StoreNow():
                    reply = self.now_ms()
                case Nonce():
                    reply = self.nonce()
                case MakeDurable() if self.fsync_ms is None:
                    reply = None
                case Wait(milliseconds):
                    self._at(self.now + milliseconds * (1 + self.jitter() / 4), lambda: self._go_on(steps, None))
                    return
                case Pause(attempt):
                    self._at(self.now + self.jitter() * min(250, 2**attempt), lambda: self._go_on(steps, None))
                    return
                case Together(parts):
                    self._ask(steps, parts, whole=True)
                    return
                case _:
                    self._ask(steps, (step,), whole=False)
                    return

    def _ask(self, steps: Run, parts: tuple[Any, ...], *, whole: bool) -> None:
        """Perform operations side by side, and go on when all are answered."""
        replies: list[object] = [None] * len(parts)
        free = [self.now] * (min(len(parts), REQUESTS_AT_ONCE) if self.fsync_ms is None else 1)
        for i, part in enumerate(parts):
            begun = heapq.heappop(free)
            by_chance = 2 / 3 + self._chance.random() * 2 / 3
            before, after = (self.latency_ms / 2 + wait for wait in self._waits_for(part))
            heapq.heappush(free, begun + (before + after) * by_chance)
            self._at(begun + before * by_chance, lambda i=i, part=part: self._perform(replies, i, part))  # type: ignore[misc]
        self.requests += len(parts)
        if self.deadly and self._chance.random() < self.deadly:
            return
        self._at(max(free), lambda: self._go_on(steps, replies if whole else replies[0]))

    def _waits_for(self, part: Any) -> tuple[float, float]:
        """How long a disk is waited for before an operation takes effect, and after that.

        Before an object has its name its content is waited for, and earlier names, each once; then its own name.
        """
        fsync_ms = self.fsync_ms or 0
        match part:
            case Put(path, _, durable, after):
                earlier = set(after) - self._named
                self._named |= {*earlier, *([path] if durable is True else [])}
                return fsync_ms * (bool(durable) + len(earlier)), fsync_ms * (durable is True)
            case MakeDurable(path):
                is_named = path in self._named
                self._named.add(path)
                return fsync_ms * (not is_named), 0
        return 0, 0

    def _perform(self, replies: list[object], i: int, part: Any) -> None:
        replies[i] = perform(part, self.store, self)
        if isinstance(part, Put) and part.path.startswith(VERSIONS):
            self.lost += replies[i] is False
            self.newest += replies[i] is True
        if isinstance(part, Put) and part.path.startswith(POSTS) and not is_event(part.path):
            post = post_in(part.path)
            assert post is not None
            self.landed[post] = self.newest


def writer(sim: Simulation, known: Timeline, owner: int, crowd: Crowd | None, think_s: float = 0) -> Run:
    """Commits one row again and again, as `Session` does. crowd: None: it posts nothing.

    think_s: seconds between two commits, give or take a half; each is then one of a process that opens the table anew.
    """
    projected = -1
    stat = sim.store.stat(PROPERTIES)
    for number in count():
        if think_s:
            yield Wait(think_s * 1000 * (sim.jitter() if number == 0 else 0.5 + sim.jitter()))
        began, name = sim.now, owner * COMMITS_MAX + number + 1
        late: list[Projected] | None = [] if sim.fsync_ms is None else None
        if think_s:
            known, is_busy = yield from opened(sim)
            projected, crowd = -1, Crowd(is_crowded=is_busy)
        shortcuts = Shortcuts(helped=projected, late=late, crowd=crowd)
        if crowd and crowd.is_asked:
            yield from giving_way.give_way()
            crowd.is_asked = False
        expected = ExpectedObject(PROPERTIES, stat)
        draft = draft_of(name)
        committed: Any = None
        seen = Seen(is_crowded=crowd is not None and crowd.is_crowded, is_far=sim.fsync_ms is None)
        facts = Write(bytes=len(ROW), file_groups=1, is_postable=crowd is not None)
        if way(seen, facts).step == "alone":
            facts = replace(facts, lost=1)
            write = commit_of(known, claim_after(known.clock, sim.now_ms()), [draft.post])
            if crowd is None:
                committed = yield from one_event.commit(PUBLISHER, known, write, expected, shortcuts)
            else:
                is_stale = sim.fsync_ms is None and (bool(think_s) or crowd.has_met)
                committed = yield from group.commit_alone(
                    PUBLISHER, known, write, partial(lambda own: own, draft), crowd, expected, shortcuts,
                    is_stale=is_stale,
                )  # fmt: skip
            if isinstance(committed, Timeline):
                known, projected, committed = committed, committed.version, None
        if committed is None and crowd and way(seen, facts).step == "post":
            left: list[str] = []
            committed = yield from group.commit(PUBLISHER, known, draft, crowd, expected, shortcuts, left)
            sim.beside(removed(left))
        if committed is None:
            committed = yield from long_way(known, draft, shortcuts)
        known, projected = committed.value, committed.value.version
        sim.commits.append(Acknowledged(sim.now, sim.now - began, name))
        if late:
            sim.beside(PUBLISHER.look_again(late))


def long_way(known: Timeline, draft: Draft, shortcuts: Shortcuts) -> Run:
    """A write that begins and ends in events of its own."""
    value, begun = yield from events.begin(PUBLISHER, known, EXPIRY_MS, None, shortcuts)
    (file, data), *_ = commit_of(value, begun.requested, [draft.post]).logs
    yield Put(file.path, data)
    return (yield from events.complete(
        PUBLISHER, value, begun, "UPSERT", [file], None, replace(shortcuts, looked=True, helped=value.version)
    ))  # fmt: skip


def blocks(sim: Simulation, known: Timeline, took: list[float], pause_ms: float) -> Run:
    """Commits transaction blocks, one after another, which cannot be posted whole. took: how long each has taken."""
    crowd = Crowd()
    for number in count():
        began = sim.now
        if sim.fsync_ms is not None:
            yield from giving_way.give_way()
        late: list[Projected] | None = [] if sim.fsync_ms is None else None
        completed = yield from long_way(known, draft_of(BLOCKS + number), Shortcuts(late=late, crowd=crowd))
        known = completed.value
        took.append(sim.now - began)
        if pause_ms:
            yield Wait(pause_ms)


def opened(sim: Simulation) -> Steps[tuple[Timeline, bool]]:
    """Another process opens the table, with the requests of `log.opening`; its newest version, and if it is busy."""
    _, versions, posts = yield Together((Read(PROPERTIES), List(VERSIONS), List(POSTS)))
    newest: Stat = versions[-1]
    number = int(newest.path.rpartition("/")[2].partition(".")[0])
    data, following = yield Together((Read(newest.path), GetStat(version_path(number + 1))))
    value = Timeline.decode(data, newest.path)
    if following is None:
        yield Together((Read(newest.path), List(VERSIONS), Read(PROPERTIES), List(PUBLISHER.projector.folder)))
    else:
        value = yield from find_tail(value)
    return value, bool(posts) or sim.now_ms() - newest.modified_ms <= BUSY_MS


def draft_of(name: int) -> Draft:
    """A write of so many rows, which tells it from all others."""
    author = Author("crowd", "host", name // COMMITS_MAX)
    post = Post(None, author, None, "UPSERT", False, name, 0, ROW)
    return Draft(post, lambda tail: True, lambda tail, requested, posts, own: commit_of(tail, requested, posts))


def commit_of(tail: Timeline, requested: InstantTime, posts: Sequence[Post]) -> LoneWrite:
    """The commit of posts, with a file for each file group that they touch."""
    logs = [
        (DataFile(str(LogFileName(bucket_file_id(bucket), requested)), len(ROW), posts[0].rows), ROW)
        for bucket in sorted({post.rows % BUCKETS for post in posts})
    ]
    members = tuple(post.member for post in posts) if posts[0].name or len(posts) > 1 else ()
    return LoneWrite(requested, "UPSERT", tuple(logs), members=members)


def removed(paths: Sequence[str]) -> Run:
    """The posts whose outcome is known go."""
    for path in paths:
        yield Delete(path)


def service(sim: Simulation, known: Timeline, took: list[float]) -> Run:
    """Publishes one event after another that no one else can, as a plan is: an object is put for each attempt."""
    for number in count():
        began, nonce = sim.now, f"service {number}"

        def derive(tail: Timeline, wall_ms: int, number: int = number, nonce: str = nonce) -> Steps[Timeline]:
            yield Put(f"plans/{number}-{tail.version}", b"p")
            return tail.set_properties(nonce, wall_ms, (("events", str(number)),))

        known = yield from PUBLISHER.publish(derive, known)
        took.append(sim.now - began)
        for _ in range(SERVICE_PAUSES):
            yield Pause(8)


@contextmanager
def decoded_once() -> Iterator[None]:
    """Equal bytes are one value, as many writers read the same version: that is the simulation's time, not theirs."""
    decode = staticmethod(lru_cache(maxsize=512)(Timeline.decode))
    with patch.object(Timeline, "decode", decode):
        yield


def crowd_of(
    writers: int,
    *,
    seconds: float,
    latency_ms: float,
    combining: bool = True,
    seed: int = 7,
    deadly: float = 0.0,
    service_took: list[float] | None = None,
    blocks_took: Sequence[list[float]] = (),
    block_pause_ms: float = BLOCK_PAUSE_MS,
    think_s: float = 0,
    fsync_ms: float | None = None,
) -> Simulation:
    """What so many writers have done by then.

    service_took: how long each event of a service beside them has taken. blocks_took: the same of transaction blocks,
        of a process for each list.
    """
    sim = Simulation(seed, latency_ms, deadly, fsync_ms)
    first = Timeline(1, "first", from_ms(START_MS - 1000), "[]", swept=from_ms(START_MS), table_id="simulated")
    sim.store.put(PROPERTIES, b"")
    sim.store.put(version_path(1), first.encode())
    for owner in range(writers):
        sim.start(writer(sim, first, owner, Crowd() if combining else None, think_s))
    if service_took is not None:
        sim.start(service(sim, first, service_took))
    for took in blocks_took:
        sim.start(blocks(sim, first, took, block_pause_ms))
    with decoded_once():
        sim.run(seconds)
    return sim

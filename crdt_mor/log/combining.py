"""Combining: with many writers, one version publishes the events of several.

    post        after two lost races, a writer puts its event among the posts, under a name of its own
    turn        writers with posts take turns: each in its turn publishes all posted events
    withdraw    a writer that knows the outcome removes its post

A lone writer does not post. Each publisher looks for posts, and takes whole writes along that others have passed
(`planners.way`).

*Why no write begins twice.* A posted event is open for a few versions after the version in its name. The version that
publishes the event notes its name for as long (`model.posts`). A version without that note must not land later, so an
event is not posted while such a put may still land. An end that is taken late finds nothing pending.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from crdt_mor.errors import StorageUnavailableError
from crdt_mor.log import giving_way
from crdt_mor.log.intents import BYTES_MAX, Intent, PostedEvent, combine, encode_intent
from crdt_mor.log.paths import POSTS, event_path, is_event, post_in
from crdt_mor.log.posts import NAME_CHARS, Turn, chosen, events_in, read_all
from crdt_mor.log.steps import Delete, List, Now, Pause, Put, Steps, StoreNow, Together
from crdt_mor.model.posts import PostName, is_open
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import knows_posts
from crdt_mor.planners.way import EVENT_RACES_MAX, is_passed
from crdt_mor.store.protocol import Stat

ABANDONED_MS: Final = 600_000
"""Age at which a sweep treats a process with a turn request as dead, by the store's clock."""


@dataclass(frozen=True, slots=True)
class Load:
    """Whole writes and posted events for a publisher to take along, and its own event if that is not posted."""

    writes: tuple[Stat, ...]
    events: tuple[PostedEvent, ...] = ()
    unposted: tuple[Intent, ...] = ()


def passed(posts: Sequence[Stat], tail: Timeline) -> list[Stat]:
    """Return the whole writes among open posts if two versions have passed one of them; else none."""
    writes = [(stat, name) for stat in posts if not is_event(stat.path) and (name := post_in(stat.path)) is not None]
    return [stat for stat, _ in writes] if is_passed((name.version for _, name in writes), tail.version) else []


@dataclass(slots=True)
class Crowd:
    """Whether other writers were in the way lately: then events are posted at once.

    others: other writers in the last version with posts. has_met: events of others were seen at the last commit.
    commit_ms: recent duration of a commit of posts on a disk, or 0.
    """

    is_crowded: bool = False
    others: int = 0
    is_asked: bool = False
    has_met: bool = False
    commit_ms: int = 0

    def note_commit(self, took_ms: int) -> None:
        self.commit_ms = (self.commit_ms + took_ms) // 2 if self.commit_ms else took_ms


@dataclass(slots=True)
class Posting:
    """State of an event during publication. Not thread-safe.

    intent: the event to post; None: its writer publishes alone. is_carrier: it takes whole writes along. attempt: puts
    so far. others: events of others in the last put. may_land: a put may still succeed, or has.
    """

    intent: Intent | None = None
    crowd: Crowd | None = None
    is_carrier: bool = False
    attempt: int = 0
    others: int = 0
    may_land: bool = False
    _posted: list[PostName] = field(default_factory=list)
    _turn: Turn = field(default_factory=lambda: Turn(""))
    _request: giving_way.Request = field(default_factory=giving_way.Request)
    _chosen: list[Stat] = field(default_factory=list)
    _known: dict[str, Any] = field(default_factory=dict)
    _look_ms: int = 0

    @property
    def is_posted(self) -> bool:
        return bool(self._posted)

    def is_turn(self, tail: Timeline, *, may_land: bool = False) -> Steps[bool]:
        """Post the event if due. Returns True if this process should try to publish now.

        After its window nobody can take the post, and the event is posted again. may_land: an earlier put may still
        land without noting a new name.
        """
        if tail.table_id is None or not knows_posts(tail.format):
            return True  # a table's first event sets its id; older releases know no posts
        intent, crowd = self.intent, self.crowd
        steps: list[List | Put] = [List(POSTS)]
        if intent is None or crowd is None:
            if not self.is_carrier:
                return True
        elif not self._is_open(tail):
            is_due = not may_land and (self.is_posted or crowd.is_crowded or self.attempt > EVENT_RACES_MAX)
            data = encode_intent(intent, tail.table_id) if is_due else b""
            if 0 < len(data) <= BYTES_MAX:
                name = PostName(tail.version, intent.nonce[:NAME_CHARS])
                self._posted.append(name)  # a lost put only loses the help of others
                self._turn = Turn(event_path(name), crowd.others + 1)
                steps.append(Put(event_path(name), data, durable=False, decides=True))
        began: int = yield Now()
        try:
            listed, *_ = yield Together(tuple(steps))
        except StorageUnavailableError:
            if self.is_posted:
                raise
            listed = []  # nobody is helped this time
        self._look_ms = (yield Now()) - began
        now_ms: int = (yield StoreNow()) if listed else 0
        self._chosen = chosen(listed, tail, now_ms)
        return not self._is_open(tail) or self._turn.is_due(tail, self._chosen)

    def _is_open(self, tail: Timeline) -> bool:
        return self.is_posted and is_open(self._posted[-1], tail.version)

    def passed(self, tail: Timeline) -> list[Stat]:
        """Return the whole writes to take along, or none if each of them can wait."""
        return passed(self._chosen, tail) if self.is_carrier else []

    def load(self, tail: Timeline, writes: Sequence[Stat]) -> Steps[Load]:
        """Return these whole writes and all events, the own one included."""
        events = yield from self._events(tail)
        intent = self.intent
        unposted = () if intent is None or self._is_open(tail) else (intent,)
        return Load(tuple(writes), tuple(events), unposted)

    def leave_to_others(self, tail: Timeline) -> Steps[None]:
        yield from self._turn.pause(tail, self._look_ms, 0)

    def with_others(self, tail: Timeline, event: Timeline, wall_ms: int) -> Steps[Timeline]:
        own = self._is_open(tail)
        if self.intent is None or self.crowd is None or not (own or self._chosen):
            return event
        events = yield from self._events(tail)
        value, possible = combine(tail, wall_ms, events, unposted=[] if own else [self.intent])
        self.others = self.crowd.others = possible - 1
        return value

    def _events(self, tail: Timeline) -> Steps[list[PostedEvent]]:
        """Return the posted events, the own one last."""
        paths = events_in(self._chosen, self._turn.own)
        new = [path for path in paths if path not in self._known]
        self._known.update(zip(new, (yield from read_all(new, tail.table_id)), strict=True))
        events = [self._known[path] for path in paths if self._known[path] is not None]
        if self.intent is not None and self._is_open(tail):
            events.append(PostedEvent(self._posted[-1], self.intent))
        return events

    def pause(self, tail: Timeline) -> Steps[None]:
        if not self.is_posted and self.attempt >= giving_way.LOST_MAX:
            yield from self._request.ask()
        if self.is_posted:
            yield from self.leave_to_others(tail)
        else:
            yield Pause(self.attempt - 1)

    def end(self, *, published: bool) -> Steps[None]:
        if self.crowd is not None:
            was_helped = self.is_posted and (not published or self.attempt > 1)
            self.crowd.is_crowded = was_helped or self.others > 0
        yield from self._request.end()
        yield from self.withdraw()

    def withdraw(self) -> Steps[None]:
        if self.is_posted:
            yield Together(tuple(Delete(event_path(name)) for name in self._posted))

"""Combining: with many writers, one version publishes the events of several.

    post        after two lost races, a writer puts its event among the posts, under a name of its own
    turn        writers with posts take turns: each in its turn publishes all posted events
    withdraw    a writer that knows the outcome removes its post

A lone writer does not post, and looks now and then for others, who would lose each race.

*Why no write begins twice.* A posted event is open for a few versions after the version in its name. The version that
publishes the event notes its name for as long (`model.posts`). A version without that note must not land later, so an
event is not posted while such a put may still land. An end that is taken late finds nothing pending.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from crdt_mor.log import giving_way
from crdt_mor.log.intents import BYTES_MAX, Intent, PostedEvent, combine, encode_intent
from crdt_mor.log.paths import POSTS, event_path
from crdt_mor.log.posts import NAME_CHARS, Turn, chosen, decode, events_in
from crdt_mor.log.steps import Delete, List, Now, Pause, Put, Read, Steps, StoreNow, Together
from crdt_mor.model.posts import PostName, is_open
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import knows_posts
from crdt_mor.store.protocol import Stat

LOST_MAX: Final = 1
"""Lost races before an event is posted."""

LOOK_EVERY: Final = 8
"""Own events between two looks of a lone process for posts."""

ABANDONED_MS: Final = 600_000
"""Age at which a sweep treats a process with a turn request as dead, by the store's clock."""


@dataclass(slots=True)
class Crowd:
    """Whether other writers were in the way lately: then events are posted at once.

    others: other writers in the last version with posts. has_met: events of others were seen at the last commit.
    unlooked: own events since the last look. commit_ms: recent duration of a commit of posts on a disk, or 0.
    """

    is_crowded: bool = False
    others: int = 0
    is_asked: bool = False
    has_met: bool = False
    unlooked: int = 0
    commit_ms: int = 0

    def note_commit(self, took_ms: int) -> None:
        self.commit_ms = (self.commit_ms + took_ms) // 2 if self.commit_ms else took_ms


@dataclass(slots=True)
class Posting:
    """State of an event during publication. Not thread-safe.

    intent: the event to post; None: its writer publishes alone. attempt: puts so far. others: events of others in the
    last put. may_land: a put may still succeed, or has.
    """

    intent: Intent | None = None
    crowd: Crowd | None = None
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
        intent, crowd = self.intent, self.crowd
        if intent is None or crowd is None or tail.table_id is None or not knows_posts(tail.format):
            return True  # a table's first event sets its id; older releases know no posts
        steps: list[List | Put] = [List(POSTS)]
        if not self._is_open(tail):
            crowd.unlooked += 1
            is_due = not may_land and (self.is_posted or crowd.is_crowded or self.attempt > LOST_MAX)
            data = encode_intent(intent, tail.table_id) if is_due else b""
            if 0 < len(data) <= BYTES_MAX:
                name = PostName(tail.version, intent.nonce[:NAME_CHARS])
                self._posted.append(name)  # a lost put only loses the help of others
                self._turn = Turn(event_path(name), crowd.others + 1)
                steps.append(Put(event_path(name), data, durable=False, decides=True))
            elif crowd.unlooked < LOOK_EVERY:
                self._chosen = []  # these belong to an older version
                return True
        began: int = yield Now()
        listed, *_ = yield Together(tuple(steps))
        self._look_ms, crowd.unlooked = (yield Now()) - began, 0
        now_ms: int = (yield StoreNow()) if listed else 0
        self._chosen = chosen(listed, tail, now_ms)
        return not self._is_open(tail) or self._turn.is_due(tail, self._chosen)

    def _is_open(self, tail: Timeline) -> bool:
        return self.is_posted and is_open(self._posted[-1], tail.version)

    def leave_to_others(self, tail: Timeline) -> Steps[None]:
        yield from self._turn.pause(tail, self._look_ms, 0)

    def with_others(self, tail: Timeline, event: Timeline, wall_ms: int) -> Steps[Timeline]:
        own = self._posted[-1] if self._is_open(tail) else None
        if self.intent is None or self.crowd is None or not (own or self._chosen):
            return event
        paths = events_in(self._chosen, self._turn.own)
        new = [path for path in paths if path not in self._known]
        contents = (yield Together(tuple(map(Read, new)))) if new else ()
        for path, data in zip(new, contents, strict=True):
            self._known[path] = decode(data, path, tail.table_id)
        others = [self._known[path] for path in paths if self._known[path] is not None]
        if own is not None:
            others.append(PostedEvent(own, self.intent))
        value, possible = combine(tail, wall_ms, others, unposted=[] if own else [self.intent])
        self.others = self.crowd.others = possible - 1
        return value

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

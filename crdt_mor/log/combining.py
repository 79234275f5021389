"""Combining: where many write, one version publishes the events of many writers.

    post        a writer that has lost two races puts its event among the posts, under a name for which nobody races
    turn        those that have posted take turns: one of them publishes all events that are posted with its own
    withdraw    a writer that sees the outcome of its event removes what it has posted

No writer leads, and none waits for another: a writer that has posted goes on trying to publish. A writer that is alone
does not post, and looks now and then for others, who would lose each race to it.

*Why no write begins twice.* A posted event is open for a few versions after the one that it names, as every post is,
and the version that publishes it notes its name for just as long (`model.posts`), also where its own writer does. So
neither an old list, nor a late second copy, nor one that nobody has removed makes a write begin again that has begun. A
version without that note must not land later: an event is not posted while a put of it may. An end that is taken late
finds nothing pending.
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
"""How many races an event has lost, at most, before its writer posts it."""

LOOK_EVERY: Final = 8
"""At how manieth event, one after another, of a process that is alone it looks whether others have posted."""

ABANDONED_MS: Final = 600_000
"""The age, by the store's clock, from which on a sweep takes a service for dead that has asked for a turn."""


@dataclass(slots=True)
class Crowd:
    """Whether other writers were in the way of a process's last event: then it posts the next one at once.

    others: how many others had a part in what it has last posted. is_asked: whether it has seen that somebody asks for
    a turn, see `log.giving_way`. has_met: whether it has seen events of others beside its last commit, which it takes
    along. unlooked: how many events of its own it has published since it has looked for others'. commit_ms: how long a
    commit of posts on a disk took lately; 0: it has made none.
    """

    is_crowded: bool = False
    others: int = 0
    is_asked: bool = False
    has_met: bool = False
    unlooked: int = 0
    commit_ms: int = 0

    def note_commit(self, took_ms: int) -> None:
        """Note how long a commit has taken; one that was slow by chance is soon forgotten."""
        self.commit_ms = (self.commit_ms + took_ms) // 2 if self.commit_ms else took_ms


@dataclass(slots=True)
class Posting:
    """One event that is being published, and what is known of those of others. Not thread-safe.

    intent: what its writer may post; None, or no `crowd`: it is published by its writer alone.
    attempt: how often its writer has put a version with it.
    others: how many events of others that version would have published.
    may_land: whether a version with it was put that may be the next one, or has landed.
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
        """Post the event, if it is time; returns whether to try now to publish it as what follows a version.

        It is posted anew once its window has passed, as nobody could take it any more. may_land: whether a version with
        it that was put after `tail` may land yet, which does not note the name that it would have from now on.
        """
        intent, crowd = self.intent, self.crowd
        if intent is None or crowd is None or tail.table_id is None or not knows_posts(tail.format):
            return True  # its first event gives a table its id; older releases know of no posts
        steps: list[List | Put] = [List(POSTS)]
        if not self._is_open(tail):
            crowd.unlooked += 1
            is_due = not may_land and (self.is_posted or crowd.is_crowded or self.attempt > LOST_MAX)
            data = encode_intent(intent, tail.table_id) if is_due else b""
            if 0 < len(data) <= BYTES_MAX:
                name = PostName(tail.version, intent.nonce[:NAME_CHARS])
                self._posted.append(name)  # or not, if the put is lost: that only costs the help of others
                self._turn = Turn(event_path(name), crowd.others + 1)
                steps.append(Put(event_path(name), data, durable=False, decides=True))
            elif crowd.unlooked < LOOK_EVERY:
                self._chosen = []  # an older version has judged them
                return True
        began: int = yield Now()
        listed, *_ = yield Together(tuple(steps))
        self._look_ms, crowd.unlooked = (yield Now()) - began, 0
        now_ms: int = (yield StoreNow()) if listed else 0
        self._chosen = chosen(listed, tail, now_ms)
        return not self._is_open(tail) or self._turn.is_due(tail, self._chosen)

    def _is_open(self, tail: Timeline) -> bool:
        """Whether what was posted may be taken after a version, as far as its age goes."""
        return self.is_posted and is_open(self._posted[-1], tail.version)

    def leave_to_others(self, tail: Timeline) -> Steps[None]:
        """Wait for the next look, where it is the turn of others."""
        yield from self._turn.pause(tail, self._look_ms, 0)

    def with_others(self, tail: Timeline, event: Timeline, wall_ms: int) -> Steps[Timeline]:
        """The next value: `event`, which is this event alone, or with it those that others have posted."""
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
        """After a race that was lost. With a post that others take along there is no hurry."""
        if not self.is_posted and self.attempt >= giving_way.LOST_MAX:
            yield from self._request.ask()
        if self.is_posted:
            yield from self.leave_to_others(tail)
        else:
            yield Pause(self.attempt - 1)

    def end(self, *, published: bool) -> Steps[None]:
        """The outcome is seen: note whether there was a crowd, and withdraw. published: by its writer itself."""
        if self.crowd is not None:
            was_helped = self.is_posted and (not published or self.attempt > 1)
            self.crowd.is_crowded = was_helped or self.others > 0
        yield from self._request.end()
        yield from self.withdraw()

    def withdraw(self) -> Steps[None]:
        """Remove what was posted, which nobody needs any more. What stays is a sweep's."""
        if self.is_posted:
            yield Together(tuple(Delete(event_path(name)) for name in self._posted))

"""Posts as objects: what writers put down for others to publish, and how a publisher finds and reads it.

    post      one object, put under a name that nobody else has: a whole small write, with its statement, author and
              token; or an event, the begin or the end of another write (`log.intents`)
    choose    a publisher lists the posts; those that are open, not taken yet and fresh go into its version
    turn      those that have posted rank themselves, by how long they have waited; the first one publishes, and the
              others look for the outcome

What a statement means is the affair of `write.posts`; here it is bytes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

from crdt_mor.log.intents import PostedEvent, decode_intent
from crdt_mor.log.paths import POSTS, is_event, post_in, version_path
from crdt_mor.log.steps import GetStat, List, Steps, Wait
from crdt_mor.model.authors import Author, author_json, author_of
from crdt_mor.model.numbers import is_whole
from crdt_mor.model.posts import Member, PostName, token_of
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import FORMAT, WRONG_SHAPE, knows_posts
from crdt_mor.store.protocol import Stat

BYTES_MAX: Final = 1 << 18
"""Bytes of a statement that is posted, at most."""

POSTS_MAX: Final = 256
"""Whole writes that one commit takes, at most, and events that one version publishes."""

GROUP_BYTES_MAX: Final = 8 << 20
"""Bytes of the whole writes that one commit takes, at most."""

EVENTS_BYTES_MAX: Final = 1 << 15
"""Bytes of the events that one version publishes, at most: it carries their completions itself."""

FRESH_MS: Final = 60_000
"""The age of a post, by the store's clock, up to which it is taken: rows of a dead process should not surface hours
later. No writer relies on it."""

NAME_CHARS: Final = 12
"""How long the name of a post is: every version carries many."""

LOOKS_A_RANK: Final = 3
"""After how many looks at one version the next one of those that have posted publishes: the ones before may be dead."""

GIVEN_MAX: Final = 16
"""How often a process looks, at most, while a process asks for a turn, before it publishes all the same."""

LOOKS_MAX: Final = 64
"""How often a process looks at one version, at most, that neither it nor another can follow, before it gives its post
up and goes the long way, which says why."""

GATHERING_LOOKS: Final = 2
"""How often a process looks, at most, before it publishes a group that is smaller than the last one, by an eighth."""

_LOOKS_A_COMMIT: Final = 4
"""The part of the time of a commit on a disk that is waited for there as in a bucket the time of a look."""

_GLANCES: Final = 8
"""How often a process on a disk sees, at most, whether its next look is worth while, before the time has come."""

_FIRST_WAIT: Final = 3
_NEXT_WAIT: Final = 1.2
"""How long a process waits before it looks again, first and later, in times that a look takes."""


@dataclass(frozen=True, slots=True)
class Post:
    """A whole small write. name: None as long as it is not posted. statement: of what kind it is.

    plain: whether its deletes have no ordering value. rows, deletes: how many keys it writes and deletes.
    content: its rows, as `write.posts` encodes them.
    """

    name: PostName | None
    author: Author
    token: tuple[str, int] | None
    statement: str
    plain: bool
    rows: int
    deletes: int
    content: bytes

    @property
    def member(self) -> Member:
        """The part of it in the commit that takes it."""
        return Member(self.author, self.rows, self.deletes, self.token, self.name)


def encode_post(post: Post, table_id: str | None) -> bytes:
    """The object of a post: a line of JSON, then its content."""
    head = {
        "format": FORMAT, "table_id": table_id, "author": author_json(post.author), "token": post.token,
        "statement": post.statement, "plain": post.plain, "rows": post.rows, "deletes": post.deletes,
        "crc32": crc32(post.content),
    }  # fmt: skip
    return json.dumps(head, separators=(",", ":")).encode() + b"\n" + post.content


def decode_post(data: bytes, path: str, table_id: str | None) -> Post | None:
    """The post in an object; None for what is not one of this table, as this release knows them: its owner will see."""
    line, _, content = data.partition(b"\n")
    try:
        head: dict[str, Any] = json.loads(line)
        name, author = post_in(path), author_of(head["author"])
        if head["format"] != FORMAT or head["table_id"] != table_id or head["crc32"] != crc32(content):
            return None
        if name is None or author is None:
            return None
        counts = (head["rows"], head["deletes"])
        if not all(map(is_whole, counts)) or not isinstance(head["statement"], str):
            return None
        token = token_of(head["token"]) if head["token"] is not None else None
        return Post(name, author, token, head["statement"], bool(head["plain"]), *counts, content)
    except WRONG_SHAPE:
        return None


def chosen(listed: Sequence[Stat], tail: Timeline, now_ms: int) -> list[Stat]:
    """Of the objects of posts those that the version after `tail` may take, in the order in which they are committed.

    now_ms: the store's clock. Those that were put at one time are in the order of their names. An older release may
    follow a value that it has written, and would forget which were taken: then there is none.
    """
    if not knows_posts(tail.format):
        return []
    fresh = [stat for stat in listed if abs(now_ms - stat.modified_ms) <= FRESH_MS]
    named = [(stat, post_in(stat.path)) for stat in fresh]
    open_ = [stat for stat, name in named if name is not None and tail.may_take(name)]
    return sorted(open_, key=lambda stat: (stat.modified_ms, stat.path))


@dataclass(slots=True)
class Turn:
    """Whose turn it is to publish, among those that have posted. own: the path of this process's post.

    members: how many wrote the last group that this process knows of: as long as fewer have posted again, the others
    are about to, and a commit of a few would make them wait for the next.
    looks: how often it has looked at the same version since they have. gathered: how often it has looked before that.
    given: how often it has left the turn to a service.
    """

    own: str
    members: int = 0
    looks: int = 0
    given: int = 0
    gathered: int = 0
    _version: int = -1
    _is_gathering: bool = False

    def is_due(self, tail: Timeline, posted: Sequence[Stat], *, is_asked: bool = False) -> bool:
        """Whether this process publishes what follows `tail`: its rank is low, or others have had the time to.

        is_asked: whether another process asks for a turn, which it gets for a while.
        """
        if tail.version != self._version:
            self._version, self.looks, self.gathered = tail.version, 0, 0
        elif self._is_gathering:
            self.gathered += 1
        else:
            self.looks += 1
        places = {stat.path: _place(tail, stat) for stat in posted}
        mine = places.pop(self.own, _LAST)
        rank = sum(place < mine for place in places.values())
        self._is_gathering = not self.looks and self.gathered < GATHERING_LOOKS and self._is_few(len(places) + 1)
        if is_asked and self.given < GIVEN_MAX:
            self.given += 1
            return False
        return rank <= self.looks // LOOKS_A_RANK and not self._is_gathering

    def pause(self, tail: Timeline, look_ms: int, commit_ms: int) -> Steps[None]:
        """Wait before the next look, in which the owners that are due may publish.

        look_ms: how long a look takes, of which a commit in a bucket is a few. commit_ms: how long a commit on a disk
        took lately, which is many looks. There it is seen at a glance what is worth one. 0: in a bucket, or not known.
        """
        times = _NEXT_WAIT if self.looks or self._is_gathering else _FIRST_WAIT
        wait_ms = max(1, look_ms, commit_ms / _LOOKS_A_COMMIT) * times
        parts = min(_GLANCES, int(wait_ms)) if commit_ms else 1
        for part in range(parts):
            if part and (yield from self._is_news(tail)):
                return
            yield Wait(wait_ms / parts)

    def _is_news(self, tail: Timeline) -> Steps[bool]:
        """Whether there is a reason to look before the time is over, as can be seen at a glance on a disk."""
        if self._is_gathering:
            listed: list[Stat] = yield List(POSTS)
            return not self._is_few(len(listed))
        following: Stat | None = yield GetStat(version_path(tail.version + 1))
        return following is not None

    def _is_few(self, posted: int) -> bool:
        """Whether others of the last group are about to post again."""
        return 8 * posted < 7 * self.members


_LAST: Final = (sys.maxsize, 0, "")
"""The place of a post that is not listed yet."""


def _place(tail: Timeline, stat: Stat) -> tuple[int, int, str]:
    """A place among those that have posted: the first one has waited longest, and may have begun to publish.

    Of those that were put at one time, it differs from version to version.
    """
    return stat.modified_ms, crc32(f"{tail.nonce} {stat.path}".encode()), stat.path


def writes_in(stats: Sequence[Stat], own: str) -> list[str]:
    """The objects of others' whole writes that a publisher reads: as many and as large as one commit takes."""
    return _within_bounds([stat for stat in stats if not is_event(stat.path)], own, GROUP_BYTES_MAX)


def events_in(stats: Sequence[Stat], own: str) -> list[str]:
    """The objects of others' events that a publisher reads: as many and as large as one version carries."""
    return _within_bounds([stat for stat in stats if is_event(stat.path)], own, EVENTS_BYTES_MAX)


def _within_bounds(stats: Sequence[Stat], own: str, bytes_max: int) -> list[str]:
    """own: the publisher's own, which counts and is not read."""
    paths, size = list[str](), 0
    for stat in stats:
        size += stat.size
        if len(paths) == POSTS_MAX - 1 or size > bytes_max:
            break
        if stat.path != own:
            paths.append(stat.path)
    return paths


def decode(data: bytes | None, path: str, table_id: str | None) -> Post | PostedEvent | None:
    """What is posted in an object; None for what is gone, or nothing of this table that this release knows."""
    if data is None:
        return None
    if not is_event(path):
        return decode_post(data, path, table_id)
    name, intent = post_in(path), decode_intent(data, table_id)
    return PostedEvent(name, intent) if name is not None and intent is not None else None

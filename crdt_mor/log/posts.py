"""Posts: objects put for other writers to publish, and how publishers find and read them.

post      put an object under a unique name: a small write, or the begin or end of another write (`log.intents`)
choose    a publisher lists the posts and takes all that are open, fresh and not taken
turn      writers with posts rank themselves by waiting time: the first publishes, the others look for the outcome
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
from crdt_mor.log.steps import GetStat, List, Read, Steps, Together, Wait
from crdt_mor.model.authors import Author, author_json, author_of
from crdt_mor.model.numbers import is_whole
from crdt_mor.model.posts import Member, PostName, token_of
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import FORMAT, WRONG_SHAPE, knows_posts
from crdt_mor.store.protocol import Stat

POSTS_MAX: Final = 256
"""Most writes in a commit, and most posted events in a version."""

GROUP_BYTES_MAX: Final = 8 << 20
"""Size limit of all writes in a commit."""

EVENTS_BYTES_MAX: Final = 1 << 15
"""Size limit of a version's posted events: the version carries their completions."""

FRESH_MS: Final = 60_000
"""Age up to which a post is taken, by the store's clock: a dead process's rows should not appear hours later."""

NAME_CHARS: Final = 12
"""Length of a post's name. Every version carries many."""

LOOKS_A_RANK: Final = 3
"""Looks at a version before the next writer in rank publishes: the earlier may be dead."""

GIVEN_MAX: Final = 16
"""Most turns that a writer leaves to processes that ask for one."""

LOOKS_MAX: Final = 64
"""Looks at a stuck version before a process goes the long way to get the error."""

GATHERING_LOOKS: Final = 2
"""Most looks to wait for a group smaller than the last by an eighth."""

_LOOKS_A_COMMIT: Final = 4
"""On a disk, wait for this part of a commit's time."""

_GLANCES: Final = 8
"""Most glances per wait on a disk."""

_FIRST_WAIT: Final = 3
_NEXT_WAIT: Final = 1.2
"""First and later waits, in multiples of a look's time."""


@dataclass(frozen=True, slots=True)
class Post:
    """A small write, with encoded rows (`write.posts`).

    name: None until posted. plain: deletes have no ordering value. rows, deletes: numbers of keys.
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
        return Member(self.author, self.rows, self.deletes, self.token, self.name)


def encode_post(post: Post, table_id: str | None) -> bytes:
    head = {
        "format": FORMAT, "table_id": table_id, "author": author_json(post.author), "token": post.token,
        "statement": post.statement, "plain": post.plain, "rows": post.rows, "deletes": post.deletes,
        "crc32": crc32(post.content),
    }  # fmt: skip
    return json.dumps(head, separators=(",", ":")).encode() + b"\n" + post.content


def decode_post(data: bytes, path: str, table_id: str | None) -> Post | None:
    """Decode a post; None for another table or format: its owner finds out."""
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
    if not knows_posts(tail.format):
        return []
    fresh = [stat for stat in listed if abs(now_ms - stat.modified_ms) <= FRESH_MS]
    named = [(stat, post_in(stat.path)) for stat in fresh]
    open_ = [stat for stat, name in named if name is not None and tail.may_take(name)]
    return sorted(open_, key=lambda stat: (stat.modified_ms, stat.path))


@dataclass(slots=True)
class Turn:
    """Decides which writer with a post publishes. own: the path of this process's post.

    members: size of the last group: a smaller commit would make the others wait. looks: since that many posted.
    given: turns left to processes that asked for one.
    """

    own: str
    members: int = 0
    looks: int = 0
    given: int = 0
    gathered: int = 0
    _version: int = -1
    _is_gathering: bool = False

    def is_due(self, tail: Timeline, posted: Sequence[Stat], *, is_asked: bool = False) -> bool:
        """Return True if this process publishes next: its post is the first, or the owners before it had time to
        publish. is_asked: another process asks for a turn.
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
        """Wait before the next look, so that owners with a turn can publish.

        look_ms: duration of a look. commit_ms: of a commit on a disk, or 0.
        """
        times = _NEXT_WAIT if self.looks or self._is_gathering else _FIRST_WAIT
        wait_ms = max(1, look_ms, commit_ms / _LOOKS_A_COMMIT) * times
        parts = min(_GLANCES, int(wait_ms)) if commit_ms else 1
        for part in range(parts):
            if part and (yield from self._is_news(tail)):
                return
            yield Wait(wait_ms / parts)

    def _is_news(self, tail: Timeline) -> Steps[bool]:
        if self._is_gathering:
            listed: list[Stat] = yield List(POSTS)
            return not self._is_few(len(listed))
        following: Stat | None = yield GetStat(version_path(tail.version + 1))
        return following is not None

    def _is_few(self, posted: int) -> bool:
        return 8 * posted < 7 * self.members


_LAST: Final = (sys.maxsize, 0, "")
"""The place of an unlisted post."""


def _place(tail: Timeline, stat: Stat) -> tuple[int, int, str]:
    """Return a post's sort key: the post that waited longest is first, and its owner may be publishing. Posts of equal
    age are ordered anew in each version.
    """
    return stat.modified_ms, crc32(f"{tail.nonce} {stat.path}".encode()), stat.path


def writes_in(stats: Sequence[Stat], own: str) -> list[str]:
    return _within_bounds([stat for stat in stats if not is_event(stat.path)], own, GROUP_BYTES_MAX)


def events_in(stats: Sequence[Stat], own: str) -> list[str]:
    return _within_bounds([stat for stat in stats if is_event(stat.path)], own, EVENTS_BYTES_MAX)


def _within_bounds(stats: Sequence[Stat], own: str, bytes_max: int) -> list[str]:
    """Return the first posts up to a number and total size. own: the publisher's post, which counts but is not read."""
    paths, size = list[str](), 0
    for stat in stats:
        size += stat.size
        if len(paths) == POSTS_MAX - 1 or size > bytes_max:
            break
        if stat.path != own:
            paths.append(stat.path)
    return paths


def read_all(paths: Sequence[str], table_id: str | None) -> Steps[list[Post | PostedEvent | None]]:
    contents = (yield Together(tuple(map(Read, paths)))) if paths else ()
    return decode_all(paths, contents, table_id)


def decode_all(
    paths: Sequence[str], contents: Sequence[bytes | None], table_id: str | None
) -> list[Post | PostedEvent | None]:
    return [decode(data, path, table_id) for path, data in zip(paths, contents, strict=True)]


def decode(data: bytes | None, path: str, table_id: str | None) -> Post | PostedEvent | None:
    if data is None:
        return None
    if not is_event(path):
        return decode_post(data, path, table_id)
    name, intent = post_in(path), decode_intent(data, table_id)
    return PostedEvent(name, intent) if name is not None and intent is not None else None

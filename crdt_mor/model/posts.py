"""Posts: small writes and events that writers leave for the next publisher.

A post names the version at which it was made, and is *open* for the next `WINDOW` versions. Only these may take it. A
value keeps the names of taken or voided posts for the same time. So a post is committed at most once, however late a
second copy arrives. No listing, clock or deletion decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from crdt_mor.model.authors import Author, author_json, author_of
from crdt_mor.model.numbers import is_whole

WINDOW: Final = 8
"""The number of versions that may take a post."""


@dataclass(frozen=True, slots=True)
class PostName:
    """A post's version, and its name, unique in this version."""

    version: int
    name: str


Noted = tuple[tuple[int, tuple[str, ...]], ...]
"""Names of posts by version, oldest first."""


@dataclass(frozen=True, slots=True)
class Member:
    """A writer's part of a commit. post: None for the publisher's own write."""

    author: Author
    rows: int
    deletes: int
    token: tuple[str, int] | None = None
    post: PostName | None = None


def is_open(post: PostName, version: int) -> bool:
    """Return True if the successor of `version` is in the post's window."""
    return post.version <= version < post.version + WINDOW


@dataclass(frozen=True, slots=True)
class Decided:
    _names: Mapping[int, frozenset[str]]

    @classmethod
    def of(cls, noted: Noted) -> Decided:
        return cls({version: frozenset(names) for version, names in noted})

    def __contains__(self, post: PostName) -> bool:
        return post.name in self._names.get(post.version, ())

    def includes(self, other: Decided) -> bool:
        return all(names <= self._names.get(version, frozenset()) for version, names in other._names.items())


def noting(noted: Noted, posts: Iterable[PostName]) -> Noted:
    names = {version: list(some) for version, some in noted}
    for post in posts:
        names.setdefault(post.version, []).append(post.name)
    return tuple((version, tuple(names[version])) for version in sorted(names))


def still_kept(noted: Noted, version: int) -> Noted:
    """Return the posts that a version after `version` could take."""
    return tuple((made_at, names) for made_at, names in noted if version < made_at + WINDOW)


# --- JSON -------------------------------------------------------------------------------------------------------------


def noted_json(noted: Noted) -> list[object]:
    return [[version, " ".join(names)] for version, names in noted]


def noted_of(entry: Any) -> Noted:
    found = tuple((version, tuple(names.split(" "))) for version, names in entry)
    if not all(is_whole(version) for version, _ in found):
        raise TypeError(f"posts={entry!r}")
    return found


def members_json(members: Iterable[Member]) -> list[object]:
    """Return `[authors, members]`. Members refer to their author by index."""
    authors: dict[Author, int] = {}
    found = []
    for m in members:
        post = [m.post.version, m.post.name] if m.post else None
        place = authors.setdefault(m.author, len(authors))
        found.append([place, m.rows, m.deletes, post, *([list(m.token)] if m.token else [])])
    return [[author_json(author) for author in authors], found]


def members_of(entry: Any) -> tuple[Member, ...]:
    authors, found = [author_of(author) for author in entry[0]], []
    for place, rows, deletes, post, *token in entry[1]:
        author = authors[place]
        if author is None or not is_whole(rows) or not is_whole(deletes):
            raise TypeError(f"members={entry!r}")
        member = Member(author, rows, deletes, token_of(token[0]) if token else None, _post_of(post))
        found.append(member)
    return tuple(found)


def _post_of(entry: Any) -> PostName | None:
    if entry is None:
        return None
    version, name = entry
    if not is_whole(version) or not isinstance(name, str):
        raise TypeError(f"post={entry!r}")
    return PostName(version, name)


def token_of(entry: Any) -> tuple[str, int]:
    application, number = entry
    if not isinstance(application, str) or not is_whole(number):
        raise TypeError(f"token={entry!r}")
    return application, number

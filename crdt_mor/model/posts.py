"""Posts: small writes and events that their writers have put down for the next publisher, and what becomes of them.

A post names the version that it was made at, and is *open* for the next `WINDOW` versions: any of them may take it, and
none after them. A value keeps the names of the posts that were taken or voided for just as long. So a post is committed
once at most, however late a second copy of it lands, and no listing, clock or deletion decides anything.

A commit that took posts has several *members*: each is one writer's write, with its author, token and rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from crdt_mor.model.authors import Author, author_json, author_of
from crdt_mor.model.numbers import is_whole

WINDOW: Final = 8
"""How many versions may take a post: the first one after that at which it was made, and those that follow."""


@dataclass(frozen=True, slots=True)
class PostName:
    """The name of a post, and the version at which it was made. Names differ among the posts of one version."""

    version: int
    name: str


Noted = tuple[tuple[int, tuple[str, ...]], ...]
"""Names of posts by the version at which they were made, the oldest first."""


@dataclass(frozen=True, slots=True)
class Member:
    """One writer's part of a commit of several. post: the post that it was taken from; None: the publisher's own."""

    author: Author
    rows: int
    deletes: int
    token: tuple[str, int] | None = None
    post: PostName | None = None


def is_open(post: PostName, version: int) -> bool:
    """Whether the version that follows `version` may take a post, as far as its age goes."""
    return post.version <= version < post.version + WINDOW


@dataclass(frozen=True, slots=True)
class Decided:
    """The posts that were taken or voided, as a value has noted them. A writer asks it of every post with each look."""

    _names: Mapping[int, frozenset[str]]

    @classmethod
    def of(cls, noted: Noted) -> Decided:
        return cls({version: frozenset(names) for version, names in noted})

    def __contains__(self, post: PostName) -> bool:
        return post.name in self._names.get(post.version, ())

    def includes(self, other: Decided) -> bool:
        """Whether all posts of the other ones are among these."""
        return all(names <= self._names.get(version, frozenset()) for version, names in other._names.items())


def noting(noted: Noted, posts: Iterable[PostName]) -> Noted:
    """The names that are noted once these posts were taken or voided, too."""
    names = {version: list(some) for version, some in noted}
    for post in posts:
        names.setdefault(post.version, []).append(post.name)
    return tuple((version, tuple(names[version])) for version in sorted(names))


def still_kept(noted: Noted, version: int) -> Noted:
    """Those of posts that a version after `version` could still take."""
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
    """`[authors, members]`: each author once, and of each member its author's place there, its counts and its post."""
    authors: dict[Author, int] = {}
    found = []
    for m in members:
        post = [m.post.version, m.post.name] if m.post else None
        place = authors.setdefault(m.author, len(authors))
        found.append([place, m.rows, m.deletes, post, *([list(m.token)] if m.token else [])])
    return [[author_json(author) for author in authors], found]


def members_of(entry: Any) -> tuple[Member, ...]:
    """The members of a completion; raises one of `WRONG_SHAPE` for another shape."""
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
    """The token in a document."""
    application, number = entry
    if not isinstance(application, str) or not is_whole(number):
        raise TypeError(f"token={entry!r}")
    return application, number

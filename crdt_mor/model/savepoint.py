"""Savepoints: names for what a table showed at a moment, which stays exact for as long as the name is kept.

    table.savepoint("before-backfill")      all that was committed by now has a name
    table.scan(as_of="before-backfill")     exact, however far the history that is kept has moved on
    table.maintenance.restore(to="before-backfill")

The timeline's value holds them. A clean keeps the files that such a view shows, the value keeps the commits, and
archiving stops before it, so that the table can always be restored to it. A name begins with a letter or `_`, as no
version, moment or checkpoint does, so that a text names one thing only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from crdt_mor.errors import InvalidInputError
from crdt_mor.model.authors import Author, author_json, author_of
from crdt_mor.model.instant import EPOCH, InstantTime

SAVEPOINTS_MAX: Final = 100
"""How many savepoints a table has at most: each version of the timeline carries them."""

COMMENT_BYTES_MAX: Final = 1024
"""How long the comment of a savepoint may be, in UTF-8."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}\Z")
_TAKEN: Final = ("now",)


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A name for what a table showed at a moment.

    at: what was completed by this time is what it shows. saved: when it was made, by the table's clock.
    marks: the requested time of the commit that Hudi's savepoint marks; EPOCH where Hudi is not told, as the table had
    no commit, or has another savepoint at the same one.
    version, nonce, author: of the event that made it.
    """

    name: str
    at: InstantTime
    saved: InstantTime
    marks: InstantTime
    version: int
    nonce: str
    comment: str = ""
    author: Author | None = None

    @property
    def told(self) -> bool:
        """Whether Hudi's readers know of it."""
        return self.marks != EPOCH


def is_savepoint_name(text: object) -> bool:
    """Whether a text may be the name of a savepoint."""
    return isinstance(text, str) and text not in _TAKEN and _NAME.match(text) is not None


def checked_name(name: object) -> str:
    """The name of a savepoint; raises `InvalidInputError` for what can be none."""
    if not isinstance(name, str) or not is_savepoint_name(name):
        raise InvalidInputError(
            "the name of a savepoint begins with a letter or _ and goes on with letters, digits, '_', '-' and '.', at "
            f"most 128 characters; 'now' means something else. name={name!r}"
        )
    return name


def checked_comment(comment: object) -> str:
    """The comment of a savepoint, "" for None; raises `InvalidInputError` for what is no text, or too long."""
    if comment is None:
        return ""
    try:
        size = len(comment.encode()) if isinstance(comment, str) else -1
    except UnicodeEncodeError:
        size = -1
    if not isinstance(comment, str) or not 0 <= size <= COMMENT_BYTES_MAX:
        raise InvalidInputError(
            f"the comment of a savepoint is a text of at most {COMMENT_BYTES_MAX} bytes. comment={str(comment)[:80]!r}"
        )
    return comment


def savepoint_json(s: Savepoint) -> list[object]:
    """The list that stands for a savepoint in a version of the timeline."""
    return [s.name, s.at, s.saved, s.marks, s.version, s.nonce, s.comment, author_json(s.author)]


def savepoint_of(entry: list[Any]) -> Savepoint:
    """The savepoint that a list of a version stands for."""
    name, at, saved, marks, version, nonce, comment, author = entry
    return Savepoint(name, at, saved, marks, version, nonce, comment, author_of(author))

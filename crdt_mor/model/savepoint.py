"""Savepoints: names for moments of a table, kept readable as long as the name exists.

    table.maintenance.savepoint("before-backfill")      names all commits until now
    table.scan(as_of="before-backfill")                 exact, whatever the retention
    table.maintenance.restore(to="before-backfill")

Clean keeps a savepoint's files, the value keeps its commits, and archiving stops before it, so a restore is always
possible.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from crdt_mor.errors import InvalidInputError
from crdt_mor.model.authors import Author, author_json, author_of
from crdt_mor.model.instant import EPOCH, InstantTime

SAVEPOINTS_MAX: Final = 100
"""Per table. Each version contains them."""

COMMENT_BYTES_MAX: Final = 1024
"""In UTF-8."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}\Z")
"""Versions and moments begin with a digit, and a checkpoint contains `:`, so a text names a single thing."""

_TAKEN: Final = ("now",)


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A name for a moment of a table: it shows the commits completed by `at`.

    marks: the requested time of the commit in Hudi's savepoint. EPOCH: the table had no commit, or the commit has
    another savepoint.
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
    def is_in_hudi(self) -> bool:
        """True if Hudi's readers know the savepoint."""
        return self.marks != EPOCH


def is_savepoint_name(text: object) -> bool:
    return isinstance(text, str) and text not in _TAKEN and _NAME.match(text) is not None


def checked_name(name: object) -> str:
    if not isinstance(name, str) or not is_savepoint_name(name):
        raise InvalidInputError(
            "a savepoint name begins with a letter or _, followed by letters, digits, '_', '-' and '.', at most 128 "
            f"characters, and is not 'now'. name={name!r}"
        )
    return name


def checked_comment(comment: object) -> str:
    if comment is None:
        return ""
    try:
        size = len(comment.encode()) if isinstance(comment, str) else -1
    except UnicodeEncodeError:
        size = -1
    if not isinstance(comment, str) or not 0 <= size <= COMMENT_BYTES_MAX:
        raise InvalidInputError(
            f"a savepoint comment must be a string of at most {COMMENT_BYTES_MAX} bytes. comment={str(comment)[:80]!r}"
        )
    return comment


def savepoint_json(s: Savepoint) -> list[object]:
    return [s.name, s.at, s.saved, s.marks, s.version, s.nonce, s.comment, author_json(s.author)]


def savepoint_of(entry: list[Any]) -> Savepoint:
    name, at, saved, marks, version, nonce, comment, author = entry
    return Savepoint(name, at, saved, marks, version, nonce, comment, author_of(author))

"""The author of a write or a commit, and what the user says of it.

A commit keeps them for its life: `table.history()` shows them, and of a write that is still pending they name the
process to look at. Nothing is decided by them.

    table.upsert(frame, commit_info={"message": "prices of May", "ticket": "OPS-17"})

Two keys are known: `message` says what the commit is for, `application` which job it is of. Where the user does not
say it, the application is that of the write's token, and else the program's name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from crdt_mor.errors import InvalidInputError
from crdt_mor.model.numbers import is_whole

INFO_BYTES_MAX: Final = 4096
"""How long what a user says of a commit may be, as JSON in UTF-8. Every later version carries it for a while."""

APPLICATION: Final = "application"
MESSAGE: Final = "message"

Info = tuple[tuple[str, str], ...]
"""What a user says of a commit, as pairs of a key and a value."""


@dataclass(frozen=True, slots=True)
class Author:
    """A process that began a write or made a commit. `info`: what the user says of it, `commit_info`."""

    application: str
    host: str
    pid: int
    info: Info = ()

    @property
    def message(self) -> str | None:
        return dict(self.info).get(MESSAGE)


def columns_of(author: Author | None) -> dict[str, object]:
    """An author as a row's columns in what users look at: `application`, `host`, `pid`, `message` and `commit_info`.

    None of them where nobody is known.
    """
    if author is None:
        return {}
    return {
        "application": author.application,
        "host": author.host,
        "pid": author.pid,
        "message": author.message,
        "commit_info": author.info,
    }


def check_info(commit_info: object) -> Info:
    """What a user says of a commit, checked; raises `InvalidInputError` for what is not texts by text, or too long."""
    if commit_info is None:
        return ()
    if not isinstance(commit_info, Mapping):
        raise InvalidInputError(
            'commit_info is a mapping of texts, like {"message": "prices of May", "ticket": "OPS-17"}. '
            f"got={type(commit_info).__name__}"
        )
    for key, value in commit_info.items():
        if not isinstance(key, str) or not isinstance(value, str) or not key:
            raise InvalidInputError(
                "the keys and values of commit_info are texts, and no key is empty: write str(...) around the value. "
                f"key={key!r} value={value!r}"
            )
    try:
        size = len(json.dumps(dict(commit_info), ensure_ascii=False, separators=(",", ":")).encode())
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"commit_info has a text that is not Unicode: {error}. keys={list(commit_info)}"
        ) from error
    if size > INFO_BYTES_MAX:
        raise InvalidInputError(
            "commit_info is kept with the commit, so it is short: put what is long elsewhere, and its address here. "
            f"bytes={size} bytes_max={INFO_BYTES_MAX}"
        )
    return tuple(commit_info.items())


def application_of(info: Info, token: tuple[str, int] | None) -> str:
    """The application that the user names, in so many words or by a token; "" where neither does."""
    return dict(info).get(APPLICATION) or (token[0] if token else "")


def author_json(author: Author | None) -> list[object] | None:
    """`[application, host, pid]`, and behind them what the user says, as an object, where he says something."""
    if author is None:
        return None
    return [author.application, author.host, author.pid, *([dict(author.info)] if author.info else [])]


def author_of(entry: Any) -> Author | None:
    """The author in a version or a segment; raises TypeError or ValueError for what is none."""
    if entry is None:
        return None
    if len(entry) == _PLAIN:
        return _plain_author(*entry)
    return _author(*entry)


_PLAIN: Final = 3


@lru_cache(maxsize=1024)
def _plain_author(application: Any, host: Any, pid: Any) -> Author:
    """An author of which the user says nothing; a version names few, and each of them often."""
    return _author(application, host, pid)


def _author(application: Any, host: Any, pid: Any, *said: Any) -> Author:
    info = tuple(said[0].items()) if said else ()
    texts = (application, host, *(text for pair in info for text in pair))
    if len(said) > 1 or not is_whole(pid) or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"author={[application, host, pid, *said]!r}")
    for text in texts:
        text.encode()  # JSON can hold halves of characters, which nothing prints
    return Author(application, host, pid, info)

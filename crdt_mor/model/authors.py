"""The author of a write or commit, and the user's `commit_info`.

    table.upsert(frame, commit_info={"message": "prices of May", "ticket": "OPS-17"})

Known keys are `message` and `application`. The default application is the token's, then the program's name.
No decision of the protocol depends on an author.
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
"""As JSON in UTF-8. Later versions contain it for a while."""

APPLICATION: Final = "application"
MESSAGE: Final = "message"

Info = tuple[tuple[str, str], ...]
"""(key, value) pairs of `commit_info`."""


@dataclass(frozen=True, slots=True)
class Author:
    application: str
    host: str
    pid: int
    info: Info = ()

    @property
    def message(self) -> str | None:
        return dict(self.info).get(MESSAGE)


def columns_of(author: Author | None) -> dict[str, object]:
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
    if commit_info is None:
        return ()
    if not isinstance(commit_info, Mapping):
        raise InvalidInputError(
            'commit_info must map strings to strings, like {"message": "prices of May", "ticket": "OPS-17"}. '
            f"got={type(commit_info).__name__}"
        )
    for key, value in commit_info.items():
        if not isinstance(key, str) or not isinstance(value, str) or not key:
            raise InvalidInputError(
                "keys and values of commit_info must be strings, and keys not empty: convert the value with str(...). "
                f"key={key!r} value={value!r}"
            )
    try:
        size = len(json.dumps(dict(commit_info), ensure_ascii=False, separators=(",", ":")).encode())
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"commit_info contains an invalid Unicode string: {error}. keys={list(commit_info)}"
        ) from error
    if size > INFO_BYTES_MAX:
        raise InvalidInputError(
            "commit_info is too long for a commit: store the text elsewhere and pass its address. "
            f"bytes={size} bytes_max={INFO_BYTES_MAX}"
        )
    return tuple(commit_info.items())


def application_of(info: Info, token: tuple[str, int] | None) -> str:
    return dict(info).get(APPLICATION) or (token[0] if token else "")


def author_json(author: Author | None) -> list[object] | None:
    if author is None:
        return None
    return [author.application, author.host, author.pid, *([dict(author.info)] if author.info else [])]


def author_of(entry: Any) -> Author | None:
    if entry is None:
        return None
    if len(entry) == _PLAIN:
        return _plain_author(*entry)
    return _author(*entry)


_PLAIN: Final = 3


@lru_cache(maxsize=1024)
def _plain_author(application: Any, host: Any, pid: Any) -> Author:
    """Cached, since versions repeat their authors."""
    return _author(application, host, pid)


def _author(application: Any, host: Any, pid: Any, *said: Any) -> Author:
    info = tuple(said[0].items()) if said else ()
    texts = (application, host, *(text for pair in info for text in pair))
    if len(said) > 1 or not is_whole(pid) or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"author={[application, host, pid, *said]!r}")
    for text in texts:
        text.encode()  # raises for lone surrogates, which JSON allows
    return Author(application, host, pid, info)

"""Translate failures after a deciding put: the event may be visible, whatever the store raises.

before      the store's own error, which may promise that nothing was published
after       `CommitUnknownError`, or the commit
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from crdt_mor.errors import (
    CommitUnknownError,
    CrdtMorError,
    RestoreUnfinishedError,
    TableExistsError,
    TableNotFoundError,
    TableReplacedError,
    WriterExpiredError,
)
from crdt_mor.store.protocol import Store

_VERDICTS: Final = (
    CommitUnknownError, RestoreUnfinishedError, TableExistsError, TableNotFoundError, TableReplacedError,
    WriterExpiredError,
)  # fmt: skip
"""Errors of the protocols themselves."""

_PROMISE: Final = re.compile(r"[;.:]? ?nothing was (?:published|put)\b", re.IGNORECASE)
"""A store's promise, true only before the decision."""


@dataclass(slots=True)
class Decision:
    is_made: bool


@contextmanager
def deciding(*, is_made: bool = False) -> Iterator[Decision]:
    """Raise `CommitUnknownError` if the block fails once the decision `is_made`."""
    decision = Decision(is_made)
    try:
        yield decision
    except Exception as error:
        if isinstance(error, _VERDICTS) or not decision.is_made:
            raise
        raise unknown_outcome(error) from error


def put_deciding(store: Store, path: str, content: bytes) -> bool:
    """Put a deciding object outside a protocol. After an unexpected error, the outcome is unknown."""
    try:
        return store.put(path, content)
    except CrdtMorError:
        raise
    except Exception as error:
        raise unknown_outcome(error) from error


def unknown_outcome(cause: Exception) -> CommitUnknownError:
    return CommitUnknownError(
        "the store failed while publishing, so the change may be visible already. Check the table before you write "
        f"again; a write with a token may be repeated. cause={without_promise(cause)}"
    )


def stopped_outcome(cause: CrdtMorError) -> CommitUnknownError:
    return CommitUnknownError(
        "the write was stopped, but another process may have published it. Check the table before you write again; "
        f"a write with a token may be repeated. cause={without_promise(cause)}"
    )


def without_promise(cause: Exception) -> str:
    """Return the error text without its promise, which does not hold for the whole write."""
    return _PROMISE.sub("", str(cause))

"""What a failure means after a put that decides: the event may be visible, whatever class the store raises.

    before      the store's own error, which may say that nothing was published
    after       `CommitUnknownError`, or the commit

The runner of protocols (`log.steps.run`) notes the put, and hands later failures of the store to the protocol as
`StorageUnavailableError`. The protocol says here what they mean.
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
    TableExistsError,
    TableNotFoundError,
    TableReplacedError,
    WriterExpiredError,
)
from crdt_mor.store.protocol import Store

_VERDICTS: Final = (
    CommitUnknownError, TableExistsError, TableNotFoundError, TableReplacedError, WriterExpiredError,
)  # fmt: skip
"""What a protocol raises itself, and knows. All else comes of the store, or of its bytes."""

_PROMISE: Final = re.compile(r"[;.:]? ?nothing was (?:published|put)\b", re.IGNORECASE)
"""What an error of a store says as long as nothing was decided."""


@dataclass(slots=True)
class Decision:
    """Whether an event has been decided, or may have been."""

    is_made: bool


@contextmanager
def deciding(*, is_made: bool = False) -> Iterator[Decision]:
    """Raise `CommitUnknownError` where the block fails once the decision `is_made`."""
    decision = Decision(is_made)
    try:
        yield decision
    except Exception as error:
        if isinstance(error, _VERDICTS) or not decision.is_made:
            raise
        raise unknown_outcome(error) from error


def put_deciding(store: Store, path: str, content: bytes) -> bool:
    """Put an object that decides, outside of a protocol. An error of an unknown class says nothing of the object."""
    try:
        return store.put(path, content)
    except CrdtMorError:
        raise
    except Exception as error:
        raise unknown_outcome(error) from error


def unknown_outcome(cause: Exception) -> CommitUnknownError:
    """What a failure of the store means once something may have been published."""
    return CommitUnknownError(
        "the store failed after it had been asked to publish, so this may be visible already: look at the table before "
        f"writing again, or write with a token, which may be repeated. cause={_said(cause)}"
    )


def stopped_outcome(cause: CrdtMorError) -> CommitUnknownError:
    """What an error means once an event has been posted, or a put of it may land."""
    return CommitUnknownError(
        "this was stopped, and another process may have published it meanwhile: look at the table before writing "
        f"again, or write with a token, which may be repeated. cause={_said(cause)}"
    )


def _said(cause: Exception) -> str:
    """The text of an error, without the promise that does not hold for the whole write."""
    return _PROMISE.sub("", str(cause))

"""Objects that a store cannot read: a bad sector, a file of another user, a folder in place of a file.

If the store can read no object at all, its error is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from crdt_mor.errors import FormatError, StorageUnavailableError
from crdt_mor.events.session import Session
from crdt_mor.ground.threads import REQUESTS, groups_in_threads
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.services.verify_findings import UnreadableObjectError
from crdt_mor.store.absences import ContradictedError, surely

S = TypeVar("S")
T = TypeVar("T")


def ahead(
    session: Session,
    ask: Callable[[S], T],
    items: Iterable[S],
    at_once: int = REQUESTS,
    size: Callable[[S], int] = lambda _: 0,
) -> Iterator[T]:
    """Yield `ask` of each item, in order; in a bucket, several at once. size: bytes of files that an item decodes."""
    if not session.is_far:
        return map(ask, items)
    return groups_in_threads(ask, items, size, session.memory_limit, at_once)


@contextmanager
def as_unreadable(session: Session) -> Iterator[None]:
    try:
        yield
    except ContradictedError:
        raise
    except StorageUnavailableError as error:
        session.store.read(PROPERTIES)
        raise UnreadableObjectError(f"the store cannot read this object, but can read others: {error}") from error


def read_object(session: Session, path: str) -> bytes | None:
    """Return an object, or None if absent. Raise `UnreadableObjectError` if two reads fail."""
    return read_decoded(session, path, lambda data, _: data)


def read_decoded(session: Session, path: str, decode: Callable[[bytes, str], T]) -> T | None:
    """Return an object's value, or None if absent."""

    def ask() -> T | None:
        data = surely(session.store, path, session.store.read)
        return None if data is None else decode(data, path)

    return twice(session, ask)


def twice(session: Session, ask: Callable[[], T]) -> T:
    """Call `ask`, and once more if the store fails or returns damaged bytes: a temporary failure is no finding."""
    try:
        return ask()
    except ContradictedError:
        raise
    except (FormatError, StorageUnavailableError):
        with as_unreadable(session):
            return ask()

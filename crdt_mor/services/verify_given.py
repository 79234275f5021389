"""Objects that a store does not give: a bad sector of a disk, a file of another user, a folder where a file should be.

A store that gives nothing at all, such as a bucket that is out of reach, says nothing of the table: it is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from crdt_mor.errors import StorageUnavailableError
from crdt_mor.events.session import Session
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.services.verify_findings import NotGivenError
from crdt_mor.store.absences import ContradictedError, surely

T = TypeVar("T")


@contextmanager
def as_not_given(session: Session) -> Iterator[None]:
    """An object that the store does not give is a `NotGivenError`, as long as the store gives another one."""
    try:
        yield
    except ContradictedError:
        raise
    except StorageUnavailableError as error:
        session.store.read(PROPERTIES)
        raise NotGivenError(f"the store does not give this object, though it gives others: {error}") from error


def given(session: Session, path: str) -> bytes | None:
    """An object, None if there is none; `NotGivenError` if the store does not give it, asked twice."""
    return twice(session, lambda: surely(session.store, path, session.store.read))


def twice(session: Session, ask: Callable[[], T]) -> T:
    """The outcome of `ask`, which is repeated where the store fails: a failure that passes is no finding."""
    try:
        return ask()
    except ContradictedError:
        raise
    except StorageUnavailableError:
        with as_not_given(session):
            return ask()

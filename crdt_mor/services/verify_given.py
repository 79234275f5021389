"""Objects that a store does not give: a bad sector of a disk, a file of another user, a folder where a file should be.

A store that gives nothing at all, such as a bucket that is out of reach, says nothing of the table: it is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from crdt_mor.errors import FormatError, StorageUnavailableError
from crdt_mor.events.session import Session
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.store.absences import ContradictedError, surely


@contextmanager
def as_damage(session: Session) -> Iterator[None]:
    """An object that the store does not give is damaged, `FormatError`, as long as the store gives another one."""
    try:
        yield
    except ContradictedError:
        raise
    except StorageUnavailableError as error:
        session.store.read(PROPERTIES)
        raise FormatError(f"the store does not give this object, though it gives others: {error}") from error


def given(session: Session, path: str) -> bytes | None:
    """An object, None if there is none; `FormatError` if the store does not give it."""
    with as_damage(session):
        return surely(session.store, path, session.store.read)

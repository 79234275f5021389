"""What the simulator asks of a table that its users need not: the session behind it, and the newest value."""

from __future__ import annotations

from typing import Protocol

from crdt_mor.events.session import Session
from crdt_mor.model.timeline import Timeline


class Seated(Protocol):
    """A handle that works through a session, as a table does."""

    _session: Session


def session_of(table: Seated) -> Session:
    """The session through which a table does its work."""
    return table._session  # noqa: SLF001  # the one place in which the simulator reaches behind a table


def tail_of(table: Seated) -> Timeline:
    """The newest value of a table's timeline, asked of the store."""
    return session_of(table).tail()


def hudi_folder_of(table: Seated) -> str:
    """The folder of Hudi's timeline in a table's store."""
    return session_of(table).publisher.projector.folder

"""What tests ask of a table that its users need not: the session behind it, and what the session sees of the timeline.

No other module of the tests reaches for a table's private session, so that the engine is free to keep it elsewhere.
"""

from __future__ import annotations

from typing import Protocol

from crdt_mor.events import sweep
from crdt_mor.events.session import Session
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion
from crdt_mor.store.protocol import Store


class Seated(Protocol):
    """A handle that works through a session, as a table does."""

    _session: Session


def session_of(table: Seated) -> Session:
    """The session through which a table does its work."""
    return table._session


def store_of(table: Seated) -> Store:
    """The store in which a table's objects are."""
    return session_of(table).store


def tail_of(table: Seated) -> Timeline:
    """The newest value of a table's timeline."""
    return session_of(table).tail()


def completions_of(table: Seated, value: Timeline | None = None) -> list[Completion]:
    """All completions of a value of a table's timeline, of its newest one by default, those of segments included."""
    return session_of(table).views.completions(tail_of(table) if value is None else value)


def hudi_folder_of(table: Seated) -> str:
    """The folder of Hudi's timeline in a table's store."""
    return session_of(table).publisher.projector.folder


def run_sweep(table: Seated, value: Timeline | None = None) -> Timeline:
    """A sweep by a value of a table's timeline, by its newest one by default; returns the value after it."""
    session = session_of(table)
    return session.run(sweep.sweep(session.publisher, session.tail() if value is None else value))

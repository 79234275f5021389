"""Internal access of the simulator to a table: its session and its newest value."""

from __future__ import annotations

from typing import Protocol

from crdt_mor import Scan
from crdt_mor.events.session import Session
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline import Timeline


class Seated(Protocol):
    _session: Session


def session_of(table: Seated) -> Session:
    return table._session  # noqa: SLF001  # the only access behind a table


def tail_of(table: Seated) -> Timeline:
    return session_of(table).tail()


def expiry_time_of(scan: Scan) -> InstantTime | None:
    return scan._snapshot.expiry_time  # noqa: SLF001


def look_for_hudi(table: Seated) -> None:
    """Find Hudi's new commits now; an open table looks for them once a minute."""
    session_of(table).views.sealed(look=True)


def hudi_folder_of(table: Seated) -> str:
    return session_of(table).publisher.projector.folder

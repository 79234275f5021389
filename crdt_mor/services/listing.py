"""Find the tables below a place: folders with `.hoodie`. Each is described by its newest version."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, Protocol

from crdt_mor.errors import CrdtMorError, StorageUnavailableError, TableNotFoundError
from crdt_mor.events.session import Session
from crdt_mor.ground.clock import Environment
from crdt_mor.ground.threads import REQUESTS, in_threads
from crdt_mor.model.instant import EPOCH, to_datetime
from crdt_mor.model.names import join_path
from crdt_mor.model.slices import Slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.services.metrics import last_commit
from crdt_mor.store.paths import TEMP_FOLDER
from crdt_mor.store.protocol import Store

FOLDERS_MAX: Final = 2_000
"""Most folders to list: each costs a request in a bucket."""


@dataclass(frozen=True, slots=True)
class ListedTable:
    """A table below a place, or a folder that cannot be listed.

    Attributes:
        state: "ready" for writes; "handed over" to Hudi's writers; "moving", "moved" or "arriving" by a migration;
            "incomplete" after an interrupted creation, copy or drop; "unreadable".
        committed: UTC time of the newest commit of rows; of a base file if history dropped it.
        files, log_files, bytes: data files of the newest snapshot.
        reason: why it is incomplete or unreadable.
    """

    uri: str
    state: Literal["ready", "handed over", "moving", "moved", "arriving", "incomplete", "unreadable"]
    version: int | None = None
    committed: datetime | None = None
    files: int = 0
    log_files: int = 0
    bytes: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TableList:
    """The result of `list_tables`.

    Attributes:
        folders: number of listed folders.
        left_off: number of folders beyond the limit, which may contain more tables.
    """

    tables: tuple[ListedTable, ...]
    folders: int
    left_off: int


class Place(Protocol):
    """A store with folders."""

    def folders(self, folder: str) -> list[str]: ...


def list_below(
    place: Place,
    uri: str,
    open_at: Callable[[str], Store],
    environment: Environment,
    known: Iterable[ListedTable] = (),
) -> TableList:
    """List tables. known: as in `list_tables`."""
    earlier = {one.uri: one for one in known}
    found: list[ListedTable] = []
    level, listed = [""], 0
    while level and listed < FOLDERS_MAX:
        asked, level = level[: FOLDERS_MAX - listed], level[FOLDERS_MAX - listed :]
        listed += len(asked)
        found += [earlier[_joined(uri, one)] for one in asked if _joined(uri, one) in earlier]
        asked = [one for one in asked if _joined(uri, one) not in earlier]
        folders = dict(zip(asked, in_threads(lambda one: _listed(place, one), asked, REQUESTS), strict=True))
        marked = [
            folder
            for folder, inner in folders.items()
            if not isinstance(inner, str) and join_path(folder, ".hoodie") in inner
        ]
        described = in_threads(lambda one: _described(_joined(uri, one), open_at, environment), marked)
        tables = dict(zip(marked, described, strict=True))
        for folder, inner in folders.items():
            if isinstance(inner, str):
                found.append(ListedTable(_joined(uri, folder), "unreadable", reason=inner))
            elif (table := tables.get(folder)) is not None:
                found.append(table)
            else:
                level += filter(_may_contain_tables, inner)
    return TableList(tuple(sorted(found, key=lambda one: one.uri)), listed, len(level))


def _listed(place: Place, folder: str) -> list[str] | str:
    try:
        return place.folders(folder)
    except StorageUnavailableError as error:
        if not folder:
            raise
        return str(error)


def _may_contain_tables(folder: str) -> bool:
    name = folder.rpartition("/")[2]
    return not name.startswith((".", "_")) and "=" not in name


def _joined(uri: str, folder: str) -> str:
    return f"{uri.rstrip('/')}/{folder}" if folder else uri


def _described(uri: str, open_at: Callable[[str], Store], environment: Environment) -> ListedTable | None:
    """Return None if `.hoodie` contains at most temporary files: it is no table's."""
    try:
        store = open_at(uri)
        try:
            session = Session.open(uri, environment, 0, store)
        except TableNotFoundError as error:
            is_begun = any(not stat.path.startswith(f"{TEMP_FOLDER}/") for stat in store.walk(".hoodie"))
            return ListedTable(uri, "incomplete", reason=str(error)) if is_begun else None
        value = session.views.sealed()
        slices = Snapshot.seal(session, value).slices
        files = [file for slice_ in slices for file in slice_.files]
        return ListedTable(
            uri, _state_of(value), value.version, _committed(session, value, slices), len(files),
            sum(not file.is_base for file in files), sum(file.size for file in files),
        )  # fmt: skip
    except TableNotFoundError as error:
        return ListedTable(uri, "incomplete", reason=str(error))
    except CrdtMorError as error:
        return ListedTable(uri, "unreadable", reason=str(error))


def _committed(session: Session, value: Timeline, slices: Slices) -> datetime | None:
    instant = last_commit(session, value, slices)
    return None if instant is None else to_datetime(instant, local=session.config.local_times)


def _state_of(value: Timeline) -> Literal["ready", "handed over", "moving", "moved", "arriving"]:
    if value.moving is not None:
        return "moved" if value.moving.is_closed else "moving"
    if value.origin is not None and not value.origin.is_opened:
        return "arriving"
    return "ready" if value.handed_over == EPOCH else "handed over"

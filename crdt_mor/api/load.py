"""Create a table together with its first rows: it appears with all of them, or not at all.

    load      a normal write puts sorted base files and completes (write/load.py), in a store that hides all objects
    appear    a put-if-absent of the settings makes the table visible, with its first commit
    in place  the hidden objects are copied to their paths, by the load or by a process that opens the table

`events/load.py` does the last two steps. A failed load removes its objects; after a crash the next load at the address
does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

import pyarrow as pa

from crdt_mor.api.create import require_no_timeline
from crdt_mor.errors import CommitUnknownError, CrdtMorError, TableExistsError
from crdt_mor.events import load as loads
from crdt_mor.events.session import Session
from crdt_mor.ground.clock import Environment, Looks
from crdt_mor.ground.forks import require_threads
from crdt_mor.log.deciding import deciding, put_deciding
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.log.steps import PUTS_MAX
from crdt_mor.model.authors import Info
from crdt_mor.model.config import TableConfig
from crdt_mor.store.protocol import Store
from crdt_mor.write.load import Load
from crdt_mor.write.open_write import LOOK_KEPT_MS, OpenWrite


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """Progress of a first load, passed to `on_progress` of `Table.create_from`.

    Attributes:
        phase: all rows are first "read", then "written".
        rows: number of rows done in this phase.
        total: number of rows; None while it is unknown.
    """

    phase: Literal["read", "written"]
    rows: int
    total: int | None


OnProgress: TypeAlias = Callable[[LoadProgress], object]
"""Called in the loading thread."""


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table to create; `properties` is the content of its settings file."""

    uri: str
    store: Store
    environment: Environment
    config: TableConfig
    properties: bytes
    expiry_ms: int
    memory_limit: int

    @property
    def table_id(self) -> str:
        assert self.config.table_id is not None
        return self.config.table_id


def require_free(store: Store, uri: str) -> None:
    require_threads(uri)
    require_no_timeline(store, uri)
    if store.stat(PROPERTIES) is not None:
        raise _exists(uri)


def load(
    table: NewTable,
    batches: Iterable[pa.RecordBatch],
    total: int | None,
    info: Info,
    on_progress: OnProgress | None,
) -> None:
    """Load the rows (`total` of them, if known) and make the table visible; on failure nothing is left."""
    store, appearing, read = table.store, False, 0
    looks = Looks(table.environment, LOOK_KEPT_MS)

    def heard(phase: Literal["read", "written"], rows: int) -> None:
        nonlocal read
        read = rows if phase == "read" else read
        if on_progress is not None:
            on_progress(LoadProgress(phase, rows, total if phase == "read" else read))
        if looks.is_due() and store.stat(PROPERTIES) is not None:
            raise _exists_by_now(table.uri)

    try:
        hidden = loads.load_store(store, table.table_id)
        hidden.put(PROPERTIES, table.properties)
        session = Session(hidden, table.environment, table.config, table.expiry_ms, table.uri)
        session.memory_limit = table.memory_limit
        session.start()
        Load(OpenWrite.begin(session, None, info), loads.load_token(table.table_id), heard).commit(batches)
        appearing = True
        _appear(table)
    except BaseException as error:
        _give_up(table, error, appearing)
        raise
    with deciding(is_made=True):
        loads.put_in_place(store, table.table_id)
    with suppress(Exception):  # remains of other loads are invisible
        loads.clear(store, table.table_id)


def _appear(table: NewTable) -> None:
    """Make the table visible by one put-if-absent, repeated if the reply is lost."""
    for attempt in range(PUTS_MAX):
        try:
            created = put_deciding(table.store, PROPERTIES, table.properties)
        except CommitUnknownError:
            table.environment.sleep(0.01 * 2**attempt * table.environment.jitter())
            continue
        with deciding(is_made=True):
            if not created and table.store.read(PROPERTIES) != table.properties:
                raise _exists_by_now(table.uri)
            table.store.make_durable(PROPERTIES)
        return
    raise CommitUnknownError(
        f"the store did not confirm the new table: check with Table(uri) before you load again. path={table.uri}"
    )


def _give_up(table: NewTable, error: BaseException, appearing: bool) -> None:
    """Remove the objects of a failed load, unless its table may exist (`appearing`)."""
    there: bytes | None = None
    with suppress(CrdtMorError):  # the next load at this address removes the rest
        there = table.store.read(PROPERTIES)
        if there == table.properties or (there is None and appearing and isinstance(error, CommitUnknownError)):
            return
        loads.remove(table.store, table.table_id)
    if there is not None and isinstance(error, CrdtMorError) and not isinstance(error, TableExistsError):
        raise _exists_by_now(table.uri) from error  # its process removed this load's objects


def _exists(uri: str) -> TableExistsError:
    return TableExistsError(
        "a table exists at this address: choose another address, or write to the table with "
        f"Table(uri).upsert(...). path={uri}"
    )


def _exists_by_now(uri: str) -> TableExistsError:
    return TableExistsError(f"another process created a table here during this load. path={uri}")

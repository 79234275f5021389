"""A table that is made together with its first rows, so that it is there with all of them, or not at all.

    load      one write begins, sorts, puts base files and completes (write/load.py), as any write would, in a store
              that hides everything of it
    appear    the settings are put at their own path, if there are none: now there is a table, with its first commit
    in place  what was hidden is copied to where it belongs, by the load, or by a process that opens the table

`events/load.py` has the last two, and says why loads need not wait for one another. A load that fails removes all
that it has put. A load that dies leaves objects that nobody sees; the next one that makes a table there removes them.
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
from crdt_mor.ground.clock import Environment
from crdt_mor.ground.forks import require_threads
from crdt_mor.log.deciding import deciding, put_deciding
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.log.steps import PUTS_MAX
from crdt_mor.model.authors import Info
from crdt_mor.model.config import TableConfig
from crdt_mor.store.protocol import Store
from crdt_mor.write.load import Load
from crdt_mor.write.open_write import OpenWrite


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far a first load is; passed to `on_progress` of `Table.create_from` now and then.

    phase: all rows are read first, and then written. rows: those that this phase has done. total: how many there are;
    None while rows are read of a source that does not know.
    """

    phase: Literal["read", "written"]
    rows: int
    total: int | None


OnProgress: TypeAlias = Callable[[LoadProgress], object]
"""Is told of a load's progress, in the thread that loads."""


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that is to be made. properties: the object that its settings are read from."""

    uri: str
    store: Store
    environment: Environment
    config: TableConfig
    properties: bytes
    expiry_ms: int

    @property
    def table_id(self) -> str:
        """The id of the table, which its properties say."""
        assert self.config.table_id is not None
        return self.config.table_id


def require_free(store: Store, uri: str) -> None:
    """Raise `TableExistsError` where there is a table, or what is left of one."""
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
    """Load the rows of a table, and let it appear; where that fails, nothing is left. total: their number, if known."""
    store, appearing, read = table.store, False, 0

    def heard(phase: Literal["read", "written"], rows: int) -> None:
        nonlocal read
        read = rows if phase == "read" else read
        if on_progress is not None:
            on_progress(LoadProgress(phase, rows, total if phase == "read" else read))
        if store.stat(PROPERTIES) is not None:
            raise _exists_by_now(table.uri)

    try:
        hidden = loads.LoadStore(store, table.table_id)
        hidden.put(PROPERTIES, table.properties)
        session = Session(hidden, table.environment, table.config, table.expiry_ms, table.uri)
        session.start()
        Load(OpenWrite.begin(session, None, info), loads.load_token(table.table_id), heard).commit(batches)
        appearing = True
        _appear(table)
    except BaseException as error:
        _give_up(table, error, appearing)
        raise
    with deciding(is_made=True):
        loads.put_in_place(store, table.table_id)
    with suppress(CrdtMorError):  # nobody sees what other loads have left
        loads.clear(store, table.table_id)


def _appear(table: NewTable) -> None:
    """The one event by which the table is there for everybody. A lost reply says nothing, so it is asked for again."""
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
        "the store does not say whether the table is there now: look, Table.open(uri), before it is loaded again. "
        f"path={table.uri}"
    )


def _give_up(table: NewTable, error: BaseException, appearing: bool) -> None:
    """Remove what a load has put that has failed, unless its table may be there.

    appearing: whether the failure came when the table was to appear.
    """
    there: bytes | None = None
    with suppress(CrdtMorError):  # what cannot be removed now is removed when a table is made here
        there = table.store.read(PROPERTIES)
        if there == table.properties or (there is None and appearing and isinstance(error, CommitUnknownError)):
            return
        loads.remove(table.store, table.table_id)
    if there is not None and isinstance(error, CrdtMorError) and not isinstance(error, TableExistsError):
        raise _exists_by_now(table.uri) from error  # the process that made it has removed what this load has put


def _exists(uri: str) -> TableExistsError:
    return TableExistsError(
        "there is a table already, and a first load makes a new one: choose another address, or write to the "
        f"table, Table.open(uri).upsert(...). path={uri}"
    )


def _exists_by_now(uri: str) -> TableExistsError:
    return TableExistsError(f"another process has made a table here while this one was loaded. path={uri}")

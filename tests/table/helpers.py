"""A schema of every day, rows in and rows out."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import Opening, Table
from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.merge import at_once, contributions, visible
from crdt_mor.payloads import Counter, PartialUpdate
from crdt_mor.store import LocalStore, Store
from tests.stores import SERVED, STORES, WatchedStore

SCHEMA = pa.schema([("id", pa.string()), ("region", pa.string()), ("n", pa.int64()), ("price", pa.float64())])
MERGES: dict[str, dict[str, Any]] = {
    "latest": {},
    "ordering": {"ordering": "n"},
    "partial": {"merge": PartialUpdate()},
    "counter": {"merge": {"n": Counter()}},
}
"""What `Table.create` is told for a table of each kind of merge."""

Make = Callable[..., Table]
Row = tuple[object, ...]


@dataclass(frozen=True)
class Place:
    """Where a test's table is: created and opened by its address, or in the store that is there."""

    uri: str
    store: Store
    by_uri: bool
    options: Mapping[str, str] | None = None

    @classmethod
    def of(cls, store_kind: str, folder: Path) -> Place:
        """On a local disk and in object stores, tables are created and opened by their addresses, as users do."""
        if store_kind in SERVED:
            from tests import servers

            server = servers.SERVERS[store_kind]()
            address = server.address(folder.name)
            return cls(address, server.store(address), by_uri=True, options=server.options)
        return cls(str(folder), STORES[store_kind](folder), by_uri=store_kind == "local")

    def create(self, **settings: Any) -> Table:
        """As `Table.create` does, with two buckets unless told: as few file groups as there can be more than one of."""
        return Table.create(self.uri, **{"buckets": 2} | settings | self._found(settings.get("opening")))

    def open(self, opening: Opening | None = None) -> Table:
        """The table once more, as another process would open it."""
        return Table(self.uri, **self._found(opening))

    def watched(self, opening: Opening | None = None) -> tuple[Table, WatchedStore]:
        """The table once more, and its store, which notes what it is asked from now on."""
        store = WatchedStore(self.store)
        table = Table(self.uri, opening=replace(opening or Opening(), store=store))
        store.calls.clear()
        return table, store

    def _found(self, opening: Opening | None) -> dict[str, Any]:
        """The arguments with which `Table` finds the table."""
        if self.options is not None or self.by_uri:
            return {**self._store, "opening": opening}
        return {"opening": replace(opening or Opening(), store=self.store)}

    @property
    def _store(self) -> dict[str, Any]:
        if self.options is not None:
            return {"storage_options": self.options}
        return {} if self.by_uri else {"store": self.store}


Places = Callable[[str], Place]


def frame(*rows: Row) -> pa.Table:
    """Rows of (id, region, n, price), the last ones optional."""
    full = [(*row, *(None,) * (4 - len(row))) for row in rows]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in full], SCHEMA)


def rows(table: Table, *columns: str, **scan: Any) -> list[Row]:
    """The table's rows, sorted."""
    found = table.scan(columns=list(columns) or None, **scan).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def sent(thing: Any) -> Any:
    """What arrives in another process; itself where the table's store is in the memory of this one."""
    try:
        return pickle.loads(pickle.dumps(thing))
    except UnsupportedFeatureError:
        return thing


def files(place: Place | str | Path) -> dict[str, bytes]:
    """Every object of a table, by path; without what a look alone leaves: temporary files, the store's clock."""
    store = place.store if isinstance(place, Place) else LocalStore(place)
    paths = [stat.path for folder in ("", ".hoodie") for stat in store.walk(folder)]
    contents = {path: store.read(path) for path in paths if not path.startswith(".hoodie/.temp/")}
    return {path: content for path, content in contents.items() if content is not None}


def data_files(place: Place | str | Path) -> set[str]:
    """The files of rows and deletes."""
    return {name for name in files(place) if not name.startswith(".hoodie") and "partition_metadata" not in name}


def counted_merges(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of blocks of each merge of logs from now on."""
    found: list[int] = []
    gather = contributions.gather

    def counted(blocks: Any, *args: Any, **settings: Any) -> Any:
        found.append(len(blocks))
        return gather(blocks, *args, **settings)

    for module in (at_once, visible):
        monkeypatch.setattr(module, "gather", counted)
    return found

"""List the tables below a place, and drop a table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from crdt_mor.api.opening import Opening, opened_with
from crdt_mor.errors import TableNotFoundError
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.ground.deadlines import operation
from crdt_mor.ground.machine import is_folder
from crdt_mor.services.drop import Dropped, drop
from crdt_mor.services.listing import ListedTable, TableList, list_below
from crdt_mor.store.local import LocalStore
from crdt_mor.store.objects import ObjectStore
from crdt_mor.store.open import absolute, open_store, store_at


@operation
def list_tables(
    place: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    known: Iterable[ListedTable] = (),
) -> TableList:
    """List the tables at and below a folder or address, such as `s3://lake`, without reading rows.

    At most 2,000 folders are listed. The insides of tables, hidden folders, partitions such as `day=2026-01-31` and
    symbolic links are skipped.

    Args:
        place: a folder or address.
        storage_options: as in `Table`.
        known: tables of an earlier call. If their folders still exist, they are returned unchanged, without requests.

    Raises:
        TableNotFoundError: the folder does not exist. In a bucket it counts as empty.
    """
    environment = SystemEnvironment()
    root = absolute(place)
    store = open_store(root, environment, storage_options)
    assert isinstance(store, LocalStore | ObjectStore)
    if isinstance(store, LocalStore) and not is_folder(store.root):
        raise TableNotFoundError(f"there is no folder here, so there are no tables: check the path. path={root}")
    return list_below(store, root, lambda uri: open_store(uri, environment, storage_options), environment, known)


@operation
def drop_table(
    uri: str | os.PathLike[str],
    *,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    opening: Opening | None = None,
) -> Dropped:
    """Remove a table with all rows and history, for good. Asks nobody.

    From its first step on, readers and writers raise `TableNotFoundError`. Repeat an interrupted call to finish it. The
    table may be damaged. Other objects in its folder, and entries of catalogs, stay.

    Args:
        uri, storage_options, opening: as in `Table`.
        dry_run: only count the objects.

    Raises:
        TableNotFoundError: there is no table.
        InvalidInputError: a first load is running there.
    """
    given, address = opened_with(opening), os.fspath(uri)
    store = store_at(address, given.environment, storage_options, given.store)
    return drop(store, address, given.environment, given.expiry_ms, dry_run=dry_run)

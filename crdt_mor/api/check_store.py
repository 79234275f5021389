"""Check a store's conditional puts before it holds a table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.clock import Environment, SystemEnvironment
from crdt_mor.ground.deadlines import operation
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.store.local import LocalStore
from crdt_mor.store.open import store_at
from crdt_mor.store.paths import CLOCKS, TEMP_FOLDER
from crdt_mor.store.protocol import Store
from crdt_mor.store.racing import StoreCheck, race

if TYPE_CHECKING:
    from crdt_mor.store.handed_stores import Handed

KEYS: Final = 150


@operation
def check_store(
    uri: str | os.PathLike[str],
    *,
    keys: int = KEYS,
    storage_options: Mapping[str, Any] | None = None,
    store: Store | Handed | None = None,
    environment: Environment | None = None,
) -> StoreCheck:
    """Check that exactly one of several simultaneous puts of an object wins.

    A check cannot prove that a store is safe. Longer checks find more faults. The test objects, in `.hoodie/.temp`, are
    deleted.

    Args:
        uri: the address of a table, existing or future. Nothing else there changes.
        keys: the number of objects. `Table.create` tries eight.
        storage_options: as in `Table`.
        store, environment: as in `Opening`.

    Returns:
        The result. A fault is its `reason`, not an error.

    Raises:
        StorageRefusedError: the store refused a request.
        StorageUnavailableError: the store does not answer.
    """
    if type(keys) is not int or keys < 1:
        raise InvalidInputError(f"keys must be a whole number of 1 or more. keys={keys!r}")
    environment = environment or SystemEnvironment()
    objects = store_at(uri, environment, storage_options, store)
    with leaving_nothing(objects):
        return race(objects, os.fspath(uri), environment.nonce(), keys)


@contextmanager
def leaving_nothing(store: Store) -> Iterator[None]:
    """Unless a table is there, remove the clocks and empty folders that a check of a store makes."""
    is_free = store.stat(PROPERTIES) is None
    missing = store.missing_folders() if isinstance(store, LocalStore) else []
    try:
        yield
    finally:
        if is_free:
            for stat in store.list(TEMP_FOLDER):
                if stat.path.startswith(CLOCKS):
                    store.delete(stat.path)
            if isinstance(store, LocalStore):
                store.remove_empty_folders(missing)

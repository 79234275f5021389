"""Checking a store before a table is put there: whether its conditional puts let one of many win."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.clock import Environment, SystemEnvironment
from crdt_mor.ground.deadlines import operation
from crdt_mor.store.open import store_at
from crdt_mor.store.protocol import Store
from crdt_mor.store.racing import StoreCheck, race

if TYPE_CHECKING:
    from crdt_mor.store.handed_stores import Handed

KEYS: Final = 150
"""How many objects a check races, by default."""


@operation
def check_store(
    uri: str | os.PathLike[str],
    *,
    keys: int = KEYS,
    storage_options: Mapping[str, Any] | None = None,
    store: Store | Handed | None = None,
    environment: Environment | None = None,
) -> StoreCheck:
    """Whether a table can be in a store: whether of many puts of one object, made at once, one alone makes it.

    uri: where a table may come, or is already; nothing of it is changed. The objects are below `.hoodie/.temp` there
        while the check lasts, and are deleted.
    keys: how many objects; `Table.create` tries the same with eight. A check proves no store safe. It finds the more
        surely that one is not, the longer it is and the more processes make it at once.
    storage_options, store, environment: see `Table.open`.

    What is wrong with the store is `reason` of the result, and no error. Raises `StorageRefusedError` and
    `StorageUnavailableError` where the store does not answer.
    """
    if type(keys) is not int or keys < 1:
        raise InvalidInputError(f"a check races at least one object. keys={keys!r}")
    environment = environment or SystemEnvironment()
    objects = store_at(uri, environment, storage_options, store)
    return race(objects, os.fspath(uri), environment.nonce(), keys)

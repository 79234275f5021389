"""Absent or not: a second look at an object that something names, before it is called lost.

A mount of a network may remember for seconds that a name was absent, also once another machine has made the object. The
listing of the folder shows the object all the same, and makes most mounts look the name up anew. `LocalStore` asks such
mounts anew by itself; this is for all other stores and mounts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from crdt_mor.errors import StorageUnavailableError
from crdt_mor.store.protocol import Store, is_bucket

T = TypeVar("T")

LOOKS: Final = 2
"""How often an object is asked for again that its folder lists. It may be deleted between the two."""


class ContradictedError(StorageUnavailableError):
    """A store lists an object and does not find it. It says nothing of the object."""


def surely(store: Store, path: str, ask: Callable[[str], T | None]) -> T | None:
    """The answer of `ask`, a method of the store, for an object that something names; None only where it is gone.

    Raises `StorageUnavailableError` where the folder lists the object, and the store does not find it.
    """
    found = ask(path)
    if is_bucket(store):
        return found
    for _ in range(LOOKS):
        if found is not None or all(stat.path != path for stat in store.list(folder_of(path))):
            return found
        found = ask(path)
    if found is None:
        raise contradicted(path)
    return found


def folder_of(path: str) -> str:
    """The folder of an object; "" is the root."""
    return path.rpartition("/")[0]


def contradicted(path: str) -> ContradictedError:
    """The error of a store whose listing shows an object that it does not find."""
    return ContradictedError(
        "the folder lists this object, and the store does not find it: a network mount may remember for a while that "
        "the name was absent. Try again in a moment; docs/stores.md says how to mount it. "
        f"path={path}"
    )

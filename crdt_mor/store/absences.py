"""Look twice before an object that another object names counts as lost.

A network mount can remember for seconds that a name was absent. Its folder's listing shows the object, and most mounts
then look again. `LocalStore` does this by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from crdt_mor.errors import StorageUnavailableError, page
from crdt_mor.store.protocol import Store, is_bucket

T = TypeVar("T")

LOOKS: Final = 2
"""Repeated reads of an object that its folder lists. A delete may come between."""


class ContradictedError(StorageUnavailableError):
    """A store lists an object and does not find the object."""


def surely(store: Store, path: str, ask: Callable[[str], T | None]) -> T | None:
    """Return `ask(path)`; None only if the object is gone.

    Raises:
        StorageUnavailableError: The folder lists the object, and the store does not find it.
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
    return path.rpartition("/")[0]


def contradicted(path: str) -> ContradictedError:
    return ContradictedError(
        "the folder lists this object, but the store does not find it: a network mount may remember the absent name. "
        f"Try again in a moment; {page('stores')} explains the mount options. "
        f"path={path}"
    )

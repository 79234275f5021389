"""The stores that tests run over, and one that notes what another is asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from crdt_mor import LocalStore, MemoryStore, Store
from crdt_mor.testing.faults import DelegatingStore
from tests.tiers import slow

T = TypeVar("T")

STORES: Final[dict[str, Callable[[Path], Store]]] = {
    "memory": lambda _: MemoryStore(),
    "local": LocalStore,
}
"""An empty store of each kind, given a folder that it may use. A store of another kind is one line here."""

SERVED: Final = ("s3", "azure")
"""Kinds of stores that `tests.servers` serves: `pytest tests/table --store s3` runs the tests of tables there."""

LOCAL_FIRST: Final = ["local", *(slow(kind) for kind in STORES if kind != "local")]
"""For tests that take seconds: over a local disk before every commit, over the others in the slow tier."""


def found_in(store: Store, *texts: str) -> list[str]:
    """The objects below a table, wherever they are, in which any of the texts stands."""
    paths = [stat.path for folder in ("", ".hoodie") for stat in store.walk(folder)]
    return [path for path in paths if any(text.encode() in (store.read(path) or b"") for text in texts)]


class WatchedStore(DelegatingStore):
    """Another store; `calls` notes each operation and its path."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.calls: list[tuple[str, str]] = []

    def around(self, operation: str, path: str, call: Callable[[], T]) -> T:
        self.calls.append((operation, path))
        return call()

    def paths(self, *operations: str) -> list[str]:
        """The paths that these operations were asked for, in order."""
        return [path for operation, path in self.calls if operation in operations]

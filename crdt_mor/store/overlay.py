"""A store that reads some objects from another store."""

from __future__ import annotations

import builtins
from collections.abc import Collection

from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.store.delegating import DelegatingStore
from crdt_mor.store.protocol import Stat, Store, forget


class OverlayStore(DelegatingStore):
    """The store `base` with the objects of `other` at `paths`. Changes go to `base`."""

    def __init__(self, base: Store, other: Store, paths: Collection[str]) -> None:
        super().__init__(base)
        self._other = other
        self._paths = frozenset(paths)

    def _of(self, path: str) -> Store:
        return self._other if path in self._paths else self.store

    def read(self, path: str) -> bytes | None:
        return self._of(path).read(path)

    def view(self, path: str) -> memoryview | None:
        return self._of(path).view(path)

    def stat(self, path: str) -> Stat | None:
        return self._of(path).stat(path)

    def parquet(self, path: str) -> ParquetSource | None:
        return self._of(path).parquet(path)

    def forget(self, path: str) -> None:
        forget(self._of(path), path)

    def list(self, folder: str) -> builtins.list[Stat]:
        return self._merged(self.store.list(folder), self._other.list(folder))

    def walk(self, folder: str) -> builtins.list[Stat]:
        return self._merged(self.store.walk(folder), self._other.walk(folder))

    def _merged(self, base: builtins.list[Stat], other: builtins.list[Stat]) -> builtins.list[Stat]:
        stats = [stat for stat in base if stat.path not in self._paths]
        stats += [stat for stat in other if stat.path in self._paths]
        return sorted(stats, key=lambda stat: stat.path)

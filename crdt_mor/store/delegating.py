"""A store that passes every call to another one, as the base of stores that change some calls."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import TypeVar

from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.store.protocol import Content, Durable, Stat, Store, forget

T = TypeVar("T")


class DelegatingStore:
    def __init__(self, store: Store) -> None:
        self.store = store

    def around(self, operation: str, path: str, call: Callable[[], T]) -> T:  # noqa: ARG002
        """Carry a call out. operation: the method's name. path: its object or folder."""
        return call()

    def read(self, path: str) -> bytes | None:
        return self.around("read", path, lambda: self.store.read(path))

    def view(self, path: str) -> memoryview | None:
        return self.around("view", path, lambda: self.store.view(path))

    def parquet(self, path: str) -> ParquetSource | None:
        return self.around("parquet", path, lambda: self.store.parquet(path))

    def forget(self, path: str) -> None:
        forget(self.store, path)

    def put(self, path: str, data: Content, *, durable: Durable = True, after: Sequence[str] = ()) -> bool:
        return self.around("put", path, lambda: self.store.put(path, data, durable=durable, after=after))

    def copy(self, source: str, target: str) -> bool:
        return self.around("copy", target, lambda: self.store.copy(source, target))

    def stat(self, path: str) -> Stat | None:
        return self.around("stat", path, lambda: self.store.stat(path))

    def list(self, folder: str) -> builtins.list[Stat]:
        return self.around("list", folder, lambda: self.store.list(folder))

    def walk(self, folder: str) -> builtins.list[Stat]:
        return self.around("walk", folder, lambda: self.store.walk(folder))

    def delete(self, path: str) -> None:
        return self.around("delete", path, lambda: self.store.delete(path))

    def touch(self, path: str) -> None:
        return self.around("touch", path, lambda: self.store.touch(path))

    def make_durable(self, path: str) -> None:
        return self.around("make_durable", path, lambda: self.store.make_durable(path))

    def now_ms(self) -> int:
        return self.around("now_ms", "", self.store.now_ms)

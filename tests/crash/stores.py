"""Stores that stop at a chosen operation: the process dies there, or something else happens first."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path

from crdt_mor.store.base import Content, Stat
from crdt_mor.store.local import LocalStore


class ProcessDied(BaseException):
    """Not an `Exception`: nothing that a dead process has in its `except` clauses runs any more."""


class InterruptedStore(LocalStore):
    """Counts the operations that change something, and calls `interrupt` just before (or after) number `at`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.count = 0
        self.at = -1
        self.after = False
        self.interrupt: Callable[[], None] | None = None
        self.dead = False

    def arm(self, at: int, interrupt: Callable[[], None] | None, *, after: bool = False) -> None:
        self.count, self.at, self.interrupt, self.after = 0, at, interrupt, after

    def die(self) -> None:
        self.dead = True
        raise ProcessDied

    def _reach(self) -> bool:
        if self.dead:
            raise ProcessDied
        self.count += 1
        hit = self.count == self.at
        if hit and not self.after and self.interrupt is not None:
            self.interrupt()
        return hit

    def _leave(self, hit: bool) -> None:
        if hit and self.after and self.interrupt is not None:
            self.interrupt()

    def put(self, path: str, data: Content, *, durable: bool = True) -> bool:
        hit = self._reach()
        created = super().put(path, data, durable=durable)
        self._leave(hit)
        return created

    def copy(self, source: str, target: str) -> bool:
        hit = self._reach()
        created = super().copy(source, target)
        self._leave(hit)
        return created

    def delete(self, path: str) -> None:
        hit = self._reach()
        super().delete(path)
        self._leave(hit)

    def read(self, path: str) -> bytes | None:
        if self.dead:
            raise ProcessDied
        return super().read(path)

    def stat(self, path: str) -> Stat | None:
        if self.dead:
            raise ProcessDied
        return super().stat(path)

    def list(self, folder: str) -> builtins.list[Stat]:
        if self.dead:
            raise ProcessDied
        return super().list(folder)

"""Stores that fail, for tests of programs with failing storage.

    FaultyStore        by chance: calls fail, and replies of completed calls get lost; a seed decides
    InterruptedStore   at a chosen call: the process dies there, or something else happens first

`DelegatingStore` is their base: a subclass that overrides `around` sees every call, and may raise before or after it.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

from crdt_mor.errors import CommitUnknownError, StorageUnavailableError
from crdt_mor.store.delegating import DelegatingStore
from crdt_mor.store.protocol import Store

__all__ = ["CHANGES", "DelegatingStore", "FaultyStore", "InterruptedStore", "ProcessDied"]

T = TypeVar("T")

CHANGES: Final = frozenset({"put", "copy", "delete", "touch", "make_durable"})
"""Calls that change the store."""


class FaultyStore(DelegatingStore):
    """A store with failing calls.

    Args:
        seed: Decides which calls fail. The n-th call of an operation on a path has the same fate for each seed.
            Paths contain times and ids, so a run repeats only under a simulated `Environment`.
        failures: Share of calls that fail with `StorageUnavailableError` before anything happens.
        lost_replies: Share of changes that are carried out and then fail. For a put or copy the caller gets
            `CommitUnknownError`.
    """

    def __init__(self, store: Store, seed: int, *, failures: float = 0.0, lost_replies: float = 0.0) -> None:
        super().__init__(store)
        self._seed = seed
        self._failures = failures
        self._lost_replies = lost_replies
        self._calls: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def around(self, operation: str, path: str, call: Callable[[], T]) -> T:
        with self._lock:
            self._calls[operation, path] += 1
            number = self._calls[operation, path]
        if self._chance("failure", operation, path, number) < self._failures:
            raise StorageUnavailableError(f"a simulated failure of the store; nothing happened. {operation} {path}")
        result = call()
        if operation in CHANGES and self._chance("lost reply", operation, path, number) < self._lost_replies:
            unknown = operation in {"put", "copy"}
            kind = CommitUnknownError if unknown else StorageUnavailableError
            raise kind(f"a simulated loss of the store's reply. {operation} {path}")
        return result

    def _chance(self, *what: object) -> float:
        digest = hashlib.sha256(repr((self._seed, *what)).encode()).digest()
        return int.from_bytes(digest[:6], "big") / 2**48


class ProcessDied(BaseException):
    """The end of a simulated process. Not an `Exception`, because a dead process handles none."""


class InterruptedStore(DelegatingStore):
    """Counts puts, copies and deletes, and interrupts one of them."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.count = 0
        self.at = -1
        self.after = False
        self.interrupt: Callable[[], None] | None = None
        self.dead = False

    def arm(self, at: int, interrupt: Callable[[], None] | None, *, after: bool = False) -> None:
        """Count from now, and call `interrupt` before (or `after`) call number `at`; None: only count."""
        self.count, self.at, self.interrupt, self.after = 0, at, interrupt, after

    def die(self) -> None:
        """Interrupt: the process dies, and its later calls fail."""
        self.dead = True
        raise ProcessDied

    def around(self, operation: str, path: str, call: Callable[[], T]) -> T:  # noqa: ARG002
        if self.dead and operation in {"put", "copy", "delete", "read", "stat", "list"}:
            raise ProcessDied
        if operation not in {"put", "copy", "delete"}:
            return call()
        self.count += 1
        interrupt = self.interrupt if self.count == self.at else None
        if interrupt is not None and not self.after:
            interrupt()
        result = call()
        if interrupt is not None and self.after:
            interrupt()
        return result

"""Run several requests at once: waiting for a round trip costs no processor time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from crdt_mor.ground.deadlines import current_operation

T = TypeVar("T")

REQUESTS_AT_ONCE: Final = 64
"""Most requests of a store side by side."""

FILES_AT_ONCE: Final = 16
"""Most data files put at once: each is in memory meanwhile."""


class AtOnce:
    """Threads for requests, started when several are needed. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[str, ThreadPoolExecutor] = {}

    def side_by_side(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Return the results of all calls in order; after all have ended, raise the first error.

        This thread makes the first call, which may itself call `side_by_side`; the others must not.
        """
        if len(calls) < 2:
            return [call() for call in calls]
        pool, within = self._pool("side-by-side", REQUESTS_AT_ONCE), current_operation().within
        others = [pool.submit(within(call)) for call in calls[1:]]
        results: list[T] = []
        errors: list[Exception] = []
        for outcome in (within(calls[0]), *(other.result for other in others)):
            try:
                results.append(outcome())
            except Exception as error:  # noqa: BLE001  raised below
                errors.append(error)
        if errors:
            raise errors[0]
        return results

    def afterwards(self, call: Callable[[], None]) -> None:
        """Start a call that raises nothing, without waiting.

        The process waits for it before exit. It is not part of the current operation.
        """
        self._pool("afterwards", 1).submit(call)

    def _pool(self, name: str, threads: int) -> ThreadPoolExecutor:
        with self._lock:
            if name not in self._pools:
                self._pools[name] = ThreadPoolExecutor(threads, thread_name_prefix=name)
            return self._pools[name]

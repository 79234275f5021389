"""Several requests at once: in a bucket each is a round trip, and waiting for one is no work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from crdt_mor.ground.deadlines import current_operation

T = TypeVar("T")

REQUESTS_AT_ONCE: Final = 64
"""How many requests of one store are under way at once, at most, that were made side by side: the writes that a crowd
has posted are read so."""

FILES_AT_ONCE: Final = 16
"""How many data files are made and put at once, at most: each is in memory meanwhile."""


class AtOnce:
    """Threads for requests, which are started when there are several of them. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[str, ThreadPoolExecutor] = {}

    def side_by_side(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """The results of all calls, in their order; if some raise, the first of these errors once all have ended.

        The first call is made by this thread, and may itself make calls side by side; the others must not.
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
        """Begin with a call, which raises nothing, and do not wait for it; the process does, before it ends.

        It is no part of the operation that begins it.
        """
        self._pool("afterwards", 1).submit(call)

    def _pool(self, name: str, threads: int) -> ThreadPoolExecutor:
        with self._lock:
            if name not in self._pools:
                self._pools[name] = ThreadPoolExecutor(threads, thread_name_prefix=name)
            return self._pools[name]

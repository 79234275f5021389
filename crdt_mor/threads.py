"""Work side by side: the one pool of threads that readers, writers and services use."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

from crdt_mor.forks import fork_count, is_own, require_own

S = TypeVar("S")
R = TypeVar("R")

THREADS = max(2, os.cpu_count() or 1)
"""File slices that are merged, or log files that are encoded, side by side. More only get in each other's way."""


def in_threads(work: Callable[[S], R], items: Iterable[S], threads: int | None = None) -> Iterator[R]:
    """`work` of each item, in order, a few at a time, so that only a few results wait in memory."""
    threads = threads or THREADS
    rest = iter(items)
    first = list(islice(rest, 2))
    if len(first) < 2:
        yield from map(work, first)
        return
    pool, left_early, forks = ThreadPoolExecutor(threads, thread_name_prefix="file-slice"), False, fork_count()
    try:
        waiting: deque[Future[R]] = deque()
        for item in chain(first, rest):
            waiting.append(pool.submit(work, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
                require_own(forks, "rows that were being read")
        while waiting:
            yield waiting.popleft().result()
            require_own(forks, "rows that were being read")
    except GeneratorExit:
        left_early = True
        raise
    finally:
        # Who leaves early does not wait: it may be the garbage collector, in a thread of this very pool.
        if is_own(forks):  # a process that was forked meanwhile has none of these threads
            pool.shutdown(wait=not left_early, cancel_futures=True)

"""The one thread pool of readers, writers and services."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, islice
from typing import TypeVar

from crdt_mor.ground.deadlines import current_operation
from crdt_mor.ground.forks import fork_count, is_own, require_own

S = TypeVar("S")
R = TypeVar("R")

THREADS = max(2, os.cpu_count() or 1)
"""Parallel merges or encodings. More threads only compete."""

REQUESTS = 64
"""Parallel requests to a bucket."""

WEIGHT_MAX = 256 << 20
"""Known bytes in memory above which no more work starts."""

MEMORY_PER_BYTE = 8
"""Approximate memory of a file group's old and new rows, per byte of its files."""

_ALONE: ContextVar[bool] = ContextVar("crdt_mor_one_thread", default=False)


@contextmanager
def one_thread() -> Iterator[None]:
    """Do all work of the block in this thread, in order: for little work, and so that simulations can repeat runs."""
    before = _ALONE.set(True)
    try:
        yield
    finally:
        _ALONE.reset(before)


def in_threads(
    work: Callable[[S], R],
    items: Iterable[S],
    threads: int | None = None,
    weight: Callable[[S], int] = lambda _: 0,
    most: int = WEIGHT_MAX,
) -> Iterator[R]:
    """Yield `work` of each item, in order, a few at a time.

    weight: returns the bytes that an item holds. most: the bytes of all items at once, unless a single one has more.
    """
    threads = threads or THREADS
    rest = iter(items)
    first = list(islice(rest, 2))
    if len(first) < 2 or _ALONE.get():
        yield from map(work, chain(first, rest))
        return
    work = current_operation().within(work)
    pool, left_early, forks = ThreadPoolExecutor(threads, thread_name_prefix="file-slice"), False, fork_count()
    try:
        waiting: deque[tuple[Future[R], int]] = deque()
        held = 0
        for item in chain(first, rest):
            more = weight(item)
            while waiting and (len(waiting) > threads or held + more > most):
                yield waiting[0][0].result()
                held -= waiting.popleft()[1]  # the result is free before the next item starts
                require_own(forks, "rows that were being read")
            waiting.append((pool.submit(work, item), more))
            held += more
        while waiting:
            yield waiting[0][0].result()
            waiting.popleft()
            require_own(forks, "rows that were being read")
    except GeneratorExit:
        left_early = True
        raise
    finally:
        # After an early exit do not wait: the caller may be the garbage collector, in a thread of this pool.
        if is_own(forks):  # a forked process lacks these threads
            pool.shutdown(wait=not left_early, cancel_futures=True)


def groups_in_threads(
    work: Callable[[S], R],
    items: Iterable[S],
    size: Callable[[S], int],
    memory_limit: int,
    threads: int | None = None,
) -> Iterator[R]:
    """Yield `work` of each file group, in order: as many at once as the memory limit allows, and at least one.

    Large file groups are one more than the processors, because more would only compete.

    Args:
        size: returns the bytes of an item's files.
        threads: the number of small file groups at once, of `WEIGHT_MAX` together; None for the processors.
    """

    def share(item: S) -> int:
        memory = MEMORY_PER_BYTE * size(item)
        return max(min(memory, WEIGHT_MAX // (THREADS + 1)), memory * WEIGHT_MAX // memory_limit)

    return in_threads(work, items, threads, share)


def bytes_ahead(memory_limit: int) -> int:
    """Return the most bytes of files to read before the merges that decode them."""
    return min(WEIGHT_MAX, memory_limit // MEMORY_PER_BYTE)


@contextmanager
def beside(call: Callable[[], R]) -> Iterator[Callable[[], R]]:
    """Run a call in another thread during the block. Yields a function that waits for its result."""
    if _ALONE.get():
        yield call
        return
    pool, forks = ThreadPoolExecutor(1, thread_name_prefix="beside"), fork_count()
    try:
        yield pool.submit(current_operation().within(call)).result
    finally:
        if is_own(forks):
            pool.shutdown()

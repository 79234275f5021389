"""Work side by side: the one pool of threads that readers, writers and services use."""

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
"""File slices that are merged, or log files that are encoded, side by side. More only get in each other's way."""

REQUESTS = 64
"""Requests to a bucket that are under way at once: they wait for the network, not for a processor."""

WEIGHT_MAX = 256 << 20
"""The bytes in memory, as far as they are known, from which on no more work is begun before some of it is taken."""

_ALONE: ContextVar[bool] = ContextVar("crdt_mor_one_thread", default=False)


@contextmanager
def one_thread() -> Iterator[None]:
    """All work that this thread hands out in the block is done in the thread itself, one item after the other.

    A simulation needs it: threads take turns as the machine likes, so that no run with several of them is the same
    twice.
    """
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
) -> Iterator[R]:
    """`work` of each item, in order, a few at a time, so that only a few results wait in memory.

    weight: how many bytes the work of an item will hold.
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
            waiting.append((pool.submit(work, item), weight(item)))
            held += waiting[-1][1]
            while len(waiting) > threads or (held > WEIGHT_MAX and len(waiting) > 1):
                future, size = waiting.popleft()
                yield future.result()
                held -= size
                require_own(forks, "rows that were being read")
        while waiting:
            yield waiting.popleft()[0].result()
            require_own(forks, "rows that were being read")
    except GeneratorExit:
        left_early = True
        raise
    finally:
        # A caller that leaves early does not wait: it may be the garbage collector, in a thread of this very pool.
        if is_own(forks):  # a process that was forked meanwhile has none of these threads
            pool.shutdown(wait=not left_early, cancel_futures=True)

"""Heartbeats: one thread a process touches a file for each write that is under way.

The first heartbeat is part of the begin (`lifecycle.begin`), since who begins may be gone before its first turn here.
Ages are compared by the store's modification times, never by local clocks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from crdt_mor.errors import CrdtMorError
from crdt_mor.model.instant import InstantTime
from crdt_mor.store.base import Store
from crdt_mor.timeline.paths import heartbeat_path

BEATS_PER_EXPIRY = 5


@contextmanager
def beating(store: Store, requested: InstantTime, expiry_ms: int) -> Iterator[None]:
    """Touch the heartbeat of a write until the block is left."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(expiry_ms / 1000 / BEATS_PER_EXPIRY):
            try:
                store.touch(heartbeat_path(requested))
            except CrdtMorError:
                continue  # the store does not answer: the next beat may reach it, and expiry is what silence means

    thread = threading.Thread(target=beat, name=f"heartbeat-{requested}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()

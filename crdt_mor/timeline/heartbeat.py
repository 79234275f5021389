"""Heartbeats: a background task touches a file of each write that is under way.

The first heartbeat is part of the begin (`events.begin`), since who begins may be gone before the first turn here.
Ages are compared by the store's modification times, never by local clocks.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress

from crdt_mor.clock import Environment
from crdt_mor.errors import CrdtMorError
from crdt_mor.model.instant import InstantTime
from crdt_mor.store.base import Store
from crdt_mor.timeline.paths import heartbeat_path

BEATS_PER_EXPIRY = 5


def beating(
    store: Store, environment: Environment, requested: InstantTime, expiry_ms: int
) -> AbstractContextManager[None]:
    """Touch the heartbeat of a write until the block is left."""

    def beat() -> None:
        with suppress(CrdtMorError):  # the next beat may reach the store, and silence is what expiry is about
            store.touch(heartbeat_path(requested))

    return environment.every(expiry_ms / 1000 / BEATS_PER_EXPIRY, beat, name=f"heartbeat-{requested}")

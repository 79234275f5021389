"""Heartbeats: a background task touches a file of each write that is under way.

The first heartbeat is part of the begin (`events.begin`), since a writer may be gone before the first turn here. In a
bucket, where a heartbeat is a round trip, a write has none before that: its age is that of its begin. Ages are compared
by the store's modification times, never by local clocks.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from datetime import timedelta

from crdt_mor.errors import CrdtMorError
from crdt_mor.ground.clock import Environment
from crdt_mor.log.paths import heartbeat_path
from crdt_mor.model.instant import InstantTime
from crdt_mor.store.protocol import Store

BEATS_PER_EXPIRY = 5

BEATS_MISSED = 3
"""A writer of which as many heartbeats are missing is told to people as stuck. Only the expiry decides anything."""


def beat_every(expiry_ms: int) -> timedelta:
    """How much time passes between two heartbeats of a writer."""
    return timedelta(milliseconds=expiry_ms) / BEATS_PER_EXPIRY


def beating(
    store: Store, environment: Environment, requested: InstantTime, expiry_ms: int
) -> AbstractContextManager[None]:
    """Touch the heartbeat of a write until the block is left."""

    def beat() -> None:
        with suppress(CrdtMorError):  # the next beat may reach the store, and silence is what expiry is about
            store.touch(heartbeat_path(requested))

    return environment.every(beat_every(expiry_ms).total_seconds(), beat, name=f"heartbeat-{requested}")

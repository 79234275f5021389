"""Heartbeats: a background task touches a file of each running write.

The begin writes the first heartbeat (`events.begin`), as a writer may die before the first turn. In a bucket, the age
of the begin counts at first. Only the store's modification times tell ages.
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
"""Missing heartbeats until a writer is reported as stuck. Only the expiry acts."""


def beat_every(expiry_ms: int) -> timedelta:
    return timedelta(milliseconds=expiry_ms) / BEATS_PER_EXPIRY


def beating(
    store: Store, environment: Environment, requested: InstantTime, expiry_ms: int
) -> AbstractContextManager[None]:
    def beat() -> None:
        with suppress(CrdtMorError):  # the next beat may succeed; the expiry handles silence
            store.touch(heartbeat_path(requested))

    return environment.every(beat_every(expiry_ms).total_seconds(), beat, name=f"heartbeat-{requested}")

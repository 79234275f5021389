"""Timeline values after a handover to Hudi's writers and after a takeback."""

from __future__ import annotations

from crdt_mor.model.instant import EPOCH, tick_after
from crdt_mor.model.timeline import Timeline


def handed_over(value: Timeline, nonce: str, wall_ms: int) -> Timeline:
    """Return the value in which no write or plan begins until the takeback; none may be pending."""
    assert not value.pending, "a pending write would end beside Hudi's writers"
    assert not value.plans, "an open plan would end beside Hudi's writers"
    clock = tick_after(value.clock, wall_ms)
    return value.following(nonce, clock, handed_over=clock)


def taken_back(value: Timeline, nonce: str, wall_ms: int) -> Timeline:
    return value.following(nonce, tick_after(value.clock, wall_ms), handed_over=EPOCH)

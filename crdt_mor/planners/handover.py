"""The values that follow when a table is handed over to Hudi's writers, and when it is taken back."""

from __future__ import annotations

from crdt_mor.model.instant import EPOCH, tick_after
from crdt_mor.model.timeline import Timeline


def handed_over(value: Timeline, nonce: str, wall_ms: int) -> Timeline:
    """Nothing begins in this table from here on, until it is taken back; nothing is pending, and no plan is open."""
    assert not value.pending, "what is pending would end beside Hudi's writers"
    assert not value.plans, "what is planned would end beside Hudi's writers"
    clock = tick_after(value.clock, wall_ms)
    return value.following(nonce, clock, handed_over=clock)


def taken_back(value: Timeline, nonce: str, wall_ms: int) -> Timeline:
    """Writers of ours begin again."""
    return value.following(nonce, tick_after(value.clock, wall_ms), handed_over=EPOCH)

"""The timeline value after a change of the table's rules."""

from __future__ import annotations

from crdt_mor.model.instant import tick_after
from crdt_mor.model.rules import Rules
from crdt_mor.model.timeline import Timeline


def ruled(value: Timeline, nonce: str, wall_ms: int, rules: Rules) -> Timeline:
    return value.following(nonce, tick_after(value.clock, wall_ms), rules=rules)

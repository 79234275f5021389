"""The value that follows when the rules of a table change."""

from __future__ import annotations

from crdt_mor.model.instant import tick_after
from crdt_mor.model.rules import Rules
from crdt_mor.model.timeline import Timeline


def ruled(value: Timeline, nonce: str, wall_ms: int, rules: Rules) -> Timeline:
    """Writes that begin from here on are held to these rules."""
    return value.following(nonce, tick_after(value.clock, wall_ms), rules=rules)

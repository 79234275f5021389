"""The fields of a timeline version whose change can break an invariant.

The previous version kept every invariant, so an event can break only those of the fields that it changes.
"""

from __future__ import annotations

from collections.abc import Callable

from crdt_mor.model.timeline import Timeline

Invariant = Callable[[Timeline, Timeline], bool]

FIELDS: dict[Invariant, tuple[str, ...]] = {}
"""Invariants without fields are checked of every version."""


def of(*fields: str) -> Callable[[Invariant], Invariant]:
    """Declare that an invariant holds if both versions share these fields."""

    def declare(holds: Invariant) -> Invariant:
        FIELDS[holds] = fields
        return holds

    return declare

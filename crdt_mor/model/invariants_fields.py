"""The fields of a timeline version whose change can break an invariant.

The previous version kept every invariant, so an event can break only those of the fields that it changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crdt_mor.model.timeline import Timeline

Invariant = Callable[[Timeline, Timeline], bool]


@dataclass(frozen=True, slots=True)
class Concern:
    """fields: an invariant holds if both versions share them. about: it holds if both have this field's default."""

    fields: tuple[str, ...]
    about: str | None = None


CONCERNS: dict[Invariant, Concern] = {}
"""Other invariants are checked of every version."""


def of(*fields: str, about: str | None = None) -> Callable[[Invariant], Invariant]:
    def declare(holds: Invariant) -> Invariant:
        CONCERNS[holds] = Concern(fields, about)
        return holds

    return declare


def concerned(invariants: tuple[Invariant, ...], previous: Timeline, following: Timeline) -> list[Invariant]:
    """Return the invariants that the second of two versions can break."""
    before, after = vars(previous), vars(following)
    same = {name for name, part in after.items() if part is before.get(name)}
    absent = {name for name in same if after[name] is getattr(Timeline, name, same)}
    concerns = ((holds, CONCERNS.get(holds)) for holds in invariants)
    return [holds for holds, c in concerns if c is None or not (c.about in absent or same.issuperset(c.fields))]

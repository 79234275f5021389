"""What tests ask of a table that its users need not: the session behind it, and what the session sees of the timeline.

No other module of the tests reaches for a table's private session, so that the engine is free to keep it elsewhere.
"""

from __future__ import annotations

from crdt_mor.api.maintenance_arguments import plan_of
from crdt_mor.api.maintenance_results import CompactionPlan
from crdt_mor.events import sweep
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion
from crdt_mor.planners.compaction import CompactionPlan as FrozenPlan
from crdt_mor.store.protocol import Store
from crdt_mor.testing.simulation.inside import Seated, hudi_folder_of, look_for_hudi, session_of, tail_of

__all__ = [
    "Seated",
    "completions_of",
    "frozen",
    "hudi_folder_of",
    "look_for_hudi",
    "run_sweep",
    "session_of",
    "store_of",
    "tail_of",
]


def frozen(plan: CompactionPlan) -> FrozenPlan:
    """The engine's plan behind a plan that users hold."""
    return plan_of(plan)


def store_of(table: Seated) -> Store:
    """The store in which a table's objects are."""
    return session_of(table).store


def completions_of(table: Seated, value: Timeline | None = None) -> list[Completion]:
    """All completions of a value of a table's timeline, of its newest one by default, those of segments included."""
    return session_of(table).views.completions(tail_of(table) if value is None else value)


def run_sweep(table: Seated, value: Timeline | None = None) -> Timeline:
    """A sweep by a value of a table's timeline, by its newest one by default; returns the value after it."""
    session = session_of(table)
    return session.run(sweep.sweep(session.publisher, session.tail() if value is None else value))

"""Simulated lives of a table: the real engine over a failing store, jumping clocks and dying processes.

simulate(1000)                     a thousand runs; the first failing run is shortened and told
run_seed(7)                        one run, always the same, to the byte of its `digest`
shrink(outcome)                    the shortest found plan that breaks the same promise
INVARIANTS                         the promises, by name
"""

from __future__ import annotations

from crdt_mor.testing.simulation.invariants import INVARIANTS, BrokenPromiseError
from crdt_mor.testing.simulation.plan import Action, Plan, Settings
from crdt_mor.testing.simulation.running import Outcome, Simulated, run, run_seed, shrink, simulate
from crdt_mor.testing.simulation.story import story

__all__ = [
    "INVARIANTS", "Action", "BrokenPromiseError", "Outcome", "Plan", "Settings", "Simulated", "run", "run_seed",
    "shrink", "simulate", "story",
]  # fmt: skip

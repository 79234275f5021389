"""Simulated lives of a table: the real engine over a store that fails, clocks that jump, processes that die.

    simulate(1000)                     a thousand runs; the first that breaks a promise is made short and told
    run_seed(7)                        one run, the same each time, to the byte of its `digest`
    shrink(outcome)                    the shortest plan that is found which breaks the same promise
    INVARIANTS                         the promises, by name

What a seed stands for is a `Plan`: the settings of a table, and a list of actions (plan.py). A `World` lets them happen
(world.py): writers, readers, followers and services over one disk (machine.py), each action perhaps in a pause of
another one. A `Ledger` says what was written, and which rows follow (ledger.py). docs/correctness.md shows how to run
it with a payload of one's own.
"""

from __future__ import annotations

from crdt_mor.testing.simulation.invariants import INVARIANTS, BrokenPromiseError
from crdt_mor.testing.simulation.plan import Action, Plan, Settings
from crdt_mor.testing.simulation.running import Outcome, run, run_seed
from crdt_mor.testing.simulation.shrinking import shrink
from crdt_mor.testing.simulation.simulating import Simulated, simulate
from crdt_mor.testing.simulation.story import story

__all__ = [
    "INVARIANTS",
    "Action",
    "BrokenPromiseError",
    "Outcome",
    "Plan",
    "Settings",
    "Simulated",
    "run",
    "run_seed",
    "shrink",
    "simulate",
    "story",
]

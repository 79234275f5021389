"""What users of tables, and authors of payloads and stores, need for tests of their own; docs/testing.md shows how.

    oracle.py        what a table means, as a fold over a plain list
    faults.py        stores that fail, lose replies, or die at a chosen call
    clock.py         an environment whose time passes only where somebody sleeps
    store_suite.py   what every store must do, as tests for pytest
    simulation       whole lives of a table, a seed each, with everything that goes wrong; docs/correctness.md
    strategies       values of Arrow types, and written values of a payload, for hypothesis

`strategies` and `written` alone need hypothesis: `pip install "crdt-mor[testing]"`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crdt_mor.testing.clock import SimulatedEnvironment
from crdt_mor.testing.faults import DelegatingStore, FaultyStore, InterruptedStore, ProcessDied
from crdt_mor.testing.oracle import Contribution, MergeRule, fold
from crdt_mor.testing.store_suite import StoreSuite

if TYPE_CHECKING:
    from crdt_mor.laws.strategies import strategies, written

__all__ = [
    "Contribution",
    "DelegatingStore",
    "FaultyStore",
    "InterruptedStore",
    "MergeRule",
    "ProcessDied",
    "SimulatedEnvironment",
    "StoreSuite",
    "fold",
    "strategies",
    "written",
]


def __getattr__(name: str) -> Any:
    """`strategies` and `written`, when somebody asks for them, as all else does without hypothesis."""
    if name not in {"strategies", "written"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from crdt_mor.laws import strategies
    except ImportError as error:
        if error.name != "hypothesis":
            raise
        raise ImportError(f'{__name__}.{name} needs hypothesis: pip install "crdt-mor[testing]"') from error
    return getattr(strategies, name)

"""Tools for tests of users, and of authors of payloads and stores; docs/testing.md shows how.

    merge/oracle.py  the meaning of a table, as a fold over a plain list
    faults.py        stores that fail, lose replies, or die at a chosen call
    clock.py         an environment with simulated time
    store_suite.py   tests for every store, with pytest
    simulation       whole lives of a table, a seed each, with failures; docs/correctness.md
    strategies       values of Arrow types, and written values of a payload, for hypothesis

Only `strategies` and `written` need hypothesis: `pip install "crdt-mor[testing]"`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crdt_mor.merge.oracle import Contribution, MergeRule, fold
from crdt_mor.testing.clock import SimulatedEnvironment
from crdt_mor.testing.faults import DelegatingStore, FaultyStore, InterruptedStore, ProcessDied
from crdt_mor.testing.store_suite import StoreSuite

if TYPE_CHECKING:
    from crdt_mor.laws.strategies import strategies, written

__all__ = [
    "Contribution", "DelegatingStore", "FaultyStore", "InterruptedStore", "MergeRule", "ProcessDied",
    "SimulatedEnvironment", "StoreSuite", "fold", "strategies", "written",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in {"strategies", "written"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from crdt_mor.laws import strategies
    except ImportError as error:
        if error.name != "hypothesis":
            raise
        raise ImportError(f'{__name__}.{name} needs hypothesis: pip install "crdt-mor[testing]"') from error
    return getattr(strategies, name)

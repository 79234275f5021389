"""Tables in memory on a simulated clock, which is their store's clock as well: no test has to wait for an expiry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from crdt_mor import Opening, Table
from crdt_mor.store.memory import MemoryStore
from crdt_mor.testing.clock import SimulatedEnvironment


class Simulated:
    """A place in memory for one table, and its time, which passes where a test sleeps on `environment`."""

    def __init__(self) -> None:
        self.environment = SimulatedEnvironment()
        self.store = MemoryStore(self.environment.now_ms)

    def create(self, schema: pa.Schema, **settings: Any) -> Table:
        """As `Table.create`."""
        here = replace(settings.pop("opening", Opening()), store=self.store, environment=self.environment)
        return Table.create("simulated", schema, opening=here, **settings)

"""The migrations of a run: the current one, and the moved tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from crdt_mor import PartialUpdate, Table
from crdt_mor.model.policies import plural
from crdt_mor.testing.simulation.ledger import Ledger
from crdt_mor.testing.simulation.machine import Disk
from crdt_mor.testing.simulation.plan import Rule


@dataclass(frozen=True)
class Move:
    uri: str
    disk: Disk = field(repr=False)
    buckets: int
    rule: Rule | None

    @property
    def wanted(self) -> dict[str, Any]:
        merge = {"latest": "latest", "partial": PartialUpdate()}.get(self.rule or "")
        return {"buckets": self.buckets, "merge": merge}

    def __str__(self) -> str:
        merge = {"latest": ", where the latest write wins", "partial": ", where a write gives some columns"}
        return f"{self.uri}, {plural(self.buckets, 'bucket')}{merge.get(self.rule or '', '')}"


@dataclass(frozen=True)
class MovedTable:
    """A table that has moved: the observer's handle and the final ledger."""

    table: Table
    ledger: Ledger

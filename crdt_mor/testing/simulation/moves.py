"""The migrations of a run: the current one, and the moved tables.

Only the opened new table proves the end of a migration, because its process may die right afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crdt_mor import PartialUpdate, Table
from crdt_mor.log.paths import VERSIONS
from crdt_mor.model.policies import plural
from crdt_mor.testing.simulation.inside import tail_of
from crdt_mor.testing.simulation.ledger import Ledger
from crdt_mor.testing.simulation.machine import Disk
from crdt_mor.testing.simulation.plan import Rule

if TYPE_CHECKING:
    from crdt_mor.testing.simulation.world import World


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
class Left:
    """A table that has moved: the observer's handle and the final ledger."""

    table: Table
    ledger: Ledger


def has_moved(world: World, move: Move) -> bool:
    if not move.disk.list(VERSIONS):
        return False
    table = world.observed(move.uri)
    origin = tail_of(table).origin
    if origin is None or not (origin.is_opened or origin.given_up):
        return False
    if origin.given_up:
        if tail_of(world.observer).moving is None:
            world.move = None
        return False
    world.left.append(Left(world.observer, world.ledger.as_left()))
    world.ledger.move(table.history().to_pylist(), origin.opened, move.rule)
    world.observer, world.uri, world.move = table, move.uri, None
    if move.rule is not None:
        world.settings = world.ledger.settings
    _leave(world)
    return True


def _leave(world: World) -> None:
    world.state["history is given up"] = True
    for name in ("plans", "savepoints", "followers"):
        world.state.pop(name, None)

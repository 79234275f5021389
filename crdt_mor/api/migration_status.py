"""The state of a table's migration, for readers and operators."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from crdt_mor.errors import TableMovedWarning
from crdt_mor.ground.callers import callers_level
from crdt_mor.model.instant import EPOCH, to_datetime
from crdt_mor.model.migration import Moving
from crdt_mor.model.timeline import Timeline


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """A migration that is in progress, has closed this table or was given up.

    Attributes:
        role: "source" if the rows move to `uri`, "target" if they come from there.
        phase: "copying" while the source accepts writes, then "closed"; "given up" if the target never opens.
        since: UTC time at which the source was closed; None before, and for a target.
    """

    role: Literal["source", "target"]
    phase: Literal["copying", "closed", "given up"]
    uri: str
    since: datetime | None = None

    def __str__(self) -> str:
        if self.role == "target":
            return f"given up; its rows are at {self.uri}" if self.phase == "given up" else f"arriving from {self.uri}"
        if self.since is None:
            return f"under way to {self.uri}; this table still takes writes"
        return f"moved to {self.uri}; closed since {self.since:%Y-%m-%d %H:%M:%S} UTC"


def migration_status(value: Timeline) -> MigrationStatus | None:
    moving, origin = value.moving, value.origin
    if moving is not None:
        closed = to_datetime(moving.closed) if moving.is_closed else None
        return MigrationStatus("source", "copying" if closed is None else "closed", moving.uri, closed)
    if origin is not None and not origin.is_opened:
        return MigrationStatus("target", "given up" if origin.given_up else "copying", origin.uri)
    return None


def warn_of_move(moving: Moving | None) -> None:
    if moving is not None and moving.closed != EPOCH:
        warnings.warn(
            "this table has moved and shows only rows from before the move: open the new address. "
            f"moved_to={moving.uri} closed={moving.closed}",
            TableMovedWarning,
            stacklevel=callers_level(),
        )

"""How far the migration of a table is, for its readers and for operators."""

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
    """A migration that is under way, has closed this table, or was given up.

    role: "source": the rows of this table move to `uri`; "target": they come from there.
    phase: "copying": the source still takes writes; "closed": it takes none; "given up": the target is never opened.
    since: when the source was closed, in UTC; None before that, and for a target.
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
    """Return the state of a table's migration at a timeline version, or None for a table that does not move."""
    moving, origin = value.moving, value.origin
    if moving is not None:
        closed = to_datetime(moving.closed) if moving.is_closed else None
        return MigrationStatus("source", "copying" if closed is None else "closed", moving.uri, closed)
    if origin is not None and not origin.is_opened:
        return MigrationStatus("target", "given up" if origin.given_up else "copying", origin.uri)
    return None


def warn_of_move(moving: Moving | None) -> None:
    """Warn a reader of a table whose rows are elsewhere by now."""
    if moving is not None and moving.closed != EPOCH:
        warnings.warn(
            "this table has moved: it shows the rows from before the move, and no later changes. Open the new address. "
            f"moved_to={moving.uri} closed={moving.closed}",
            TableMovedWarning,
            stacklevel=callers_level(),
        )

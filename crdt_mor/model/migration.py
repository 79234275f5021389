"""The state of a migration in the timeline values of its source and target tables.

    source   moving    announced ──► closed: nothing begins there, writers go to the target
    target   origin    arriving, step by step ──► opened | given up

Each table is changed only by its own events. So a migration makes two decisions, each by a single put: source open or
closed, and target opened or given up. A source reopens only after its target was given up, and such a target never
opens. So two tables never take the same writes.

A *step* is noted before it is executed: a part of the source's history, and the token numbers of its commits. They
determine the commits, so any process can continue after the last committed number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from crdt_mor.errors import InvalidInputError, TableArrivingError, TableMovedError
from crdt_mor.model.instant import EPOCH, InstantTime

APPLICATION: Final = "crdt_mor.migrate"
"""Prefix of the application of a migration's writes, before the source's id."""


@dataclass(frozen=True, slots=True)
class Moving:
    """A migration of this table to another one.

    uri, table_id: of the target. closed: EPOCH while this table takes writes. since: later history is kept for the
    copy.
    """

    uri: str
    table_id: str
    closed: InstantTime = EPOCH
    since: InstantTime = EPOCH

    @property
    def is_closed(self) -> bool:
        return self.closed != EPOCH


@dataclass(frozen=True, slots=True)
class Step:
    """The next part to copy: commits that completed after `since`, up to `until`.

    since: EPOCH for the full snapshot. first: the number of the first commit. count: at most so many commits.
    """

    since: InstantTime = EPOCH
    until: InstantTime = EPOCH
    first: int = 1
    count: int = 0

    @property
    def next_number(self) -> int:
        return self.first + self.count


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a migration into this table.

    opened: EPOCH while rows arrive. given_up: the table never opens.
    """

    table_id: str
    uri: str
    step: Step = Step()
    opened: InstantTime = EPOCH
    given_up: bool = False

    @property
    def is_opened(self) -> bool:
        return self.opened != EPOCH

    @property
    def application(self) -> str:
        """Before it opens, the table takes writes only from this application."""
        return f"{APPLICATION}:{self.table_id}"


def require_not_moved(moving: Moving | None) -> None:
    if moving is not None and moving.is_closed:
        raise TableMovedError(
            "this table has moved: open the table at its new address and write there, with the same token if you pass "
            "tokens. Reading here still works. "
            f"moved_to={moving.uri} table_id={moving.table_id} closed={moving.closed}",
            moving.uri,
        )


def require_not_moving(moving: Moving | None, what: str) -> None:
    """Raise during a migration, because the copy would miss this change of history. what: such as "restore"."""
    require_not_moved(moving)
    if moving is not None:
        raise InvalidInputError(
            f"this table is being migrated: {what} the new table after the migration, or call cancel_migration() and "
            f"{what} this table. moves_to={moving.uri}"
        )


def require_arrived(origin: Origin | None, application: str = "") -> None:
    """Raise `TableArrivingError` before the table opens, except for the migration's application."""
    if origin is None or origin.is_opened:
        return
    if origin.given_up:
        raise TableArrivingError(
            "the migration into this table was cancelled, so rows are missing: write to its source, and delete this "
            f"table. source={origin.uri}"
        )
    if application != origin.application:
        raise TableArrivingError(
            "a migration into this table is running: write again afterwards, or to the source. If the process died, "
            f"run it again, or call cancel_migration() on the source. source={origin.uri}"
        )


# --- JSON -------------------------------------------------------------------------------------------------------------


def moving_json(moving: Moving) -> dict[str, object]:
    return {"uri": moving.uri, "table_id": moving.table_id, "closed": moving.closed, "since": moving.since}


def moving_of(found: Mapping[str, Any]) -> Moving:
    return Moving(found["uri"], found["table_id"], found["closed"], found["since"])


def origin_json(origin: Origin) -> dict[str, object]:
    step = origin.step
    return {
        "uri": origin.uri,
        "table_id": origin.table_id,
        "step": [step.since, step.until, step.first, step.count],
        "opened": origin.opened,
        "given_up": origin.given_up,
    }


def origin_of(found: Mapping[str, Any]) -> Origin:
    return Origin(found["table_id"], found["uri"], Step(*found["step"]), found["opened"], found["given_up"])

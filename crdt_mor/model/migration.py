"""What a timeline value says of a migration: at the table that moves, and at the table that its rows arrive in.

    source   moving    announced ──► closed: nothing begins there any more, writers go to the other address
    target   origin    arriving, one step after another ──► opened | given up

Each of the two is changed by events of its own table alone, so that a migration has two decisions, each made by one
put: whether the source is still open, and whether the target was opened or given up. A source is reopened only once its
target was given up, which then can never be opened: so no two tables take writes for one.

A *step* is what the migration does next, noted before it is done: which part of the source's history it copies, and the
numbers of the tokens that its commits carry. What the commits of a step hold follows from the step and from the
source's history alone, so any process that finds the note goes on from the last number that is committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from crdt_mor.errors import InvalidInputError, TableArrivingError, TableMovedError
from crdt_mor.model.instant import EPOCH, InstantTime

APPLICATION: Final = "crdt_mor.migrate"
"""What the application of a migration's writes begins with; the id of the source follows."""


@dataclass(frozen=True, slots=True)
class Moving:
    """The migration of this table to another one.

    uri, table_id: the address and the id of that table. closed: when this one was closed; EPOCH: it still takes writes.
    since: when it was announced; the history from there on is kept, as the copy follows it.
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
    """What is copied next: what the source's commits changed that completed after `since`, and not after `until`.

    since: EPOCH: all that the source shows at `until`.
    first, count: the number of the step's first commit, and how many commits it may have.
    """

    since: InstantTime = EPOCH
    until: InstantTime = EPOCH
    first: int = 1
    count: int = 0

    @property
    def next_number(self) -> int:
        """The number of the first commit after this step."""
        return self.first + self.count


@dataclass(frozen=True, slots=True)
class Origin:
    """The table whose rows arrive in this one, or have.

    table_id, uri: its id and its address.
    opened: when this table was opened for writers; EPOCH: rows still arrive.
    given_up: whether the migration was given up, so that this table is never opened.
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
        """The application whose writes alone this table takes before it is opened."""
        return f"{APPLICATION}:{self.table_id}"


def require_not_moved(moving: Moving | None) -> None:
    """Raise `TableMovedError`, with the new address, where a table is closed."""
    if moving is not None and moving.is_closed:
        raise TableMovedError(
            "this table has moved: open the table at its new address and write there, with the same token if the write "
            "has one. This one can still be read. "
            f"moved_to={moving.uri} table_id={moving.table_id} closed={moving.closed}",
            moving.uri,
        )


def require_not_moving(moving: Moving | None, what: str) -> None:
    """Raise where a table moves: what is done to its history now would not be done to the copy. what: "restore"."""
    require_not_moved(moving)
    if moving is not None:
        raise InvalidInputError(
            f"this table is being migrated, and the copy follows its history: {what} the new table when the migration "
            f"is over, or give that up, with cancel_migration(), and {what} this one. moves_to={moving.uri}"
        )


def require_arrived(origin: Origin | None, application: str = "") -> None:
    """Raise `TableArrivingError` where rows of another table still arrive, unless they do by this very application."""
    if origin is None or origin.is_opened:
        return
    if origin.given_up:
        raise TableArrivingError(
            "the migration that was to fill this table was given up, so that it has only some of the rows: write to "
            f"the table that they come from, and remove this one. source={origin.uri}"
        )
    if application != origin.application:
        raise TableArrivingError(
            "the rows of another table still arrive here: write again in a moment, when the migration is over, or to "
            "the other table as long as it takes writes. If the migration has died, run it again, it goes on; "
            f"cancel_migration() of the other table gives it up. source={origin.uri}"
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

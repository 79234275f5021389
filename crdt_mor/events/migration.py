"""A migration's events, as protocol steps: those of the table that moves, and those of the table that it moves to.

    source   announce ──► close           reopen, once the target was given up
    target   receive ──► aim … ──► open   give_up_arrival

Each is derived from the tail, like every event, so that a process that slept finds out what became of the migration.
"""

from __future__ import annotations

from dataclasses import replace

from crdt_mor.errors import InvalidInputError, TableExistsError, TableReplacedError
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.log.steps import Nonce, Steps
from crdt_mor.log.stopping import require_open
from crdt_mor.model.authors import Author
from crdt_mor.model.handover import require_not_handed_over
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.migration import Moving, Origin, Step, require_arrived, require_not_moved, require_not_moving
from crdt_mor.model.timeline import Timeline
from crdt_mor.planners.migration import arriving, closed, moving_to, opened


def require_restorable(tail: Timeline) -> None:
    """Raise where the table must not be restored: it moves, or has moved, is still being filled, or is handed over."""
    require_not_moving(tail.moving, "restore")
    require_arrived(tail.origin)
    require_not_handed_over(tail.handed_over)


# --- the table that moves ---------------------------------------------------------------------------------------------


def announce(publisher: TablePublisher, known: Timeline, moving: Moving) -> Steps[Timeline]:
    """The table is about to move; it still takes writes. Raises where it moves, or has moved, to another address."""
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        if tail.moving is None:
            require_open(tail, None)
            return moving_to(tail, nonce, wall_ms, moving)
        if tail.moving.table_id != moving.table_id:
            require_not_moved(tail.moving)
            raise InvalidInputError(
                "another migration of this table is under way: call migrate with its address, which goes on with it, "
                f"or give it up with cancel_migration(). moves_to={tail.moving.uri} asked={moving.uri}"
            )
        return None

    return (yield from publisher.publish(derive, known))


def close(publisher: TablePublisher, known: Timeline, table_id: str) -> Steps[Timeline]:
    """Nothing begins in the table from here on. Raises where its migration to this table was given up."""
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        if tail.moving is None or tail.moving.table_id != table_id:
            raise InvalidInputError(f"this migration was given up: the table stays where it is. target={table_id}")
        return None if tail.moving.is_closed else closed(tail, nonce, wall_ms)

    return (yield from publisher.publish(derive, known))


def reopen(publisher: TablePublisher, known: Timeline, table_id: str) -> Steps[Timeline]:
    """The table does not move to that table. Precondition: that one was given up, or is gone."""
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        if tail.moving is None or tail.moving.table_id != table_id:
            return None
        return moving_to(tail, nonce, wall_ms, None)

    return (yield from publisher.publish(derive, known))


# --- the table that it moves to ---------------------------------------------------------------------------------------


def receive(publisher: TablePublisher, known: Timeline, origin: Origin) -> Steps[Timeline]:
    """The rows of another table arrive in a table that was just made; raises where something else has happened here.

    Nothing happens where they arrive already, or where that was given up, as the value returned says.
    """
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        if tail.origin is None and tail.version == 0:
            return arriving(tail, nonce, wall_ms, origin)
        if tail.origin is None or tail.origin.table_id != origin.table_id:
            raise TableExistsError(
                "there is a table already at the address to move to, and it was not made for this migration: give an "
                f"address where there is none. found={tail.table_id} version={tail.version}"
            )
        return None

    return (yield from publisher.publish(derive, known))


def aim(publisher: TablePublisher, known: Timeline, until: InstantTime, count: int) -> Steps[Timeline]:
    """The next step is the changes up to `until`, in `count` commits. Nothing happens where others have aimed since.

    known: a value whose step is done.
    """
    nonce = yield Nonce()
    assert known.origin is not None
    done = known.origin.step
    step = Step(done.until, until, done.next_number, count)

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        origin = tail.origin
        if origin is None or origin.step != done or origin.is_opened or origin.given_up:
            return None
        return arriving(tail, nonce, wall_ms, replace(origin, step=step))

    return (yield from publisher.publish(derive, known))


def open_target(
    publisher: TablePublisher, known: Timeline, source: Timeline, author: Author | None = None
) -> Steps[Timeline]:
    """The table takes writes; raises `TableArrivingError` where the migration was given up.

    known: a value whose step is done, and was the last one then. source: the newest value of the closed source. Nothing
    happens where others have aimed at another step since, which is to be done first.
    """
    nonce = yield Nonce()
    assert known.origin is not None
    done = known.origin.step

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        origin = tail.origin
        assert origin is not None
        if origin.given_up:
            require_arrived(origin)
        if origin.is_opened or origin.step != done:
            return None
        return opened(tail, nonce, wall_ms, source, author)

    return (yield from publisher.publish(derive, known))


def give_up_arrival(publisher: TablePublisher, known: Timeline, table_id: str) -> Steps[Timeline]:
    """The table is never opened; raises where it has been, or where the rows of another table arrive in it."""
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        origin = tail.origin
        if origin is None or origin.table_id != table_id:
            raise TableReplacedError(
                "the table at the new address is not the one that this migration has made: remove that one, and call "
                f"again. found={tail.table_id}"
            )
        if origin.is_opened:
            raise InvalidInputError(
                "the migration is over, and the new table takes writes: it cannot be given up any more. To go back, "
                f"migrate the new table to another address. opened={origin.opened}"
            )
        return None if origin.given_up else arriving(tail, nonce, wall_ms, replace(origin, given_up=True))

    return (yield from publisher.publish(derive, known))

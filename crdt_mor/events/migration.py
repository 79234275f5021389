"""Events of a migration, as protocol steps in the source and the target table.

    source   announce ──► close           reopen, once the target was given up
    target   receive ──► aim … ──► open   give_up_arrival

Each derives from the tail, so a process that slept sees the migration's progress.
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
    require_not_moving(tail.moving, "restore")
    require_arrived(tail.origin)
    require_not_handed_over(tail.handed_over)


# --- the table that moves ---------------------------------------------------------------------------------------------


def announce(publisher: TablePublisher, known_tail: Timeline, moving: Moving) -> Steps[Timeline]:
    """Announce the move; the table still takes writes. Raises if another move is announced."""
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        if tail.moving is None:
            require_open(tail, None)
            return moving_to(tail, nonce, wall_ms, moving)
        if tail.moving.table_id != moving.table_id:
            require_not_moved(tail.moving)
            raise InvalidInputError(
                "another migration of this table is under way. Continue it by calling migrate with its address, or "
                f"stop it with cancel_migration(). moves_to={tail.moving.uri} asked={moving.uri}"
            )
        return None

    return (yield from publisher.publish(derive, known_tail))


def close(publisher: TablePublisher, known_tail: Timeline, table_id: str) -> Steps[Timeline]:
    """Stop new writes. Raises if the migration was given up."""
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        if tail.moving is None or tail.moving.table_id != table_id:
            raise InvalidInputError(
                f"this migration was given up, and the table stays at its address. target={table_id}"
            )
        return None if tail.moving.is_closed else closed(tail, nonce, wall_ms)

    return (yield from publisher.publish(derive, known_tail))


def reopen(publisher: TablePublisher, known_tail: Timeline, table_id: str) -> Steps[Timeline]:
    """End the move. Precondition: the target was given up, or is gone."""
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        if tail.moving is None or tail.moving.table_id != table_id:
            return None
        return moving_to(tail, nonce, wall_ms, None)

    return (yield from publisher.publish(derive, known_tail))


# --- the table that it moves to ---------------------------------------------------------------------------------------


def receive(publisher: TablePublisher, known_tail: Timeline, origin: Origin) -> Steps[Timeline]:
    """Begin to fill a new target table, unless begun or given up. Raises for any other table."""
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        if tail.origin is None and tail.version == 0:
            return arriving(tail, nonce, wall_ms, origin)
        if tail.origin is None or tail.origin.table_id != origin.table_id:
            raise TableExistsError(
                "the target address already contains another table. Use an address without a table. "
                f"found={tail.table_id} version={tail.version}"
            )
        return None

    return (yield from publisher.publish(derive, known_tail))


def aim(publisher: TablePublisher, known_tail: Timeline, until: InstantTime, count: int) -> Steps[Timeline]:
    """Set the next step unless another process has set one: the changes up to `until`, in `count` commits.

    known_tail: a value after the previous step.
    """
    nonce = yield Nonce()
    assert known_tail.origin is not None
    done = known_tail.origin.step
    step = Step(done.until, until, done.next_number, count)

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        origin = tail.origin
        if origin is None or origin.step != done or origin.is_opened or origin.given_up:
            return None
        return arriving(tail, nonce, wall_ms, replace(origin, step=step))

    return (yield from publisher.publish(derive, known_tail))


def open_target(
    publisher: TablePublisher, known_tail: Timeline, source: Timeline, author: Author | None = None
) -> Steps[Timeline]:
    """Let the target take writes, unless others have set another step. Raises `TableArrivingError` if it was given up.

    known_tail: a value with its last step done. source: the newest value of the closed source.
    """
    nonce = yield Nonce()
    assert known_tail.origin is not None
    done = known_tail.origin.step

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        origin = tail.origin
        assert origin is not None
        if origin.given_up:
            require_arrived(origin)
        if origin.is_opened or origin.step != done:
            return None
        return opened(tail, nonce, wall_ms, source, author)

    return (yield from publisher.publish(derive, known_tail))


def give_up_arrival(publisher: TablePublisher, known_tail: Timeline, table_id: str) -> Steps[Timeline]:
    """Give the target up for good. Raises if the target was opened, or belongs to another source."""
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        origin = tail.origin
        if origin is None or origin.table_id != table_id:
            raise TableReplacedError(
                "the table at the new address does not belong to this migration. Remove that table, then call "
                f"again. found={tail.table_id}"
            )
        if origin.is_opened:
            raise InvalidInputError(
                "the migration is complete and the new table takes writes, so giving up is too late. To go back, "
                f"migrate the new table to another address. opened={origin.opened}"
            )
        return None if origin.given_up else arriving(tail, nonce, wall_ms, replace(origin, given_up=True))

    return (yield from publisher.publish(derive, known_tail))

"""Giving a pending write up: one event rolls it back, and only then are its files removed (rule 3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from crdt_mor.errors import StorageUnavailableError, TableNotFoundError, TableReplacedError
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import DELTA_COMMIT, data_file_name
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import RolledBack
from crdt_mor.timeline.history import find_completion
from crdt_mor.timeline.paths import STAGED, heartbeat_path, ticket_path
from crdt_mor.timeline.projection import TablePublisher
from crdt_mor.timeline.steps import Delete, List, Nonce, Steps, Walk
from crdt_mor.timeline.tail import delete_if_table_is_gone


def give_up(
    publisher: TablePublisher,
    known: Timeline,
    requested: InstantTime,
    staged: Sequence[str] | None,
    driver: str | None = None,
) -> Steps[Timeline]:
    """Roll a pending write back, then remove its files: `staged`, or, where unknown, all that bear its instant.

    driver: who gives up; a write that another driver has taken over goes on, and only `staged` is removed.
    """
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        pending = tail.find_pending(requested)
        if pending is None or (driver is not None and pending.driver not in ("", driver)):
            return None
        return tail.roll_back(nonce, wall_ms, requested)

    try:
        value = yield from publisher.publish(derive, known)
    except (TableReplacedError, TableNotFoundError):
        # A table that was made here since would have the files, and Hudi's readers would show them.
        yield from delete_if_table_is_gone(known, staged or ())
        raise
    gone = value.find_rolled_back(requested)
    if gone is not None:
        with suppress(StorageUnavailableError):  # it is rolled back, and what is left of it will be swept
            yield from _remove_files(publisher, gone, None if driver else staged)  # other drivers' files as well
    elif staged:
        done = yield from find_completion(requested, value)
        for path in staged if done is None or done.driver != (driver or "") else ():
            yield Delete(path)
    return value


def _remove_files(publisher: TablePublisher, gone: RolledBack, staged: Iterable[str] | None) -> Steps[None]:
    """Remove the files of a rolled-back write: the data files first, and only once all of them are gone the others."""
    requested = gone.requested
    if staged is None:
        found = [(file.path, data_file_name(file.path)) for file in (yield Walk())]
        staged = [path for path, name in found if name is not None and name.instant == requested]
        yield from remove_staged_files(requested, gone.nonce)
    yield Delete(heartbeat_path(requested))
    left = False
    for path in staged:
        left |= not (yield Delete(path))
    if not left:
        for path in reversed(publisher.projector.pending_paths(requested, DELTA_COMMIT)):
            yield Delete(path)


def remove_staged_files(requested: InstantTime, nonce: str) -> Steps[None]:
    """Remove what the tasks of a distributed write staged and nobody needs any more, and its ticket."""
    yield Delete(ticket_path(nonce))
    for stat in (yield List(STAGED)):
        if stat.path.startswith(f"{STAGED}/{requested}-"):
            yield Delete(stat.path)

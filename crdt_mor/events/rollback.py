"""Give up a pending write: one event rolls it back, then its files are removed (rule 3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from crdt_mor.errors import StorageUnavailableError, TableNotFoundError, TableReplacedError
from crdt_mor.ground.observing_events import RollbackEvent
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.log.outcome import find_completion, may_be_dropped
from crdt_mor.log.paths import STAGED, heartbeat_path, ticket_path
from crdt_mor.log.steps import Delete, List, Nonce, Steps, Walk, delete_for_good
from crdt_mor.log.tail import delete_if_table_is_gone, find_tail
from crdt_mor.model.instant import InstantTime, to_ms
from crdt_mor.model.names import DELTA_COMMIT, data_file_name
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import RolledBack


def give_up(
    publisher: TablePublisher,
    known_tail: Timeline,
    requested: InstantTime,
    staged: Sequence[str] | None,
    driver: str | None = None,
    others: bool = False,
) -> Steps[Timeline]:
    """Roll back a pending write, then remove its data files.

    staged: the file paths; None to list all files of the instant. others: another process's write.
    driver: the driver that gives up. If another driver took over, only `staged` is removed.
    """
    nonce = yield Nonce()
    ours = False

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        nonlocal ours
        pending = tail.find_pending(requested)
        ours = pending is not None and (driver is None or pending.driver in ("", driver))
        return None if not ours else tail.roll_back(nonce, wall_ms, requested)

    try:
        value = yield from publisher.publish(derive, known_tail)
    except (TableReplacedError, TableNotFoundError):
        # A table created here since would show these files to Hudi's readers. The new table's own files stay.
        files_of_new_table = yield from _files_of_table_here(requested, staged or ())
        yield from delete_if_table_is_gone(
            known_tail, [path for path in staged or () if path not in files_of_new_table]
        )
        raise
    rolled_back = value.find_rolled_back(requested)
    if rolled_back is not None:
        if ours:
            publisher.tell(RollbackEvent(requested=requested, version=value.version, others=others))
        with suppress(StorageUnavailableError):  # a sweep removes the rest
            yield from remove_files(publisher, rolled_back, None if driver else staged)  # None: of all drivers
    elif staged:
        completion = yield from find_completion(requested, value)
        unknown = completion is None and may_be_dropped(requested, value)  # perhaps a commit; a sweep removes the rest
        ours = completion is not None and completion.driver == (driver or "")
        if not (ours or unknown):
            yield from delete_for_good(staged)
    return value


def _files_of_table_here(requested: InstantTime, staged: Iterable[str]) -> Steps[frozenset[str]]:
    """Return the staged files that a new table here may also contain: its writes may have the same instant."""
    try:
        tail = yield from find_tail(None)
    except TableNotFoundError:
        return frozenset()
    if tail.find_pending(requested) is not None:
        return frozenset(staged)  # any of them may be put soon
    completion = yield from find_completion(requested, tail)
    return frozenset() if completion is None else frozenset(file.path for file in completion.files)


def give_up_claim(publisher: TablePublisher, known_tail: Timeline, requested: InstantTime) -> Steps[Timeline]:
    """Give up a claimed write that no version contains, then remove its files. First the clock passes its time."""
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        return None if requested < tail.clock else tail.decide(nonce, max(wall_ms, to_ms(requested) + 1))

    value = yield from publisher.publish(derive, known_tail)
    if (yield from find_completion(requested, value)) is None:
        with suppress(StorageUnavailableError):  # a sweep removes the rest
            yield from _remove(publisher, requested, (yield from _files_of(requested)))
    return value


def remove_files(publisher: TablePublisher, rolled_back: RolledBack, staged: Iterable[str] | None) -> Steps[None]:
    """Remove the files of a rolled-back write. Files in Hudi's timeline go last, after all data files."""
    requested = rolled_back.requested
    if staged is None:
        staged = yield from _files_of(requested)
        yield from remove_staged_files(requested, rolled_back.nonce)
    yield Delete(heartbeat_path(requested))
    yield from _remove(publisher, requested, staged)


def _files_of(requested: InstantTime) -> Steps[list[str]]:
    data_files = [(file.path, data_file_name(file.path)) for file in (yield Walk())]
    return [path for path, name in data_files if name is not None and name.instant == requested]


def _remove(publisher: TablePublisher, requested: InstantTime, staged: Iterable[str]) -> Steps[None]:
    if (yield from delete_for_good([*staged])):
        for path in reversed(publisher.projector.pending_paths(requested, DELTA_COMMIT)):
            yield Delete(path)


def remove_staged_files(requested: InstantTime, nonce: str) -> Steps[None]:
    yield Delete(ticket_path(nonce))
    for stat in (yield List(STAGED)):
        if stat.path.startswith(f"{STAGED}/{requested}-"):
            yield Delete(stat.path)

"""Create a copy of a table or move the copy to a later moment, by deciding puts. See docs/design/copy.md.

    note       put the source's version m first: the moments that the copy may show
    objects    put the objects that m names (`services.copy`)
    versions   put m as first version; or a bridge for each version between the copy's tail and m, then m

The versions have no gap, so writers race for the next version as usual. A bridge repeats the tail (`planners.copy`): a
process that dies between bridges leaves the earlier moment. If somebody writes to the copy, its tail matches no note
and the copy is not moved.
"""

from __future__ import annotations

from collections.abc import Sequence

from crdt_mor.errors import CommitUnknownError, InvalidInputError, TableNotFoundError
from crdt_mor.log.deciding import deciding
from crdt_mor.log.paths import COPIED, copied_path, version_path
from crdt_mor.log.steps import PUTS_MAX, List, MakeDurable, Nonce, Pause, Put, Read, Steps, Together, put_surely
from crdt_mor.log.tail import find_tail, is_newest
from crdt_mor.model.timeline import Timeline
from crdt_mor.planners.copy import bridge, differs_only_in_clocks
from crdt_mor.store.protocol import Stat


def note(value: Timeline, data: bytes) -> Steps[None]:
    """Put a note with the source version to show, byte for byte."""
    yield from put_surely(Put(copied_path(value.version), data))


def notes() -> Steps[list[Timeline]]:
    listed: list[Stat] = yield List(COPIED)
    contents = (yield Together(tuple(Read(stat.path) for stat in listed))) if listed else []
    found = zip(listed, contents, strict=True)
    return [Timeline.decode(data, stat.path) for stat, data in found if data is not None]


def tail_of_copy(known_tail: Timeline | None = None) -> Steps[Timeline | None]:
    try:
        return (yield from find_tail(known_tail))
    except TableNotFoundError:
        return None


def require_movable(value: Timeline) -> Steps[None]:
    """Raise unless the copy can move to `value`, as far as known beforehand."""
    tail = yield from tail_of_copy()
    if tail is not None:
        _shown(value, *(yield from _with_notes(tail, value)))


def publish(value: Timeline, data: bytes) -> Steps[Timeline | None]:
    """Make the copy show `value`, whose objects exist. Returns the copy's newest version.

    None if another process copies a later moment. Copy that then: this moment's objects may have come too late to be
    removed. Raises `InvalidInputError` if the copy contains other commits.
    """
    seen, tries, tail = -1, 0, None
    with deciding() as decision:
        while True:
            tail = yield from tail_of_copy(tail)  # from no bridge of ours: it may be a ghost
            if tail is not None and (tail.version, tail.nonce) == (value.version, value.nonce):
                yield MakeDurable(version_path(tail.version))
                return tail
            if tail is not None:
                tail, moments = yield from _with_notes(tail, value)
                shown = _shown(value, tail, moments)
                if tail.version >= value.version:
                    yield MakeDurable(version_path(tail.version))
                    return shown
            version = -1 if tail is None else tail.version
            seen, tries = version, tries + 1 if version == seen else 0
            if tries == PUTS_MAX:
                raise CommitUnknownError(
                    "the store neither created the copy's next version nor reported an existing one. Run the copy "
                    f"again. path={version_path(version + 1)} tries={PUTS_MAX}"
                )
            if tries:
                yield Pause(tries)
            created: bool | None = False
            if tail is None or tail.version + 1 == value.version:
                created = yield Put(version_path(value.version), data, decides=True)
            else:
                yield from _bridge(tail, value)
            decision.is_made |= created is not False  # bridges show nothing new
            if created and (yield from is_newest(value)):
                return value


def _bridge(tail: Timeline, value: Timeline) -> Steps[None]:
    """Put the versions between the tail and `value` until another process is faster.

    Their names become durable with `value`'s name, but their contents must be durable at once, as an empty object is no
    version.
    """
    for _ in range(tail.version + 1, value.version):
        nonce = yield Nonce()
        tail = bridge(tail, nonce)
        if not (yield Put(version_path(tail.version), tail.encode(), "content", decides=True)):
            return


def _with_notes(tail: Timeline, value: Timeline) -> Steps[tuple[Timeline, list[Timeline]]]:
    """Return notes and their tail; it may be newer, as other copies remove earlier notes."""
    while True:
        moments = [moment for moment in (yield from notes()) if moment.table_id == value.table_id]
        if tail.table_id == value.table_id and any(differs_only_in_clocks(tail, moment) for moment in moments):
            return tail, moments
        newest = yield from tail_of_copy(tail)
        if newest is None or newest.version == tail.version:
            raise InvalidInputError(
                "the copy contains its own commits or events, and moving the copy would lose them. Nothing was "
                "changed. Copy to another address, or remove the copy and copy again. "
                f"version={tail.version} clock={tail.clock}"
            )
        tail = newest


def _shown(value: Timeline, tail: Timeline, moments: Sequence[Timeline]) -> Timeline | None:
    """Return the tail if it shows `value`."""
    if tail.version < value.version:
        if tail.clock > value.clock:
            raise _ahead(tail, value)
        return None
    if max(moment.version for moment in moments if differs_only_in_clocks(tail, moment)) == value.version:
        return tail
    if max(moment.version for moment in moments) <= value.version:
        raise _ahead(tail, value)
    return None


def _ahead(tail: Timeline, value: Timeline) -> InvalidInputError:
    return InvalidInputError(
        "readers of the copy asked for later moments, and each adds an event, so the copy is ahead of its source. "
        f"Update the copy after later events of the source, or copy to another address. copy={tail.version} "
        f"copy_clock={tail.clock} source={value.version} source_clock={value.clock}"
    )

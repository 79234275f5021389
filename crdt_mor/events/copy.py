"""A copy of a table begins, or moves on to a later moment of the table that it is a copy of: the put that decides it.

    note       the source's version m, put before anything else of it: which moments the copy may show
    objects    what m names (`services.copy`)
    versions   the first one of the copy is m; else a bridge for each version between its tail and m, and then m

All are put if absent. The versions of the copy have no gap, so a process that has the copy open finds m above the
version that it knows, and one that writes to the copy wins or loses the next version as it does against every writer.
Bridges say what the copy's tail says (`planners.copy`): a process that dies between them leaves the earlier moment.

What the tail of a copy says is what one of its notes says, unless somebody has written there: then it is a table with
commits of its own, and is not moved.
"""

from __future__ import annotations

from collections.abc import Sequence

from crdt_mor.errors import CommitUnknownError, InvalidInputError, TableNotFoundError
from crdt_mor.log.deciding import deciding
from crdt_mor.log.paths import COPIED, copied_path, version_path
from crdt_mor.log.steps import PUTS_MAX, List, MakeDurable, Nonce, Pause, Put, Read, Steps, put_surely
from crdt_mor.log.tail import find_tail
from crdt_mor.model.timeline import Timeline
from crdt_mor.planners.copy import bridge, says_the_same
from crdt_mor.store.protocol import Stat


def note(value: Timeline, data: bytes) -> Steps[None]:
    """Note in the copy which version of the source it is to show. data: that version, byte for byte."""
    yield from put_surely(Put(copied_path(value.version), data))


def notes() -> Steps[list[Timeline]]:
    """The versions of the source that are noted in a copy; none where there is no copy."""
    listed: list[Stat] = yield List(COPIED)
    found = []
    for stat in listed:
        data = yield Read(stat.path)
        if data is not None:
            found.append(Timeline.decode(data, stat.path))
    return found


def tail_of_copy() -> Steps[Timeline | None]:
    """The newest version of a copy; None where it has none yet."""
    try:
        return (yield from find_tail(None))
    except TableNotFoundError:
        return None


def require_movable(value: Timeline) -> Steps[None]:
    """Raise unless the copy may be made to show the source's version `value`, as far as it is known before."""
    tail = yield from tail_of_copy()
    if tail is not None and tail.version >= value.version:
        yield from _beyond(tail, value)
    elif tail is not None:
        yield from _require_earlier(tail, value)


def publish(value: Timeline, data: bytes) -> Steps[Timeline | None]:
    """Make the copy show the source's version `value`, whose objects are there; the newest version of the copy then.

    None where another process copies a later moment, or has: then that is to be copied, as what was put for this one
    may have come too late to be removed. Raises `InvalidInputError` where the copy has commits of its own.
    """
    seen, tries = -1, 0
    with deciding() as decision:
        while True:
            tail = yield from tail_of_copy()
            if tail is not None and (tail.version, tail.nonce) == (value.version, value.nonce):
                yield MakeDurable(version_path(tail.version))
                return tail
            if tail is not None and tail.version >= value.version:
                return (yield from _beyond(tail, value))
            if tail is not None:
                yield from _require_earlier(tail, value)
            version = -1 if tail is None else tail.version
            seen, tries = version, tries + 1 if version == seen else 0
            if tries == PUTS_MAX:
                raise CommitUnknownError(
                    "the store makes no next version in the copy, nor does it say that there is one: run the copy "
                    f"again. path={version_path(version + 1)} tries={PUTS_MAX}"
                )
            if tries:
                yield Pause(tries)
            if tail is None or tail.version + 1 == value.version:
                yield Put(version_path(value.version), data, decides=True)
            else:
                yield from _bridge(tail, value)
            decision.is_made = True


def _bridge(tail: Timeline, value: Timeline) -> Steps[None]:
    """Put the versions between the tail and `value`, one after another, until one is taken.

    Their names last with that of `value`, in the same folder: where a power cut comes before, what is left says the
    same. What they hold has to last by itself, as an empty object is no version.
    """
    for _ in range(tail.version + 1, value.version):
        nonce = yield Nonce()
        tail = bridge(tail, nonce)
        if not (yield Put(version_path(tail.version), tail.encode(), "content", decides=True)):
            return


def _beyond(tail: Timeline, value: Timeline) -> Steps[Timeline | None]:
    """What `publish` gives where the copy has had as many versions as the source, or more."""
    moments = yield from notes()
    shown = _require_moment(tail, value, moments)
    if shown.version == value.version:
        return tail
    if max(moment.version for moment in moments) <= value.version:
        raise _ahead(tail, value)
    return None


def _require_earlier(tail: Timeline, value: Timeline) -> Steps[None]:
    """Raise unless the copy shows an earlier moment of the same table, and nothing else."""
    _require_moment(tail, value, (yield from notes()))
    if tail.clock > value.clock:
        raise _ahead(tail, value)


def _require_moment(tail: Timeline, value: Timeline, moments: Sequence[Timeline]) -> Timeline:
    """The latest moment of the source that says what the copy's tail says; raises where none does."""
    same = [moment for moment in moments if says_the_same(tail, moment)]
    if tail.table_id != value.table_id or not same:
        raise InvalidInputError(
            "the copy has commits of its own, or other events, which would be lost if it were moved to a later moment "
            "of the table: nothing was changed. Copy to another address; or, if what was written here is not wanted, "
            f"remove the copy and copy again. version={tail.version} clock={tail.clock}"
        )
    return max(same, key=lambda moment: moment.version)


def _ahead(tail: Timeline, value: Timeline) -> InvalidInputError:
    return InvalidInputError(
        "the copy was asked for moments after its own, each of which is an event of its timeline, so that it is ahead "
        "of the table that it is a copy of: update it when that has had later events, or copy to another address. "
        f"copy={tail.version} copy_clock={tail.clock} source={value.version} source_clock={value.clock}"
    )

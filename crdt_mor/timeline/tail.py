"""The tail: the newest version of the timeline. How it is found, and how the oldest versions are deleted.

    find_tail    remembered value ─ gallop upward ─ look again that it still stands;  else list, take the highest

The two belong together. Versions are deleted strictly oldest first, so a version that still stands vouches for all that
were found above it: none of them was deleted, and none is a *ghost*, an object that a late put has left below the tail.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from crdt_mor.errors import FormatError, StorageUnavailableError, TableNotFoundError, TableReplacedError
from crdt_mor.model.timeline import Timeline
from crdt_mor.timeline.paths import OWN_FOLDER, VERSIONS, version_path
from crdt_mor.timeline.steps import Delete, GetStat, List, Read, Steps

KEPT_VERSIONS = 512
"""Versions behind the tail that are kept, so that who remembers one of them finds the tail without a listing."""


def find_tail(known: Timeline | None) -> Steps[Timeline]:
    """The newest value; `known` is one that was genuine once, and makes it cheap.

    Raises `TableReplacedError` where the table is no longer the one that `known` is of.
    """
    if known is not None:
        tail = yield from _gallop(known)
        if tail is not None:
            return tail
    while True:
        names = yield List(VERSIONS)
        if not names:
            raise TableNotFoundError(f"there is no timeline here; was the table's {OWN_FOLDER} folder removed?")
        path = names[-1].path
        data = yield Read(path)
        if data is None:
            continue  # deleted since: the tail has moved on
        found = _value_at(data, path)
        if known is not None and (yield from _is_elsewhere(known, found)):
            raise replaced(known.table_id, found.table_id)
        # Between listing and reading it may have been deleted and put again by somebody who was late: a ghost. But then
        # more than KEPT_VERSIONS newer ones had been published by the time it was read, and a listing shows the newest.
        names = yield List(VERSIONS)
        if names and names[-1].path < version_path(found.version + KEPT_VERSIONS):
            tail = yield from _gallop(found)
            if tail is not None:
                return tail


def _value_at(data: bytes, path: str) -> Timeline:
    """The value of a version, which must be the one that its name says: it would be looked for in another place."""
    found = Timeline.decode(data, path)
    if version_path(found.version) != path:
        raise FormatError(f"this is another version than its name says: restore it. file={path} found={found.version}")
    return found


def is_kept(known: Timeline, tail: Timeline) -> bool:
    """Whether `known` still has to stand where `tail` is the newest version, so that who misses it is elsewhere."""
    return tail.version < known.version + KEPT_VERSIONS


def _is_elsewhere(known: Timeline, found: Timeline) -> Steps[bool]:
    """Whether `found`, the newest version, tells that the table of `known` is not the one that is there."""
    if _is_foreign(found, known):
        return True
    return is_kept(known, found) and not (yield from still_stands(known))


def _is_foreign(found: Timeline, known: Timeline) -> bool:
    """Whether a value is certainly of another table. A table that was made without an id may have one by now."""
    return known.table_id is not None and found.table_id != known.table_id


def replaced(opened: str | None, found: str | None) -> TableReplacedError:
    """The refusal to go on in a table with what belongs to another one."""
    return TableReplacedError(
        "the table here is another one than the one that was opened: it was removed and made again, or restored from a "
        f"copy. Nothing was written; open it anew. opened={opened} found={found}"
    )


def _gallop(start: Timeline) -> Steps[Timeline | None]:
    """The tail above `start`; None if `start` is no longer there.

    Versions stand without a gap from the oldest kept one to the tail, so galloping and halving find the end. A probe
    that hits nothing may have hit a deleted version, so `start` is read again *after* the last probe: versions go
    oldest first, and if `start` still stands, nothing above it was ever deleted, nor is anything found there a ghost.
    """
    low, step = start.version, 1
    while (yield GetStat(version_path(low + step))) is not None:
        low, step = low + step, step * 2
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        if (yield GetStat(version_path(middle))) is not None:
            low = middle
        else:
            high = middle
    tail = start
    if low != start.version:
        data = yield Read(version_path(low))
        if data is None:
            return None
        tail = _value_at(data, version_path(low))
    if not (yield from still_stands(start)):
        return None
    if _is_foreign(tail, start):
        raise replaced(start.table_id, tail.table_id)  # `start` stands, so a writer of an earlier table died here
    return tail


def delete_if_table_is_gone(known: Timeline, paths: Iterable[str]) -> Steps[None]:
    """Delete what was put for an event of `known`, whose publication was refused, where its table is no longer there.

    A table that is there refuses as well, while something that a process of another one has put stands above its tail;
    then the event may be part of it already.
    """
    for path in paths if not (yield from _is_here(known)) else ():
        yield Delete(path)


def _is_here(known: Timeline) -> Steps[bool]:
    """Whether the table of `known` is the one that is there, which the oldest version tells. When in doubt, yes."""
    if (yield from still_stands(known)):
        return True
    names = yield List(VERSIONS)
    if not names or known.table_id is None:
        return False
    data = yield Read(names[0].path)
    return data is None or not _is_foreign(_value_at(data, names[0].path), known)


def still_stands(value: Timeline) -> Steps[bool]:
    data = yield Read(version_path(value.version))
    return data is not None and value.is_in(data)


def expire_versions(tail: Timeline) -> Steps[None]:
    """Delete the versions that are too old, strictly oldest first and one at a time. Safety rests on that order.

    So the first version that cannot be deleted ends it: the next publisher whose turn it is tries again.
    """
    with suppress(StorageUnavailableError):  # the event is published, and old versions do no harm
        names = yield List(VERSIONS)
        if not (yield from still_stands(tail)):
            return  # the listing may be of another table, which was made here since
        for name in names:
            if name.path >= version_path(tail.version - KEPT_VERSIONS) or not (yield Delete(name.path)):
                return

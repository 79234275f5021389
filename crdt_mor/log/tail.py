"""The tail: the newest version of the timeline. How to find it, and how old versions are deleted.

    find_tail    remembered value ─ gallop upward ─ check that it still stands;  else list, take the highest

Versions are deleted strictly oldest first, those before a restore at once. So a version that still stands vouches for
all versions found above: none was deleted, and none is a *ghost*, an object that a late put left below the tail.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NewType

from crdt_mor.errors import FormatError, StorageUnavailableError, TableNotFoundError, TableReplacedError
from crdt_mor.log.paths import OWN_FOLDER, VERSIONS, is_version, version_path
from crdt_mor.log.segments import SegmentGoneError, with_objects
from crdt_mor.log.steps import Delete, GetStat, List, Read, Single, Steps, Together
from crdt_mor.model.restore import restored_since
from crdt_mor.model.timeline import Timeline
from crdt_mor.store.protocol import Stat, Store, numbered

Tail = NewType("Tail", Timeline)
"""The newest value when a process looked: it contains the outcome of the process's event, and maybe later events."""

KEPT_VERSIONS = 128
"""Versions kept behind the tail, so a process with a recent version needs no listing."""


_PROBES = 4
"""Later versions to check in parallel."""

_STEP_MAX = 1 << 40
"""The step that ends a climb: a store with so many versions claims that every name exists."""

_AHEAD = 2
"""Later versions to read when looking repeatedly."""


def listed_versions() -> Steps[list[Stat]]:
    return _versions((yield List(VERSIONS, numbered=True)))


def versions_in(store: Store) -> list[Stat]:
    return _versions(numbered(store, VERSIONS))


def _versions(listed: Sequence[Stat]) -> list[Stat]:
    return [stat for stat in listed if is_version(stat.path)]


def find_tail(known_tail: Timeline | None) -> Steps[Tail]:
    """Return the newest value, searched from `known_tail`, without a listing.

    Raises `TableReplacedError` if the table of `known_tail` was replaced.
    """
    tail = yield from _find_tail(known_tail)
    while True:
        if tail is known_tail:
            return Tail(tail)
        try:
            return Tail((yield from with_objects(tail, known_tail)))
        except SegmentGoneError:  # damage, unless this version was deleted as well meanwhile
            later = yield from _find_tail(known_tail)
            if later.version == tail.version:
                raise
            tail = later


def _find_tail(known_tail: Timeline | None) -> Steps[Timeline]:
    if known_tail is not None:
        tail = yield from _gallop(known_tail)
        if tail is not None:
            return tail
    while True:
        names = yield from listed_versions()
        if not names:
            raise TableNotFoundError(
                "the table's timeline is missing: the table was dropped, or its timeline was removed. Restore the "
                f"folder {OWN_FOLDER} from a copy if you need the table"
            )
        path = names[-1].path
        data = yield Read(path)
        if data is None:
            continue  # deleted since: the tail moved on
        newest = _decode_version(data, path)
        if known_tail is not None and (yield from _is_elsewhere(known_tail, newest)):
            raise table_replaced(known_tail.table_id, newest.table_id)
        # A ghost? Perhaps deleted after the listing, and put again by a late put before the read. But then more than
        # KEPT_VERSIONS newer versions were published before the read, and another listing shows the newest.
        names = yield from listed_versions()
        if names and names[-1].path < version_path(newest.version + KEPT_VERSIONS):
            tail = yield from _gallop(newest)
            if tail is not None and not _is_behind_a_gap(tail, names[-1].path):
                return tail


def look_ahead(known_tail: Timeline, beside: Sequence[Single], *, again: bool) -> Steps[tuple[Timeline, list[Any]]]:
    """Return the newest value for a process that looks repeatedly, usually in one round trip.

    beside: requests in parallel. again: the process has just looked, so only the next version is read.

    `known_tail` is read beside the later versions, or not at all. So after more than `KEPT_VERSIONS` versions the
    result may be a ghost, and so would be a version put after it, undetected by rule 3. So before acting, check that
    the `find_tail` value from which the looks began still stands.
    """
    ahead = 1 if again else _AHEAD
    reads = [Read(version_path(known_tail.version + i)) for i in range(1 if again else 0, ahead + 1)]
    replies: list[Any] = yield Together((*reads, *beside))
    found, reply = replies[: len(reads)], replies[len(reads) :]
    standing = None if again else found.pop(0)
    if not again and (standing is None or not known_tail.is_in(standing)):
        return (yield from find_tail(known_tail)), reply
    count = found.index(None) if None in found else ahead
    if count == 0:
        return known_tail, reply
    newest = _decode_version(found[count - 1], version_path(known_tail.version + count))
    if _is_foreign(newest, known_tail):
        raise table_replaced(known_tail.table_id, newest.table_id)
    try:
        newest = yield from with_objects(newest, known_tail)
    except SegmentGoneError:
        return (yield from find_tail(known_tail)), reply
    return (newest if again or count < ahead else (yield from find_tail(newest))), reply


def look_once(known_tail: Timeline) -> Steps[Tail]:
    """Return the newest value, in one round trip if `known_tail` is the newest.

    After over `KEPT_VERSIONS` versions at once the result is old, and rule 3 refuses a put after it.
    """
    version = known_tail.version
    following, data = yield Together((GetStat(version_path(version + 1)), Read(version_path(version))))
    if following is None and data is not None and known_tail.is_in(data):
        return Tail(known_tail)
    return (yield from find_tail(known_tail))


def next_if_newest(known_tail: Timeline, data: bytes) -> Steps[Timeline | None]:
    """Return the version after `known_tail` if it is genuine and the newest. `known_tail` is read again afterwards."""
    following = _decode_version(data, version_path(known_tail.version + 1))
    standing, later = yield Together(
        (Read(version_path(known_tail.version)), GetStat(version_path(known_tail.version + 2)))
    )
    stands = standing is not None and known_tail.is_in(standing)
    if not stands or later is not None or _is_foreign(following, known_tail):
        return None
    try:
        return (yield from with_objects(following, known_tail))
    except SegmentGoneError:
        return None


def is_newest(value: Timeline) -> Steps[bool]:
    """Return True if a version of this process is genuine and the newest."""
    path = version_path(value.version)
    if (yield GetStat(version_path(value.version + 1))) is not None:
        return False
    standing, listed = yield Together((Read(path), List(VERSIONS, numbered=True)))
    names = _versions(listed)
    return standing is not None and value.is_in(standing) and bool(names) and names[-1].path == path


def _is_behind_a_gap(tail: Timeline, listed: str) -> bool:
    """Return True if a later listing shows a version above the found `tail`.

    A restore deletes versions at once, so the read version may be a ghost.
    """
    return version_path(tail.version) < listed


def _decode_version(data: bytes, path: str) -> Timeline:
    value = Timeline.decode(data, path)
    if version_path(value.version) != path:
        raise FormatError(
            f"the file contains a different version than its name: restore the file. file={path} found={value.version}"
        )
    return value


def first_kept(tail: Timeline) -> int:
    """Return the first version that nobody deletes while `tail` is the newest. An earlier version may be a ghost."""
    restored = tail.restores[-1].version if tail.restores else 0
    return max(0, restored, tail.version - KEPT_VERSIONS)


def is_kept(known_tail: Timeline, tail: Timeline) -> bool:
    return tail.version < known_tail.version + KEPT_VERSIONS


def _is_elsewhere(known_tail: Timeline, newest: Timeline) -> Steps[bool]:
    if _is_foreign(newest, known_tail):
        return True
    if restored_since(newest.restores, known_tail.version) is not None:
        return False  # a restore deletes all earlier versions
    return is_kept(known_tail, newest) and not (yield from still_stands(known_tail))


def _is_foreign(value: Timeline, known_tail: Timeline) -> bool:
    """Return True if a value certainly belongs to another table. A table without an id may have got one."""
    return known_tail.table_id is not None and value.table_id != known_tail.table_id


def table_replaced(opened: str | None, found: str | None) -> TableReplacedError:
    return TableReplacedError(
        "the table here is another table than the opened one: it was recreated, or restored from a copy. Nothing "
        f"was written. Open the table again. opened={opened} found={found}"
    )


def _gallop(start: Timeline) -> Steps[Timeline | None]:
    """Return the tail above `start`, or None if `start` is gone.

    Versions stand without a gap up to the tail. A failed probe may have hit a deleted version, so `start` is read again
    *after* the last probe. If it still stands, nothing above was deleted, as versions go oldest first, and none is a
    ghost.
    """
    low, tail = start.version, start
    if (yield GetStat(version_path(low + 1))) is not None:
        low += 1
        data, following = yield Together((Read(version_path(low)), GetStat(version_path(low + 1))))
        if following is not None:
            low = yield from _climb(low + 1)
            data = yield Read(version_path(low))
        if data is None:
            return None
        tail = _decode_version(data, version_path(low))
    if not (yield from still_stands(start)):
        return None
    if _is_foreign(tail, start):
        raise table_replaced(start.table_id, tail.table_id)  # `start` stands: a writer of an earlier table died here
    return tail


def _climb(low: int) -> Steps[int]:
    step = 1
    while True:
        probes = [low + step * (i + 1) for i in range(_PROBES)]
        stats = yield Together(tuple(GetStat(version_path(version)) for version in probes))
        hits = [version for version, stat in zip(probes, stats, strict=True) if stat is not None]
        low = max([low, *hits])
        if step > _STEP_MAX:
            return low  # no table has so many versions: read that name
        if len(hits) == _PROBES:
            step *= _PROBES
        elif step == 1:
            return low
        else:
            step = max(1, step // _PROBES)


def delete_if_table_is_gone(known_tail: Timeline, paths: Iterable[str]) -> Steps[None]:
    """Delete the objects of a refused event if the table of `known_tail` is gone.

    If the table exists below a version of an earlier table, the event may be part of it, and its objects stay.
    """
    for path in paths if not (yield from _is_here(known_tail)) else ():
        yield Delete(path)


def _is_here(known_tail: Timeline) -> Steps[bool]:
    """Return True if the table of `known_tail` exists, or in doubt.

    Then `known_tail` stands, or the oldest version here is of the same table.
    """
    if (yield from still_stands(known_tail)):
        return True
    names = yield from listed_versions()
    if not names or known_tail.table_id is None:
        return False
    data = yield Read(names[0].path)
    return data is None or not _is_foreign(_decode_version(data, names[0].path), known_tail)


def still_stands(value: Timeline) -> Steps[bool]:
    """Return True if this very version exists: its nonce excludes a ghost."""
    data = yield Read(version_path(value.version))
    return data is not None and value.is_in(data)


def expire_versions(tail: Timeline, listed: Sequence[Stat] | None = None) -> Steps[None]:
    """Delete expired versions, strictly oldest first, one at a time. Safety depends on that order.

    So the first failed deletion ends the loop. listed: the table's objects, if known.
    """
    with suppress(StorageUnavailableError):  # the event is published; old versions do no harm
        names = (yield from listed_versions()) if listed is None else _versions(listed)
        first = version_path(tail.version - KEPT_VERSIONS)
        expired = [name.path for name in names if name.path < first]
        if not expired or not (yield from still_stands(tail)):
            return  # the listing may show another table, created here since
        for path in expired:
            if not (yield Delete(path)):
                return

"""The tail: the newest version of the timeline. How it is found, and how the oldest versions are deleted.

    find_tail    remembered value ─ gallop upward ─ look again that it still stands;  else list, take the highest

The two belong together. Versions are deleted strictly oldest first, those before a restore at once. So a version that
still stands vouches for all that were found above it: none of them was deleted, and none is a *ghost*, an object that a
late put has left below the tail.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NewType

from crdt_mor.errors import FormatError, StorageUnavailableError, TableNotFoundError, TableReplacedError
from crdt_mor.log.paths import OWN_FOLDER, VERSIONS, is_version, version_path
from crdt_mor.log.segments import SegmentGoneError, with_file_ids
from crdt_mor.log.steps import Delete, GetStat, List, Read, Single, Steps, Together
from crdt_mor.model.restore import restored_since
from crdt_mor.model.timeline import Timeline
from crdt_mor.store.protocol import Stat, Store

Tail = NewType("Tail", Timeline)
"""The newest value when a process looked. It holds the outcome of an event of the process, and maybe later events."""

KEPT_VERSIONS = 128
"""Versions behind the tail that are kept, so that a process that remembers one of them needs no listing."""


_PROBES = 4
"""How many later versions are asked for side by side, once there is one."""

_STEP_MAX = 1 << 40
"""The step from which a climb ends: a store that has so many versions says of every name that it is there."""

_AHEAD = 2
"""How many later versions a process reads that looks again and again: one or two have followed since it has looked."""


def listed_versions() -> Steps[list[Stat]]:
    """The versions that stand, by their numbers."""
    return _versions((yield List(VERSIONS)))


def versions_in(store: Store) -> list[Stat]:
    """What `listed_versions` gives, of a store at once."""
    return _versions(store.list(VERSIONS))


def _versions(listed: Sequence[Stat]) -> list[Stat]:
    return [stat for stat in listed if is_version(stat.path)]


def find_tail(known: Timeline | None) -> Steps[Tail]:
    """The newest value. `known` is a value that was genuine once: the search begins there, without a listing.

    Raises `TableReplacedError` where the table is no longer the one that `known` is of.
    """
    tail = yield from _find_tail(known)
    while True:
        try:
            return Tail((yield from with_file_ids(tail, known)))
        except SegmentGoneError:  # damage, unless so many versions have followed since that this one is gone as well
            later = yield from _find_tail(known)
            if later.version == tail.version:
                raise
            tail = later


def _find_tail(known: Timeline | None) -> Steps[Timeline]:
    """The same, as it is decoded."""
    if known is not None:
        tail = yield from _gallop(known)
        if tail is not None:
            return tail
    while True:
        names = yield from listed_versions()
        if not names:
            raise TableNotFoundError(f"there is no timeline here; was the table's {OWN_FOLDER} folder removed?")
        path = names[-1].path
        data = yield Read(path)
        if data is None:
            continue  # deleted since: the tail has moved on
        newest = _decode_version(data, path)
        if known is not None and (yield from _is_elsewhere(known, newest)):
            raise table_replaced(known.table_id, newest.table_id)
        # It may be a ghost: deleted after the listing, and put again by a late put before it was read. But then more
        # than KEPT_VERSIONS newer versions had been published before it was read, and another listing shows the newest.
        names = yield from listed_versions()
        if names and names[-1].path < version_path(newest.version + KEPT_VERSIONS):
            tail = yield from _gallop(newest)
            if tail is not None and not _is_behind_a_gap(tail, names[-1].path):
                return tail


def look_ahead(known: Timeline, beside: Sequence[Single], *, again: bool) -> Steps[tuple[Timeline, list[Any]]]:
    """The newest value, for a process that looks again and again, in one round trip where there is little news.

    beside: what is done beside that round trip; its replies are returned, too. again: whether the process has looked a
    moment ago, so that only the next version is asked for.

    That `known` still stands is read beside the later versions, not after them, or not at all. So what is found may not
    be the newest, and where more than `KEPT_VERSIONS` versions followed meanwhile it may be a ghost. Then a version
    that is put after it is one as well, for all that rule 3 can tell. So nothing may be done by it before a value that
    was found by `find_tail`, and from which the looks began, is seen to stand once more.
    """
    ahead = 1 if again else _AHEAD
    reads = [Read(version_path(known.version + i)) for i in range(1 if again else 0, ahead + 1)]
    replies: list[Any] = yield Together((*reads, *beside))
    found, reply = replies[: len(reads)], replies[len(reads) :]
    standing = None if again else found.pop(0)
    if not again and (standing is None or not known.is_in(standing)):
        return (yield from find_tail(known)), reply
    count = found.index(None) if None in found else ahead
    if count == 0:
        return known, reply
    newest = _decode_version(found[count - 1], version_path(known.version + count))
    if _is_foreign(newest, known):
        raise table_replaced(known.table_id, newest.table_id)
    try:
        newest = yield from with_file_ids(newest, known)
    except SegmentGoneError:
        return (yield from find_tail(known)), reply
    return (newest if again or count < ahead else (yield from find_tail(newest))), reply


def next_if_newest(known: Timeline, data: bytes) -> Steps[Timeline | None]:
    """The version after `known`, whose bytes were read before, if it is genuine and the newest one; in one round trip.

    `known` is read again after it, as after a climb: so that version is no ghost.
    """
    following = _decode_version(data, version_path(known.version + 1))
    standing, later = yield Together((Read(version_path(known.version)), GetStat(version_path(known.version + 2))))
    stands = standing is not None and known.is_in(standing)
    if not stands or later is not None or _is_foreign(following, known):
        return None
    try:
        return (yield from with_file_ids(following, known))
    except SegmentGoneError:
        return None


def _is_behind_a_gap(tail: Timeline, listed: str) -> bool:
    """Whether a listing, made after a version was read, has shown a later one than a climb from there has reached.

    A restore deletes versions at once. So what was read may be a ghost, however few versions have followed it.
    """
    return version_path(tail.version) < listed


def _decode_version(data: bytes, path: str) -> Timeline:
    """The value of a version; raises `FormatError` where its number is not that of its name."""
    value = Timeline.decode(data, path)
    if version_path(value.version) != path:
        raise FormatError(f"this is another version than its name says: restore it. file={path} found={value.version}")
    return value


def first_kept(tail: Timeline) -> int:
    """The first version that nobody deletes while `tail` is the newest: from it on they stand without a gap.

    What is found below it may be a ghost.
    """
    restored = tail.restores[-1].version if tail.restores else 0
    return max(0, restored, tail.version - KEPT_VERSIONS)


def is_kept(known: Timeline, tail: Timeline) -> bool:
    """Whether `known` is too young to have been deleted when `tail` is the newest version of the same table."""
    return tail.version < known.version + KEPT_VERSIONS


def _is_elsewhere(known: Timeline, newest: Timeline) -> Steps[bool]:
    """Whether `newest`, the newest version that is there, is of another table than `known`."""
    if _is_foreign(newest, known):
        return True
    if restored_since(newest.restores, known.version) is not None:
        return False  # a restore deletes all earlier versions
    return is_kept(known, newest) and not (yield from still_stands(known))


def _is_foreign(value: Timeline, known: Timeline) -> bool:
    """Whether a value is certainly of another table. A table that was made without an id may have one by now."""
    return known.table_id is not None and value.table_id != known.table_id


def table_replaced(opened: str | None, found: str | None) -> TableReplacedError:
    """The error of a process that has one table open and finds another one in its place."""
    return TableReplacedError(
        "the table here is another one than the one that was opened: it was removed and made again, or restored from a "
        f"copy. Nothing was written; open it anew. opened={opened} found={found}"
    )


def _gallop(start: Timeline) -> Steps[Timeline | None]:
    """The tail above `start`; None if `start` is no longer there.

    Versions stand without a gap from the oldest kept one to the tail, so galloping and narrowing find the end. A probe
    that hits nothing may have hit a deleted version, so `start` is read again *after* the last probe: versions go
    oldest first, and if `start` still stands, nothing above it was ever deleted, nor is anything found there a ghost.
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
        raise table_replaced(start.table_id, tail.table_id)  # `start` stands, so a writer of an earlier table died here
    return tail


def _climb(low: int) -> Steps[int]:
    """The highest version above `low`, which is there, that probes side by side find: ever farther up, then closer."""
    step = 1
    while True:
        probes = [low + step * (i + 1) for i in range(_PROBES)]
        stats = yield Together(tuple(GetStat(version_path(version)) for version in probes))
        hits = [version for version, stat in zip(probes, stats, strict=True) if stat is not None]
        low = max([low, *hits])
        if step > _STEP_MAX:
            return low  # no table has so many versions: what stands there is read, and says what answers
        if len(hits) == _PROBES:
            step *= _PROBES
        elif step == 1:
            return low
        else:
            step = max(1, step // _PROBES)


def delete_if_table_is_gone(known: Timeline, paths: Iterable[str]) -> Steps[None]:
    """Delete the objects that were put for an event which was then refused, if the table of `known` is gone.

    An event is also refused while the table is there, if a process of an earlier table at this place has put a version
    above its tail. Then the event may be part of the table already, and its objects stay.
    """
    for path in paths if not (yield from _is_here(known)) else ():
        yield Delete(path)


def _is_here(known: Timeline) -> Steps[bool]:
    """Whether the table of `known` is still there, which its oldest version tells. When in doubt, yes."""
    if (yield from still_stands(known)):
        return True
    names = yield from listed_versions()
    if not names or known.table_id is None:
        return False
    data = yield Read(names[0].path)
    return data is None or not _is_foreign(_decode_version(data, names[0].path), known)


def still_stands(value: Timeline) -> Steps[bool]:
    """Whether the object of this very version is still there: with its nonce, so that a ghost is not taken for it."""
    data = yield Read(version_path(value.version))
    return data is not None and value.is_in(data)


def expire_versions(tail: Timeline) -> Steps[None]:
    """Delete the versions that are too old, strictly oldest first and one at a time. Safety rests on that order.

    So the first version that cannot be deleted ends it: the next publisher whose turn it is tries again.
    """
    with suppress(StorageUnavailableError):  # the event is published, and old versions do no harm
        names = yield from listed_versions()
        if not (yield from still_stands(tail)):
            return  # the listing may be of another table, which was made here since
        for name in names:
            if name.path >= version_path(tail.version - KEPT_VERSIONS) or not (yield Delete(name.path)):
                return

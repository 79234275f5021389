"""Open a table in a bucket in three round trips, if nobody publishes at the same moment.

    1    the properties        the versions, listed           the posts, listed
    2    the newest version    whether a version follows      the stat of the properties
    3    that version again    the versions, listed again     the properties again    Hudi's timeline, listed

The second listing shows a later version if the read version is a ghost. The second read, after no later version was
found, proves that none was ever deleted. If any reply differs, the search goes the long way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from crdt_mor.errors import FormatError, TableNotFoundError
from crdt_mor.ground.threads import in_threads
from crdt_mor.log.paths import BACKUP, COPIED, OWN_FOLDER, POSTS, PROPERTIES, is_version, segment_path, version_path
from crdt_mor.log.segments import holding, unread
from crdt_mor.log.tail import versions_in
from crdt_mor.model.numbers import whole_number
from crdt_mor.model.timeline import Timeline
from crdt_mor.store.absences import surely
from crdt_mor.store.protocol import Bucket, Stat, Store


@dataclass(frozen=True, slots=True)
class FirstLook:
    properties: bytes | None
    versions: Sequence[Stat]
    posts: Sequence[Stat] = ()


@dataclass(frozen=True, slots=True)
class FoundTail:
    """The newest value, with properties and Hudi's timeline read later. settings: the properties' earlier stat."""

    tail: Timeline
    properties: bytes | None
    settings: Stat | None
    hudi: Sequence[Stat]


def first_look(store: Bucket) -> FirstLook:
    return FirstLook(*_at_once(lambda: properties_in(store), lambda: versions_in(store), lambda: store.list(POSTS)))


def find_opened_tail(store: Bucket, first: FirstLook, hudi: str) -> FoundTail | None:
    """Make the other round trips; None if somebody may have published meanwhile. hudi: the timeline folder."""
    if not first.versions:
        return None
    path = first.versions[-1].path
    number = whole_number(path.rpartition("/")[2].partition(".")[0])
    if number is None:
        return None
    data, following, settings = _at_once(
        lambda: store.read(path), lambda: store.stat(version_path(number + 1)), lambda: store.stat(PROPERTIES)
    )
    if data is None or following is not None:
        return None
    tail = Timeline.decode(data, path)
    if version_path(tail.version) != path:
        raise FormatError(
            f"the file contains a different version than its name: restore the file. file={path} found={tail.version}"
        )
    names = unread(tail)
    again, versions, properties, instants, *parts = _at_once(
        lambda: store.read(path), lambda: versions_in(store), lambda: properties_in(store),
        lambda: store.numbered(hudi),
        *(partial(store.read, segment_path(name)) for name in names),
    )  # fmt: skip
    if again is None or not tail.is_in(again) or not versions or versions[-1].path != path:
        return None
    for name, part in zip(names, parts, strict=True):
        if part is None:
            return None
        tail = holding(tail, name, part)
    return FoundTail(tail, properties, settings, instants)


def properties_in(store: Store) -> bytes | None:
    found = surely(store, PROPERTIES, store.read)
    return store.read(BACKUP) if found is None else found


def has_lost_properties(store: Store) -> bool:
    """Return True if the properties are missing beside a timeline, or beside a copy's note.

    A table's properties are put first, so they are checked last.
    """
    paths = (stat.path for stat in store.walk(OWN_FOLDER))
    return any(is_version(path) or path.startswith(f"{COPIED}/") for path in paths) and properties_in(store) is None


def properties_beside_timeline(store: Store, properties: bytes | None, uri: str) -> bytes | None:
    """Return the properties, read again if None. Raises `TableNotFoundError` if only a timeline exists."""
    if properties is not None:
        return properties
    if has_lost_properties(store):
        raise TableNotFoundError(
            "the table's properties are missing, but its timeline exists. Restore the file from a backup, or run an "
            f"interrupted copy or creation again. path={uri} file={PROPERTIES}"
        )
    return properties_in(store)


def _at_once(*requests: Callable[[], Any]) -> list[Any]:
    return list(in_threads(lambda request: request(), requests, len(requests)))

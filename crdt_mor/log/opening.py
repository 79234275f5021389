"""Opening a table in a bucket: three round trips, where nobody publishes at that very moment.

    1    the properties        the versions, listed           what writers have posted, listed
    2    the newest version    whether there is one after it               what the properties' object is
    3    that version again    the versions, listed again    the properties again    Hudi's timeline, listed

These requests ask all that `tail.find_tail` and `session.first_tail` ask, in fewer steps. The second listing begins
when the version has been read, so it shows a later one where that version is a ghost below the tail. The second read of
the version, after nothing was found behind it, proves that nothing behind it was ever deleted. Where any of these shows
anything but one newest version that stands, nothing is concluded: the search goes the long way, as on other stores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from crdt_mor.errors import FormatError, TableNotFoundError
from crdt_mor.ground.threads import in_threads
from crdt_mor.log.paths import BACKUP, POSTS, PROPERTIES, segment_path, version_path
from crdt_mor.log.segments import holding_file_ids
from crdt_mor.log.tail import versions_in
from crdt_mor.model.numbers import whole_number
from crdt_mor.model.timeline import Timeline
from crdt_mor.store.absences import surely
from crdt_mor.store.protocol import Bucket, Stat, Store


@dataclass(frozen=True, slots=True)
class First:
    """What the first round trip has brought: the properties, None where there are none, and the versions by path.

    posts: what writers have posted, by which this process knows at once whether it is alone.
    """

    properties: bytes | None
    versions: Sequence[Stat]
    posts: Sequence[Stat] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """The newest value; the properties as they were after it was read, and Hudi's timeline, listed after it.

    settings: the object of the properties before they were read so: as long as it is the same, they are.
    """

    tail: Timeline
    properties: bytes | None
    settings: Stat | None
    hudi: Sequence[Stat]


def look(store: Bucket) -> First:
    """The first round trip."""
    return First(*_at_once(lambda: properties_in(store), lambda: versions_in(store), lambda: store.list(POSTS)))


def find(store: Bucket, first: First, hudi: str) -> Found | None:
    """The other two; None where they do not show that nobody has published meanwhile. hudi: the folder of its timeline.

    Raises `FormatError` where the newest version is not one.
    """
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
        raise FormatError(f"this is another version than its name says: restore it. file={path} found={tail.version}")
    name = tail.file_ids.stored
    again, versions, properties, instants, file_ids = _at_once(
        lambda: store.read(path), lambda: versions_in(store), lambda: properties_in(store), lambda: store.list(hudi),
        lambda: None if name is None else store.read(segment_path(name)),
    )  # fmt: skip
    if again is None or not tail.is_in(again) or not versions or versions[-1].path != path:
        return None
    if name is not None:
        if file_ids is None:
            return None
        tail = holding_file_ids(tail, name, file_ids)
    return Found(tail, properties, settings, instants)


def properties_in(store: Store) -> bytes | None:
    """The file of properties, or its backup where a process died while it changed them."""
    found = surely(store, PROPERTIES, store.read)
    return store.read(BACKUP) if found is None else found


def has_lost_properties(store: Store) -> bool:
    """Whether a timeline is there whose properties are gone.

    The properties are put before the timeline, so they are looked at after it.
    """
    return bool(versions_in(store)) and properties_in(store) is None


def properties_beside_timeline(store: Store, properties: bytes | None, uri: str) -> bytes | None:
    """The properties, which are asked for again where they were None: another process may have made the table since.

    Raises `TableNotFoundError` where a timeline is there whose properties are gone.
    """
    if properties is not None:
        return properties
    if has_lost_properties(store):
        raise TableNotFoundError(
            "there is no table here, as its file of properties is not there, though its timeline is: restore the file "
            "from a backup; or, where a copy or the making of a table was stopped on its way, run that again. "
            f"path={uri} file={PROPERTIES}"
        )
    return properties_in(store)


def _at_once(*requests: Callable[[], Any]) -> list[Any]:
    """What requests give that are made side by side."""
    return list(in_threads(lambda request: request(), requests, len(requests)))

"""Mirrors: make a table's newest version readable for engines of Delta Lake or Apache Iceberg.

The protocol is `mirror/refresh.py`. This module seals a version, merges its slices, and starts again if needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import starmap
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from crdt_mor.errors import InvalidInputError, StorageUnavailableError
from crdt_mor.events.session import Session
from crdt_mor.ground.threads import REQUESTS, in_threads
from crdt_mor.log.steps import Steps
from crdt_mor.mirror.columns import mirror_columns
from crdt_mor.mirror.delta import Deletes as DeltaDeletes
from crdt_mor.mirror.delta import Delta
from crdt_mor.mirror.delta_log import LOG
from crdt_mor.mirror.iceberg import Deletes as IcebergDeletes
from crdt_mor.mirror.iceberg import Iceberg
from crdt_mor.mirror.iceberg_metadata import FOLDER, metadata_path
from crdt_mor.mirror.refresh import Head, Kind, Moment, Objects, Refreshed, refresh, shows
from crdt_mor.mirror.slices import ShownSlice, SliceKey, key_of, show
from crdt_mor.mirror.sweep import files_needed as mirror_files
from crdt_mor.mirror.sweep import forget as forget_files
from crdt_mor.mirror.sweep import sweep
from crdt_mor.model.instant import InstantTime, to_datetime
from crdt_mor.model.policies import MIRRORS, plural
from crdt_mor.model.timeline import Timeline
from crdt_mor.planners.copy import files_needed as data_files_needed
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.store.open import address_of

_DELETES: Final[Mapping[str, tuple[str, ...]]] = {
    "delta": get_args(DeltaDeletes),
    "iceberg": get_args(IcebergDeletes),
}
SWEPT_EVERY: Final = 10
"""Versions of a mirror between two sweeps of its files."""

FOLDERS: Final = MappingProxyType({"delta": LOG, "iceberg": FOLDER})


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The result of a refresh of a mirror.

    Attributes:
        uri: The address that engines open: of the table for Delta, of the metadata file for Iceberg.
        version: The shown version of the table.
        as_of: The time of the last shown commit, 17 digits.
        number: The version of the mirror itself.
        objects: Number of new objects; 0 if the mirror showed the version already.
        replaced: The mirror's version that another engine wrote and this refresh replaced; None without one.
    """

    uri: str
    format: Literal["delta", "iceberg"]
    version: int
    as_of: InstantTime
    number: int
    objects: int
    bytes: int
    replaced: int | None = None

    def __str__(self) -> str:
        put = (
            f", wrote {plural(self.objects, 'object', ',')}, {self.bytes:,} bytes"
            if self.objects
            else ", nothing was to do"
        )
        lost = "" if self.replaced is None else f"; replaced version {self.replaced}, which another engine wrote"
        return (
            f"{self.format} mirror shows version {self.version} of {to_datetime(self.as_of):%Y-%m-%d %H:%M:%S} UTC"
            f"{put}{lost}. uri={self.uri}"
        )


def mirror(session: Session, format: str, deletes: str | None = None) -> Mirrored:
    """Make a mirror show the table's newest version.

    deletes: None keeps the mirror's way, at first deletion vectors for Delta and position deletes for Iceberg.
    """
    _check(format, deletes)
    done = _published(session, format, deletes)
    if done.puts and done.number % SWEPT_EVERY == 0:
        with suppress(StorageUnavailableError):
            session.run(sweep(address_of(session.store, session.uri)))
    return _told(session, format, done)


def forget(session: Session) -> None:
    """Make each mirror of the table show its newest version alone, and delete the rows of earlier ones."""
    for name in MIRRORS:
        if _own_head(session, name) is not None:
            _published(session, name, None, forgets=True)


def mirror_copy(session: Session, copy: Session) -> None:
    """Give a copy the table's mirrors. They show its version alone, as the files of others may be absent there."""
    asked = [(of, name) for name in MIRRORS for of in (copy, session)]
    copy.known_tail()  # otherwise each thread looks for the tail
    is_far = copy.is_far or session.is_far
    heads = list(in_threads(lambda one: _own_head(*one), asked, REQUESTS) if is_far else starmap(_own_head, asked))
    for name, there, original in zip(MIRRORS, heads[::2], heads[1::2], strict=True):
        if there is not None and not shows_newest(copy, name):
            _published(copy, name, None, forgets=True)
        elif there is None and original is not None:
            _published(copy, name, original.mode)


def _published(session: Session, format: str, deletes: str | None, *, forgets: bool = False) -> Refreshed:
    """Refresh to the newest version; again, and alone, if a clean removed files of it meanwhile."""
    ahead, replaced, puts = -1, None, Objects()
    while True:
        snapshot = Snapshot.seal(session, session.views.sealed(decided=True)).with_expired()
        # A table that was put back from a backup is older than its mirror.
        anew = ahead > snapshot.value.version
        done = _refreshed(session, snapshot, format, deletes, anew=anew, forgets=forgets)
        replaced, puts = done.replaced or replaced, (*puts, *done.puts)
        if done.version > snapshot.value.version and ahead != done.version:
            ahead = done.version
        elif done.is_behind or (forgets and not done.puts):
            continue
        elif done.puts and _has_lost_files(session, snapshot):
            forgets = True
        else:
            if forgets:
                session.run(forget_files(address_of(session.store, session.uri), done.version))
            return replace(done, puts=puts, replaced=replaced)


def _has_lost_files(session: Session, snapshot: Snapshot) -> bool:
    """Return True if a clean or a restore since may remove files of a snapshot."""
    tail, before = session.tail(), snapshot.value
    if (tail.retention, tail.restores) == (before.retention, before.restores):
        return False
    value = session.views.sealed(decided=True)
    kept = {file.path for file in data_files_needed(value, session.views.completions(value))}
    return any(file.path not in kept for one in snapshot.slices for file in one.files)


def _own_head(session: Session, format: str) -> Head | None:
    kind = kind_of(session, session.known_tail(), format)
    try:
        head = session.run(kind.head())
    except InvalidInputError:  # another table of Delta's
        return None
    return head if head is not None and head.table_id else None


def shows_newest(session: Session, format: str) -> bool:
    """Return True if a refresh would find nothing to do."""
    snapshot = Snapshot.seal(session, session.views.sealed(decided=True))
    kind, moment = kind_of(session, snapshot.value, format), moment_of(snapshot)
    head = session.run(kind.head())
    return head is not None and shows(head, kind.like(head), moment)


def may_have_mirrors(paths: Iterable[str]) -> bool:
    """Return True if a table with these objects may have mirrors."""
    folders = tuple(f"{folder}/" for folder in FOLDERS.values())
    return any(path.startswith(folders) for path in paths)


def files_needed(session: Session, there: Collection[str] | None = None) -> frozenset[str]:
    """Return the files that kept versions of mirrors name. there: the table's files, if listed."""
    if there is not None and not may_have_mirrors(there):
        return frozenset()
    return frozenset(session.run(mirror_files(address_of(session.store, session.uri))))


def _check(format: str, deletes: str | None) -> None:
    if format not in MIRRORS:
        raise InvalidInputError(f"mirror takes {' or '.join(map(repr, MIRRORS))}. format={format!r:.100}")
    if deletes is not None and deletes not in _DELETES[format]:
        ways = " or ".join(map(repr, _DELETES[format]))
        raise InvalidInputError(f"deletes of {format} mirrors is {ways}. deletes={deletes!r:.100}")


def _refreshed(
    session: Session, snapshot: Snapshot, format: str, deletes: str | None, *, anew: bool, forgets: bool = False
) -> Refreshed:
    return session.run(
        refreshing(snapshot, kind_of(session, snapshot.value, format, deletes), anew=anew, forgets=forgets)
    )


def refreshing(snapshot: Snapshot, kind: Kind, *, anew: bool = False, forgets: bool = False) -> Steps[Refreshed]:
    """Return the steps that make a mirror show a snapshot. See `refresh`."""
    moment, slices = moment_of(snapshot), {one.group: one for one in snapshot.slices}
    kind.require_types(moment.columns)

    def shown(kind: Kind, key: SliceKey) -> ShownSlice:
        return show(snapshot, slices[key.group], moment.columns, kind.stands, whole=kind.merges_whole(key.partition))

    return refresh(kind, moment, shown, anew=anew, forgets=forgets)


def moment_of(snapshot: Snapshot) -> Moment:
    session, value = snapshot.session, snapshot.value
    return Moment(
        table_id=value.table_id or sha256(session.config.name.encode()).hexdigest()[:32],
        version=value.version,
        as_of=snapshot.cut.time,
        now_ms=session.environment.now_ms(),
        columns=mirror_columns(value),
        keys={one.group: key_of(one, session.config) for one in snapshot.slices},
    )


def kind_of(session: Session, value: Timeline, format: str, deletes: Any = None) -> Kind:
    return Iceberg.of(session, value, deletes) if format == "iceberg" else Delta(deletes)


def _told(session: Session, format: str, done: Refreshed) -> Mirrored:
    size, iceberg = sum(size for _, size in done.puts), format == "iceberg"
    return Mirrored(
        uri=f"{address_of(session.store, session.uri)}/{metadata_path(done.number)}" if iceberg else session.uri,
        format="iceberg" if iceberg else "delta",
        version=done.version,
        as_of=done.as_of,
        number=done.number,
        objects=len(done.puts),
        bytes=size,
        replaced=done.replaced,
    )

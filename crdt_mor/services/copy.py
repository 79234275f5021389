"""A copy of a table as it is at one moment, made beside its writers, and moved to a later moment when it is asked to.

    1. note          which version of the table the copy is to show; with it the place belongs to a copy
    2. objects       data files, segments, plans, Hudi's timeline: what that version names, and only what is missing
    3. version       the very same object, as the newest version of the copy (`events.copy`)
    4. Hudi          what that version still has to tell Hudi's readers
    5. properties    of a first copy the last put: without them no reader finds a table
    6. remove        what an earlier moment needed, and this one does not

Each object is put if absent, so a copy that was killed is made whole by making it again. A version of the table never
changes, and what it names does not either; so all that can happen to a copy beside writers is that an object goes which
the version needed. Only a clean, an archiving and a restore remove any, each by an event: then there is a newer
version, and the copy takes that one, with what it has copied already.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from crdt_mor.errors import (
    FormatError,
    InvalidInputError,
    SnapshotExpiredError,
    StorageUnavailableError,
    TableExistsError,
    UnsupportedFeatureError,
)
from crdt_mor.events import copy as events
from crdt_mor.events.session import Session
from crdt_mor.format.properties import decode_table
from crdt_mor.ground.threads import REQUESTS, in_threads
from crdt_mor.hudi.handover import read_properties, replace_properties
from crdt_mor.log.deciding import deciding
from crdt_mor.log.paths import COPIED, METADATA_TABLE, PROPERTIES, version_path
from crdt_mor.log.steps import Delete, MakeDurable, Put, Steps, put_surely, run
from crdt_mor.log.tail import expire_versions, versions_in
from crdt_mor.model.config_properties import OUR_ID
from crdt_mor.model.instant import EPOCH, InstantTime, to_datetime
from crdt_mor.model.timeline import Timeline
from crdt_mor.services.copy_objects import GoneError, Moment, Wanted, listed, moment_of, sizes, superfluous, wanted
from crdt_mor.services.erasure import open_erasures
from crdt_mor.store.across import bytes_held, put_across
from crdt_mor.store.paths import TEMP_FOLDER, one_of_each_folder
from crdt_mor.store.protocol import Durable, Stat, Store, is_bucket

T = TypeVar("T")

_THREADS: Final = 4
"""Files that are copied side by side where neither side is a bucket."""


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """How far a copy is: objects and bytes that are there, of those that it is to have."""

    objects: int
    of_objects: int
    bytes: int
    of_bytes: int


@dataclass(frozen=True, slots=True)
class Copied:
    """What `Table.copy` has done.

    uri: the copy's address. version, at: which version of the table it shows, and the time, 17 digits, up to which.
    objects, bytes: that this call has copied. kept: objects that were there before. removed: objects of an earlier
        moment that it has removed.
    pending: writes that had begun at that moment, and are no part of the copy.
    """

    uri: str
    version: int
    at: InstantTime
    objects: int
    bytes: int
    kept: int
    removed: int
    pending: int

    def __str__(self) -> str:
        when = f"{to_datetime(self.at):%Y-%m-%d %H:%M:%S} UTC"
        more = f", {self.kept:,} were there" if self.kept else ""
        gone = f", {self.removed:,} removed" if self.removed else ""
        rest = f"; {self.pending:,} pending writes are no part of it" if self.pending else ""
        return (
            f"{self.uri} is the table at version {self.version}, {when}: copied {self.objects:,} objects, "
            f"{self.bytes:,} bytes{more}{gone}{rest}"
        )


Tell = Callable[[CopyProgress], None]


def copy(session: Session, target: Store, address: str, *, update: bool, tell: Tell) -> Copied:
    """Copy the newest version of a session's table to another store. See `Table.copy`."""
    _require_free(session, target, address, update=update)
    if is_bucket(target) and not target.list(COPIED):
        target.probe()
    return _Copying(session, target, address, tell).run()


def _require_free(session: Session, target: Store, address: str, *, update: bool) -> None:
    """Raise unless nothing is at the address, or a copy of this very table that was begun, or is to be moved on."""
    properties = run(read_properties(), target, session.environment)
    moments = run(events.notes(), target, session.environment)
    if properties is not None:
        _require_copy(properties, session, address, is_noted=bool(moments))
    if moments and any(moment.table_id != session.known().table_id for moment in moments):
        raise TableExistsError(
            f"a copy of another table was begun here: copy to another address, or remove it. path={address} "
            f"copy_of={moments[-1].table_id} table_id={session.known().table_id}"
        )
    if properties is not None and not moments:
        raise TableExistsError(
            "there is this very table already, which crdt-mor copy has not made: copy to an empty address. "
            f"path={address}"
        )
    if properties is not None and not update:
        raise TableExistsError(
            "there is a copy of this table already: move it on with update=True, or copy to another address. "
            f"path={address}"
        )
    if not moments and (found := [path for path in listed(target) if not path.startswith(f"{TEMP_FOLDER}/")]):
        raise TableExistsError(
            "a table is copied to an empty address, and there are objects here: give another one. "
            f"path={address} objects={len(found)} first={min(found)}"
        )


def _require_copy(properties: bytes, session: Session, address: str, *, is_noted: bool) -> None:
    """Raise where properties are those of another table. is_noted: there are notes, of which table is asked beside it.

    Those of a table that Hudi made have no id.
    """
    table_id = decode_table(properties, PROPERTIES).get(OUR_ID)
    if table_id is None and is_noted and session.config.table_id is None:
        return
    if table_id is None or table_id != session.known().table_id:
        raise TableExistsError(
            "there is another table here: copy to an empty address. "
            f"path={address} found={table_id} table_id={session.known().table_id}"
        )


def _newest(session: Session) -> Moment:
    """The newest version of the table, with what Hudi's writers have committed; raises where it is not to be copied."""
    if not versions_in(session.store):  # before what Hudi's writers committed is adopted, by an event
        raise _no_event_of_ours(session)
    while True:
        properties = session.run(read_properties())
        session.views.sealed(look=True)
        if session.views.has_foreign:
            session.adopt()
        value = session.tail()
        _require_whole(session, value)
        data = session.store.read(version_path(value.version))
        if data is not None and value.is_in(data) and properties is not None:
            try:
                return moment_of(session, value, data, properties)
            except SnapshotExpiredError:  # many versions have followed since
                continue


def _require_whole(session: Session, value: Timeline) -> None:
    """Raise where a version of a table says less than its rows need: others write it, or rows are on their way."""
    if value.table_id is None:
        raise _no_event_of_ours(session)
    if value.handed_over != EPOCH:
        raise InvalidInputError(
            "Hudi's writers have this table, and nothing of ours says what they commit: take it back (crdt-mor "
            f"takeback), or stop them and copy its folder. path={session.uri} handed_over={value.handed_over}"
        )
    if session.store.walk(METADATA_TABLE):
        raise UnsupportedFeatureError(
            "this table has a metadata table of Hudi's, which changes beside it: remove that (crdt-mor "
            f"drop-metadata-table), or stop all writers and copy its folder. path={session.uri}"
        )
    if value.moving is not None:
        raise InvalidInputError(
            "this table moves to another address, or has: copy the new table when the migration is over, to an address "
            f"of its own. path={session.uri} moves_to={value.moving.uri}"
        )
    if value.origin is not None and not value.origin.is_opened:
        raise InvalidInputError(
            "rows of another table still arrive here: copy the table when the migration is over. "
            f"path={session.uri} source={value.origin.uri}"
        )
    erasures = open_erasures(session)
    if erasures:
        raise InvalidInputError(
            "rows are being erased from this table, and a copy would keep them in its history: finish the erasure, "
            f"calling it again, and then copy. erasure={erasures[0].requested}"
        )


def _no_event_of_ours(session: Session) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        "no event of ours is in this table's timeline, so that nothing names the files of one moment: stop its "
        f"writers and copy its folder. path={session.uri}"
    )


class _Copying:
    """One copy, of whatever version it takes in the end. It notes the objects that it has put, with their sizes."""

    def __init__(self, session: Session, target: Store, address: str, tell: Tell) -> None:
        self._session = session
        self._target = target
        self._address = address
        self._tell = tell
        self._made: dict[str, int] = {}
        self._kept = 0

    def run(self) -> Copied:
        failed: tuple[int, str] | None = None
        overtaken = -1
        while True:
            moment = _newest(self._session)
            if moment.value.version == overtaken:
                raise InvalidInputError(
                    "the copy was begun of a later version of the table than the table has now: was the table put back "
                    f"from a backup? Copy to another address. path={self._address} version={overtaken}"
                )
            try:
                shown = self._try(moment)
            except GoneError as error:
                if failed == (moment.value.version, error.path):
                    raise FormatError(
                        "an object that the table needs is not there, and no clean has removed it: restore it, or see "
                        f"with crdt-mor verify what is lost. missing={error.path} version={moment.value.version}"
                    ) from error
                failed = moment.value.version, error.path
                continue
            if shown is not None:
                return shown
            overtaken = moment.value.version

    def _try(self, moment: Moment) -> Copied | None:
        """Copy one version; None where another process copies a later one, and raises `GoneError`."""
        value = moment.value
        self._run(events.require_movable(value))
        self._run(events.note(value, moment.data))
        need = wanted(moment, listed(self._session.store))
        self._put_missing(moment, need)
        shown = self._run(events.publish(value, moment.data))
        if shown is None:
            return None
        with deciding(is_made=True):
            self._run(self._session.publisher.help_project(shown))
            self._put_properties(moment)
            removed = self._remove(moment, need)
        objects, size = len(self._made), sum(self._made.values())
        return Copied(self._address, shown.version, shown.clock, objects, size, self._kept, removed, len(shown.pending))

    def _put_missing(self, moment: Moment, need: Wanted) -> None:
        """Put what is not there: all else first, then what Hudi's readers go by, in its order if there may be any.

        Before the latter it is asked once more whether the copy may show that moment, as much time may have passed.
        """
        there = listed(self._target)
        missing, told = _missing(need.objects, there, need.begun), _missing(need.told, there)
        stats = (*need.objects, *need.told)
        self._kept = sum(stat.path in there and stat.path not in self._made for stat in stats)
        progress = _Progress(len(stats), sizes(stats), self._tell)
        progress.add(len(stats) - len(missing) - len(told), sizes(stats) - sizes(missing) - sizes(told))
        self._put(missing, "content", progress)
        self._make_durable(need.objects)
        is_read = PROPERTIES in there
        if told and is_read:
            self._run(events.require_movable(moment.value))
        self._put(told, True if is_read else "content", progress, threads=1 if is_read else None)
        self._make_durable(need.told)

    def _put(self, stats: Sequence[Stat], durable: Durable, progress: _Progress, threads: int | None = None) -> None:
        source, target = self._session.store, self._target
        far = is_bucket(source) or is_bucket(target)

        def put(stat: Stat) -> tuple[Stat, bool | None]:
            return stat, put_across(source, target, stat, durable)

        at_once = threads or (REQUESTS if far else _THREADS)
        for stat, made in in_threads(put, stats, at_once, lambda stat: bytes_held(target, stat)):
            if made is None:
                raise GoneError(stat.path)
            if made:
                self._made[stat.path] = stat.size
            progress.add(1, stat.size)

    def _make_durable(self, stats: Sequence[Stat]) -> None:
        """Make objects last through a power cut, also those of an earlier copy whose process died before it had."""
        for path in one_of_each_folder(stat.path for stat in stats):
            self._target.make_durable(path)

    def _put_properties(self, moment: Moment) -> None:
        found = self._run(read_properties())
        if found is not None:
            _require_copy(found, self._session, self._address, is_noted=True)
        if found is None:
            self._run(put_surely(Put(PROPERTIES, moment.properties)))
        elif found != moment.properties:
            self._run(replace_properties(found, moment.properties))
        else:
            self._target.make_durable(PROPERTIES)

    def _remove(self, moment: Moment, need: Wanted) -> int:
        """Remove what the moment needs no more; how many objects."""
        groups = superfluous(moment, need.paths, listed(self._target))
        for group in groups:
            self._run(_removed(group))
        self._run(expire_versions(moment.value))
        return sum(len(group) for group in groups)

    def _run(self, steps: Steps[T]) -> T:
        return run(steps, self._target, self._session.environment)


def _missing(stats: Sequence[Stat], there: Mapping[str, Stat], by_name: Container[str] = ()) -> list[Stat]:
    """What the copy does not have yet; raises where it has another object than the table. by_name: of any size."""
    for stat in stats:
        found = there.get(stat.path)
        if found is not None and found.size != stat.size and stat.path not in by_name:
            raise FormatError(
                "an object of the copy has another size than that of the table, so that the copy is damaged: remove it "
                f"and copy again. path={stat.path} copy={found.size} table={stat.size}"
            )
    return [stat for stat in stats if stat.path not in there]


def _removed(paths: Sequence[str]) -> Steps[None]:
    """Remove objects for good, in their order; raises where one stays."""
    for path in paths:
        if not (yield Delete(path)):
            raise StorageUnavailableError(
                "an object that the copy needs no more could not be removed, so that what was dropped or erased from "
                f"the table may still be in its copy: see whether this process may, and copy again. path={path}"
            )
    for path in {path.rpartition("/")[0]: path for path in paths}.values():
        yield MakeDurable(path)


class _Progress:
    """How far a copy is, told to its user. Objects come from threads one at a time."""

    def __init__(self, of_objects: int, of_bytes: int, tell: Tell) -> None:
        self._of = of_objects, of_bytes
        self._objects = 0
        self._bytes = 0
        self._tell = tell

    def add(self, objects: int, size: int) -> None:
        """So many more are there."""
        self._objects += objects
        self._bytes += size
        self._tell(CopyProgress(self._objects, self._of[0], self._bytes, self._of[1]))

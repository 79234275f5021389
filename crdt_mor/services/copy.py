"""Copy a table at some moment while writers continue, and move the copy to a later moment on request.

    note ─► missing objects ─► version ─► Hudi's timeline ─► objects of earlier moments removed ─► properties, if new

Objects are put if absent, so repeating a killed copy completes it. Only a clean, an archiving or a restore removes
objects, each with an event. Then the copy continues with the newer version and keeps its work.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

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
from crdt_mor.ground.threads import WEIGHT_MAX, in_threads
from crdt_mor.hudi.handover import read_properties, replace_properties
from crdt_mor.log.deciding import deciding
from crdt_mor.log.paths import BACKUP, COPIED, ERASURES, METADATA_TABLE, PROPERTIES, version_path
from crdt_mor.log.steps import Delete, MakeDurable, Put, Steps, Together, put_all_surely, put_surely, run
from crdt_mor.log.tail import expire_versions
from crdt_mor.model.config_properties import OUR_ID
from crdt_mor.model.instant import EPOCH, InstantTime, to_datetime
from crdt_mor.model.timeline import Timeline
from crdt_mor.services.copy_objects import (
    GoneError,
    Moment,
    NeededObjects,
    by_path,
    files_of_timeline,
    listed,
    moment_of,
    needed_objects,
    sizes,
    superfluous,
    walks,
)
from crdt_mor.services.erasure import open_erasures
from crdt_mor.services.mirror import may_have_mirrors
from crdt_mor.store.across import bytes_held, put_across
from crdt_mor.store.paths import TEMP_FOLDER, one_of_each_folder
from crdt_mor.store.protocol import Durable, Stat, Store, is_bucket, side_by_side

T = TypeVar("T")

_THREADS: Final = 4
"""Files copied at once if neither store is a bucket."""

_FAR_THREADS: Final = 128
"""Objects copied at once from or to a bucket."""


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """Progress of a copy: present objects and bytes, and their totals."""

    objects: int
    of_objects: int
    bytes: int
    of_bytes: int


@dataclass(frozen=True, slots=True)
class Copied:
    """The result of `Table.copy`.

    Attributes:
        at: Time up to which it shows the table, 17 digits.
        objects, bytes: copied by this call.
        kept: Objects already in the copy.
        pending: Writes pending at that time, not in the copy.
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
        rest = f"; {self.pending:,} pending writes are not in the copy" if self.pending else ""
        return (
            f"{self.uri} is the table at version {self.version}, {when}: copied {self.objects:,} objects, "
            f"{self.bytes:,} bytes{more}{gone}{rest}"
        )


Tell = Callable[[CopyProgress], None]


def copy(session: Session, target: Store, address: str, *, update: bool, tell: Tell) -> tuple[Copied, bool]:
    """Copy the table. Also returns True if the table or the copy may have mirrors."""
    first: list[Callable[[], Any]] = [partial(listed, target), partial(session.run, read_properties())]
    there, properties = side_by_side(target, first)
    ready: list[Callable[[], Any]] = [
        partial(_prepare, session, target, address, there, update=update),
        partial(_newest, session, properties),
    ]
    _, moment = side_by_side(target, ready)
    copied = _Copying(session, target, address, tell).run(moment, there)
    return copied, may_have_mirrors(there) or may_have_mirrors(moment.listing)


def _prepare(session: Session, target: Store, address: str, there: Mapping[str, Stat], *, update: bool) -> None:
    if any(not path.startswith(f"{TEMP_FOLDER}/") for path in there):
        _require_free(session, target, address, there, update=update)
    is_known = any(path.startswith(f"{COPIED}/") for path in there)
    if is_bucket(target) and not is_known and not target.is_in_bucket_of(session.store):
        target.probe()  # the table's own bucket passed it


def _require_free(session: Session, target: Store, address: str, there: Mapping[str, Stat], *, update: bool) -> None:
    """Raise unless the address has a copy of this table, unfinished or to be moved on."""
    is_noted, is_copy = _require_same_table(session, target, address)
    if is_copy and not is_noted:
        raise TableExistsError(
            f"this address contains the same table, not made by crdt-mor copy: copy to an empty address. path={address}"
        )
    if is_copy and not update:
        raise TableExistsError(
            "this address already contains a copy of this table: move it on with update=True, or copy "
            f"to another address. path={address}"
        )
    if not is_noted and (found := [path for path in there if not path.startswith(f"{TEMP_FOLDER}/")]):
        raise TableExistsError(
            "this address is not empty: copy to another address. "
            f"path={address} objects={len(found)} first={min(found)}"
        )


def _require_same_table(session: Session, target: Store, address: str) -> tuple[bool, bool]:
    """Raise if the address contains another table, or its copy. Returns True for notes and for properties.

    Of two tables that are copied to one address at once, each notes its moment before it looks. So at most one passes.
    """
    looks: list[Callable[[], Any]] = [
        partial(run, steps, target, session.environment) for steps in (events.notes(), read_properties())
    ]
    moments, properties = side_by_side(target, looks)
    own_id = session.known_tail().table_id
    if properties is not None:
        _require_copy(properties, session, address, is_noted=bool(moments))
    others = [moment.table_id for moment in moments if moment.table_id != own_id]
    if others and (properties is None or OUR_ID not in decode_table(properties, PROPERTIES)):
        raise TableExistsError(
            "this address contains an unfinished copy of another table: copy to another address, or remove the copy. "
            f"path={address} copy_of={others[-1]} table_id={own_id}"
        )
    return len(moments) > len(others), properties is not None


def _require_copy(properties: bytes, session: Session, address: str, *, is_noted: bool) -> None:
    """Raise if the properties belong to another table. Tables made by Hudi have no id: with notes, the caller checks
    them.
    """
    table_id = decode_table(properties, PROPERTIES).get(OUR_ID)
    if table_id is None and is_noted and session.config.table_id is None:
        return
    if table_id is None or table_id != session.known_tail().table_id:
        raise TableExistsError(
            "this address contains another table: copy to an empty address. "
            f"path={address} found={table_id} table_id={session.known_tail().table_id}"
        )


def _newest(session: Session, properties: bytes | None) -> Moment:
    """Return the newest moment. properties: of the table, read just before."""
    while True:
        value, data, listing = _look(session)
        if not session.has_known_tail:  # before the adoption of Hudi's commits publishes an event
            raise _no_event_of_ours(session)
        session.views.with_hudi(value, files_of_timeline(session.publisher.projector.folder, listing))
        if session.views.has_foreign:
            session.adopt()
        _require_whole(session, session.known_tail(), listing)
        is_newest = session.known_tail().version == value.version
        if is_newest and data is not None and value.is_in(data) and properties is not None:
            try:
                return moment_of(session, value, data, properties, listing)
            except SnapshotExpiredError:  # many newer versions exist by now
                pass
        properties = session.run(read_properties())


def _look(session: Session) -> tuple[Timeline, bytes | None, dict[str, Stat]]:
    """Return the newest version, its object, and the table's objects, listed afterwards."""
    store, known = session.store, session.known_tail()
    looks: list[Callable[[], Any]] = [session.tail, partial(store.read, version_path(known.version)), *walks(store)]
    tail, data, found, hoodie = side_by_side(store, looks)
    if tail.version != known.version:
        looks = [partial(store.read, version_path(tail.version)), *walks(store)]
        data, found, hoodie = side_by_side(store, looks)
    return tail, data, by_path(found, hoodie)


def _require_whole(session: Session, value: Timeline, listing: Iterable[str]) -> None:
    """Raise if the version lacks rows: Hudi's writers own the table, or a migration or erasure is unfinished."""
    if value.table_id is None:
        raise _no_event_of_ours(session)
    if value.handed_over != EPOCH:
        raise InvalidInputError(
            "the table is handed over to Hudi's writers, so their commits are unknown here: take it back (crdt-mor "
            f"takeback), or stop them and copy its folder. path={session.uri} handed_over={value.handed_over}"
        )
    if any(path.startswith(f"{METADATA_TABLE}/") for path in listing):
        raise UnsupportedFeatureError(
            "the table uses a metadata table of Hudi, which changes independently: remove it first (crdt-mor "
            f"drop-metadata-table), or stop all writers and copy the folder. path={session.uri}"
        )
    if value.moving is not None:
        raise InvalidInputError(
            "the table is migrating to another address: copy the new table when the migration is over, to an unused "
            f"address. path={session.uri} moves_to={value.moving.uri}"
        )
    if value.origin is not None and not value.origin.is_opened:
        raise InvalidInputError(
            "a migration still writes rows of another table here: copy the table when the migration is over. "
            f"path={session.uri} source={value.origin.uri}"
        )
    if any(path.startswith(f"{ERASURES}/") for path in listing) and (erasures := open_erasures(session)):
        raise InvalidInputError(
            "an erasure is unfinished, and a copy would keep the erased rows in its history: call the erasure again, "
            f"then copy. erasure={erasures[0].requested}"
        )


def _no_event_of_ours(session: Session) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        "the timeline contains no event of crdt_mor, so the files of one moment are unknown: stop all writers and copy "
        f"the folder. path={session.uri}"
    )


class _Copying:
    def __init__(self, session: Session, target: Store, address: str, tell: Tell) -> None:
        self._session = session
        self._target = target
        self._address = address
        self._tell = tell
        self._made: dict[str, int] = {}
        self._kept = 0

    def run(self, moment: Moment, there: Mapping[str, Stat]) -> Copied:
        failed: tuple[int, str] | None = None
        overtaken = -1
        while True:
            if moment.value.version == overtaken:
                raise InvalidInputError(
                    "the copy contains a later version than the table. If the table was restored from a backup, copy "
                    f"to another address. path={self._address} version={overtaken}"
                )
            try:
                shown = self._try(moment, there)
            except GoneError as error:
                if failed == (moment.value.version, error.path):
                    raise FormatError(
                        "an object of the table is missing, and no clean removed it: restore it, or run crdt-mor "
                        f"verify to see what is lost. missing={error.path} version={moment.value.version}"
                    ) from error
                failed = moment.value.version, error.path
            else:
                if shown is not None:
                    return shown
                overtaken = moment.value.version
            moment = _newest(self._session, self._session.run(read_properties()))
            there = listed(self._target)

    def _try(self, moment: Moment, there: Mapping[str, Stat]) -> Copied | None:
        """Copy one version; None if another process copies a later one."""
        value = moment.value
        if there:
            self._run(events.require_movable(value))
        self._run(events.note(value, moment.data))
        if PROPERTIES not in there:
            _require_same_table(self._session, self._target, self._address)
        need = needed_objects(moment)
        self._put_missing(moment, need, there)
        shown = self._run(events.publish(value, moment.data))
        if shown is None:
            return None
        with deciding(is_made=True):
            project = partial(self._run, self._session.publisher.help_project(shown))
            looks: list[Callable[[], Any]] = [project, *walks(self._target)]
            _, found, hoodie = side_by_side(self._target, looks)
            removed = self._remove(moment, need, by_path(found, hoodie))
            self._put_properties(moment, there)
        objects, size = len(self._made), sum(self._made.values())
        return Copied(self._address, shown.version, shown.clock, objects, size, self._kept, removed, len(shown.pending))

    def _put_missing(self, moment: Moment, need: NeededObjects, there: Mapping[str, Stat]) -> None:
        """Put missing objects. If readers may exist, files ending instants for Hudi's readers come last, in order.

        Before these, check again if the copy may show this moment.
        """
        missing, endings = _missing(need.objects, there, need.beginnings), _missing(need.endings, there)
        stats = (*need.objects, *need.endings)
        self._kept = sum(stat.path in there and stat.path not in self._made for stat in stats)
        progress = _Progress(len(stats), sizes(stats), self._tell)
        progress.add(len(stats) - len(missing) - len(endings), sizes(stats) - sizes(missing) - sizes(endings))
        is_read = PROPERTIES in there
        self._put(missing if is_read else [*missing, *endings], "content", progress)
        self._make_durable(need.objects)
        if endings and is_read:
            self._run(events.require_movable(moment.value))
            self._put(endings, True, progress, threads=1)
        self._make_durable(need.endings)

    def _put(self, stats: Sequence[Stat], durable: Durable, progress: _Progress, threads: int | None = None) -> None:
        source, target = self._session.store, self._target
        far = is_bucket(source) or is_bucket(target)

        def put(stat: Stat) -> tuple[Stat, bool]:
            made = put_across(source, target, stat, durable)
            if made is None:
                raise GoneError(stat.path)  # the map waits for the other puts
            return stat, made

        at_once = threads or (_FAR_THREADS if far else _THREADS)
        most = min(WEIGHT_MAX, self._session.memory_limit)
        for stat, made in in_threads(put, stats, at_once, lambda stat: bytes_held(target, stat), most):
            if made:
                self._made[stat.path] = stat.size
            progress.add(1, stat.size)

    def _make_durable(self, stats: Sequence[Stat]) -> None:
        """Make objects durable, including those of an earlier copy that died before this step."""
        for path in one_of_each_folder(stat.path for stat in stats):
            self._target.make_durable(path)

    def _put_properties(self, moment: Moment, there: Mapping[str, Stat]) -> None:
        if PROPERTIES not in there and BACKUP not in there:
            _, existing = self._run(put_all_surely([Put(PROPERTIES, moment.properties)]))
            if not existing:
                return
        found = self._run(read_properties())
        if found is not None:
            _require_copy(found, self._session, self._address, is_noted=True)
        if found is None:
            self._run(put_surely(Put(PROPERTIES, moment.properties)))
        elif found != moment.properties:
            self._run(replace_properties(found, moment.properties))
        else:
            self._target.make_durable(PROPERTIES)

    def _remove(self, moment: Moment, need: NeededObjects, found: Mapping[str, Stat]) -> int:
        groups = superfluous(moment, need.paths, found)
        for group in groups:
            self._run(_removed(group))
        self._run(expire_versions(moment.value, list(found.values())))
        return sum(len(group) for group in groups)

    def _run(self, steps: Steps[T]) -> T:
        return run(steps, self._target, self._session.environment)


def _missing(stats: Sequence[Stat], there: Mapping[str, Stat], by_name: Container[str] = ()) -> list[Stat]:
    """Return the objects missing in the copy. Raise on different sizes, except for `by_name`."""
    for stat in stats:
        found = there.get(stat.path)
        if found is not None and found.size != stat.size and stat.path not in by_name:
            raise FormatError(
                "the copy is damaged: an object differs in size from the table's. Remove the copy "
                f"and copy again. path={stat.path} copy={found.size} table={stat.size}"
            )
    return [stat for stat in stats if stat.path not in there]


def _removed(paths: Sequence[str]) -> Steps[None]:
    gone = (yield Together(tuple(Delete(path) for path in paths))) if paths else []
    if not all(gone):
        raise StorageUnavailableError(
            "an obsolete object could not be removed, so the copy may still contain dropped or erased rows: "
            f"check that this process may delete it, then copy again. path={paths[gone.index(False)]}"
        )
    for path in {path.rpartition("/")[0]: path for path in paths}.values():
        yield MakeDurable(path)


class _Progress:
    def __init__(self, of_objects: int, of_bytes: int, tell: Tell) -> None:
        self._of = of_objects, of_bytes
        self._objects = 0
        self._bytes = 0
        self._tell = tell

    def add(self, objects: int, size: int) -> None:
        self._objects += objects
        self._bytes += size
        self._tell(CopyProgress(self._objects, self._of[0], self._bytes, self._of[1]))

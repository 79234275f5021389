"""Select the objects to copy, and the obsolete objects of a copy, from listings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from crdt_mor.errors import FormatError
from crdt_mor.events.session import Session
from crdt_mor.format.archive import manifest_name, manifest_number
from crdt_mor.hudi.archive import when_removed
from crdt_mor.hudi.partitions import PARTITION_METADATA
from crdt_mor.hudi.projection import Projector
from crdt_mor.log.paths import (
    COPIED,
    PLANS,
    SEGMENTS,
    STAGED,
    TICKET,
    copied_path,
    is_own,
    outside_other_tables,
    plan_path,
    segment_path,
)
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import SAVEPOINT, TimelineFileName, data_file_name, join_path, timeline_file_name
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, completed_name
from crdt_mor.planners.archive import is_history_file, span_of
from crdt_mor.planners.copy import files_needed, is_over
from crdt_mor.store.paths import in_hoodie
from crdt_mor.store.protocol import Stat, Store, is_numbered, side_by_side


class GoneError(Exception):
    """A clean, an archiving or a restore removed an object that the moment needs."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@dataclass(frozen=True)
class Moment:
    """The version to copy, its object, the properties read just before, and the objects listed after it was put."""

    value: Timeline
    data: bytes
    properties: bytes
    completions: tuple[Completion, ...]
    projector: Projector
    listing: Mapping[str, Stat]


@dataclass(frozen=True)
class NeededObjects:
    """The objects of a moment.

    Attributes:
        objects: Objects to put in any order.
        endings: Files ending an instant in Hudi's timeline, in the order for Hudi's readers: by completion time.
        beginnings: Paths in `objects` of files beginning an instant. Readers use only their names, so a power cut may
            have emptied the files.
    """

    objects: tuple[Stat, ...]
    endings: tuple[Stat, ...]
    beginnings: frozenset[str]

    @property
    def paths(self) -> set[str]:
        return {stat.path for stat in (*self.objects, *self.endings)}


def listed(store: Store) -> dict[str, Stat]:
    return by_path(*side_by_side(store, walks(store)))


def walks(store: Store) -> list[Callable[[], list[Stat]]]:
    return [partial(store.walk, folder) for folder in ("", ".hoodie")]


def by_path(found: Sequence[Stat], hoodie: Sequence[Stat]) -> dict[str, Stat]:
    return {stat.path: stat for stat in (*outside_other_tables(found), *hoodie)}


def needed_objects(moment: Moment) -> NeededObjects:
    listing = moment.listing
    beginnings = list(_beginnings(moment, listing))
    objects = [*_data(moment, listing), *_own_objects(moment, listing), *_history(moment, listing), *beginnings]
    return NeededObjects(tuple(objects), tuple(_endings(moment, listing)), frozenset(stat.path for stat in beginnings))


def _data(moment: Moment, listing: Mapping[str, Stat]) -> Iterable[Stat]:
    """Yield base and log files; the staged file of an overwrite's base file before its renaming."""
    partitions = set()
    for file in files_needed(moment.value, moment.completions):
        found = listing.get(file.path) or listing.get(file.staged)
        if found is None:
            raise GoneError(file.path)
        if found.size != file.size:
            raise FormatError(
                "a file's size differs from its commit, so a copy would be damaged too: run "
                f"crdt-mor verify. file={found.path} size={found.size} committed={file.size}"
            )
        partitions.add(file.partition)
        yield found
    metadata = (join_path(partition, PARTITION_METADATA) for partition in sorted(partitions))
    yield from (listing[path] for path in metadata if path in listing)


def _own_objects(moment: Moment, listing: Mapping[str, Stat]) -> Iterable[Stat]:
    """Yield segments and frozen plans, also those executed by a restore or completed by this version."""
    value = moment.value
    needed = [segment_path(name) for name in sorted(value.objects)]
    needed += [plan.path for plan in value.plans] + [restore.path for restore in value.restores]
    for path in needed:
        if path not in listing:
            raise GoneError(path)
        yield listing[path]
    ended = (plan_path(c.requested, c.nonce) for c in moment.completions if c.version == value.version)
    yield from (listing[path] for path in ended if path in listing and path not in needed)


def _history(moment: Moment, listing: Mapping[str, Stat]) -> Iterable[Stat]:
    archive, folder = moment.value.archive, moment.projector.archive
    if not _is_archived(moment, listing):
        return
    for path in (f"{folder}/{name}" for name in (manifest_name(archive.manifest), *archive.files)):
        if path not in listing:
            raise GoneError(path)
        yield listing[path]


def _is_archived(moment: Moment, listing: Mapping[str, Stat]) -> bool:
    """Return True if the archived instants are in Hudi's history, so the active timeline may lack them."""
    archive = moment.value.archive
    manifest = f"{moment.projector.archive}/{manifest_name(archive.manifest)}"
    return archive.manifest > 0 and (archive.version < moment.value.version or manifest in listing)


def _active(moment: Moment, listing: Mapping[str, Stat]) -> list[Completion]:
    archive = moment.value.archive
    watermark = archive.watermark if _is_archived(moment, listing) else archive.since
    return [c for c in moment.completions if c.requested > watermark]


def _beginnings(moment: Moment, listing: Mapping[str, Stat]) -> Iterable[Stat]:
    value, folder = moment.value, moment.projector.folder
    known = {c.requested for c in _active(moment, listing)}
    known |= {p.requested for p in value.pending} | {plan.barrier for plan in value.plans}
    for path, name in _timeline(folder, listing):
        if name is None and path == f"{folder}/.crdt_mor":
            yield listing[path]
        if name is not None and name.state != "completed" and name.action != SAVEPOINT and name.requested in known:
            yield listing[path]


def _endings(moment: Moment, listing: Mapping[str, Stat]) -> Iterable[Stat]:
    """Yield the files of Hudi's active timeline that end instants, and the files of savepoints.

    Files of this version's events may not exist yet.
    """
    value = moment.value
    for completion in _active(moment, listing):
        path = moment.projector.path(completed_name(completion))
        if path in listing:
            yield listing[path]
        elif completion.version != value.version:
            raise GoneError(path)
    for savepoint in value.savepoints:
        for path in reversed(moment.projector.savepoint_paths(savepoint)):
            if path in listing:
                yield listing[path]
            elif savepoint.version != value.version:
                raise GoneError(path)


def files_of_timeline(folder: str, listing: Mapping[str, Stat]) -> list[Stat]:
    """Return the files of Hudi's timeline in a listing, as `numbered` lists them."""
    parts = ((path, path.rpartition("/")) for path in sorted(listing))
    return [listing[path] for path, (parent, _, name) in parts if parent == folder and is_numbered(name)]


def _timeline(folder: str, listing: Iterable[str]) -> list[tuple[str, TimelineFileName | None]]:
    paths = [path for path in listing if path.rpartition("/")[0] == folder]
    return [(path, timeline_file_name(path)) for path in paths]


# --- obsolete objects of a copy ---------------------------------------------------------------------------------------


def superfluous(moment: Moment, kept: set[str], listing: Iterable[str]) -> list[list[str]]:
    """Return the obsolete objects of a copy, in groups in the order of removal.

    Each belongs to a finished instant, version or plan, so no concurrent copy or later write needs it. A group
    has no order.
    """
    obsolete = [path for path in listing if path not in kept]
    folder, value = moment.projector.folder, moment.value
    known = {c.requested for c in moment.completions if c.requested > value.archive.watermark}
    files = [
        (path, name)
        for path, name in _timeline(folder, obsolete)
        if name and _is_old_timeline_file(moment, path, name, known)
    ]
    archived = [(path, name) for path, name in files if name.requested <= value.archive.watermark]
    dropped = [(path, name) for path, name in files if name.requested > value.archive.watermark]
    return [
        [path for path, name in dropped if name.state == "completed"],
        [path for path in obsolete if _is_old_data(value, path)],
        [path for path, name in dropped if name.state != "completed"],
        *([path] for path, _ in sorted(archived, key=lambda item: when_removed(item[1]))),
        [path for path in obsolete if _is_old_history(moment, path) or _is_old_own(value, path)],
    ]


def _is_old_timeline_file(moment: Moment, path: str, name: TimelineFileName, known: set[InstantTime]) -> bool:
    value = moment.value
    if name.action == SAVEPOINT:
        return name.requested <= value.clock and all(
            path not in moment.projector.savepoint_paths(savepoint) for savepoint in value.savepoints
        )
    return is_over(value, name.requested) and name.requested not in known


def _is_old_data(value: Timeline, path: str) -> bool:
    name = None if in_hoodie(path) else data_file_name(path)
    return name is not None and is_over(value, name.instant)


def _is_old_history(moment: Moment, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    archive = moment.value.archive
    if folder != moment.projector.archive or not archive.manifest:
        return False
    number = manifest_number(name)
    if number is not None:
        return number < archive.manifest
    return is_history_file(name) and span_of(name)[1] <= archive.watermark


def _is_old_own(value: Timeline, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    first = name.partition("-")[0]
    if not is_own(path):
        return False
    if folder == SEGMENTS:
        return int(first) < value.version
    if folder in (PLANS, STAGED):
        return first.isdigit() and not name.endswith(TICKET) and is_over(value, InstantTime(first))
    return folder == COPIED and path < copied_path(value.version)


def moment_of(session: Session, value: Timeline, data: bytes, properties: bytes, listing: Mapping[str, Stat]) -> Moment:
    completions = session.views.completions(value)
    return Moment(value, data, properties, tuple(completions), session.publisher.projector, listing)


def sizes(stats: Sequence[Stat]) -> int:
    return sum(stat.size for stat in stats)

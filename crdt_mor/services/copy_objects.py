"""Which objects a copy of a table needs, by listings of the table; and which objects of the copy it needs no more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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
from crdt_mor.store.protocol import Stat, Store


class GoneError(Exception):
    """An object that a moment needs is gone: a clean, an archiving or a restore has removed it meanwhile."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@dataclass(frozen=True)
class Moment:
    """A version of a table that is copied. data: its object. properties: the table's, as they were just before it."""

    value: Timeline
    data: bytes
    properties: bytes
    completions: tuple[Completion, ...]
    projector: Projector


@dataclass(frozen=True)
class Wanted:
    """The objects of a moment. objects: all that can be put in any order. told: files of Hudi's that end an instant.

    The latter are in the order of their completion times, in which Hudi's readers are to find them.

    begun: those of the objects by which Hudi's readers see that an instant has begun. They are looked for by their
        names alone, so that a power cut may have emptied them, here or there.
    """

    objects: tuple[Stat, ...]
    told: tuple[Stat, ...]
    begun: frozenset[str]

    @property
    def paths(self) -> set[str]:
        return {stat.path for stat in (*self.objects, *self.told)}


def listed(store: Store) -> dict[str, Stat]:
    """All objects of a table, by their paths."""
    found = outside_other_tables(store.walk(""))
    return {stat.path: stat for stat in (*found, *store.walk(".hoodie"))}


def wanted(moment: Moment, there: Mapping[str, Stat]) -> Wanted:
    """What the copy needs, of what listings have found at the source; raises `GoneError` where something is missing."""
    begun = list(_begun(moment, there))
    objects = [*_data(moment, there), *_own(moment, there), *_history(moment, there), *begun]
    return Wanted(tuple(objects), tuple(_told(moment, there)), frozenset(stat.path for stat in begun))


def _data(moment: Moment, there: Mapping[str, Stat]) -> Iterable[Stat]:
    """Base files and logs; of a base file of an overwrite that has no name yet, the staged one."""
    partitions = set()
    for file in files_needed(moment.value, moment.completions):
        found = there.get(file.path) or there.get(file.staged)
        if found is None:
            raise GoneError(file.path)
        if found.size != file.size:
            raise FormatError(
                "a file of the table has another size than its commit says, so that a copy would be damaged as well: "
                f"crdt-mor verify says more. file={found.path} size={found.size} committed={file.size}"
            )
        partitions.add(file.partition)
        yield found
    metadata = (join_path(partition, PARTITION_METADATA) for partition in sorted(partitions))
    yield from (there[path] for path in metadata if path in there)


def _own(moment: Moment, there: Mapping[str, Stat]) -> Iterable[Stat]:
    """Segments, and the frozen plans that are open, that a restore has carried out, or that this version completes."""
    value = moment.value
    needed = [segment_path(name) for name in sorted(value.objects)]
    needed += [plan.path for plan in value.plans] + [restore.path for restore in value.restores]
    for path in needed:
        if path not in there:
            raise GoneError(path)
        yield there[path]
    ended = (plan_path(c.requested, c.nonce) for c in moment.completions if c.version == value.version)
    yield from (there[path] for path in ended if path in there and path not in needed)


def _history(moment: Moment, there: Mapping[str, Stat]) -> Iterable[Stat]:
    """Hudi's history, as the last archiving has left it; nothing where that is still to be written."""
    archive, folder = moment.value.archive, moment.projector.archive
    if not _is_archived(moment, there):
        return
    for path in (f"{folder}/{name}" for name in (manifest_name(archive.manifest), *archive.files)):
        if path not in there:
            raise GoneError(path)
        yield there[path]


def _is_archived(moment: Moment, there: Mapping[str, Stat]) -> bool:
    """Whether what the value calls archived is in Hudi's history, and need not be in its active timeline."""
    archive = moment.value.archive
    manifest = f"{moment.projector.archive}/{manifest_name(archive.manifest)}"
    return archive.manifest > 0 and (archive.version < moment.value.version or manifest in there)


def _active(moment: Moment, there: Mapping[str, Stat]) -> list[Completion]:
    """The completions that stand in Hudi's active timeline."""
    archive = moment.value.archive
    watermark = archive.watermark if _is_archived(moment, there) else archive.since
    return [c for c in moment.completions if c.requested > watermark]


def _begun(moment: Moment, there: Mapping[str, Stat]) -> Iterable[Stat]:
    """The files of Hudi's active timeline that say that an instant has begun, and the one that makes the folder."""
    value, folder = moment.value, moment.projector.folder
    known = {c.requested for c in _active(moment, there)}
    known |= {p.requested for p in value.pending} | {plan.barrier for plan in value.plans}
    for path, name in _timeline(folder, there):
        if name is None and path == f"{folder}/.crdt_mor":
            yield there[path]
        if name is not None and name.state != "completed" and name.action != SAVEPOINT and name.requested in known:
            yield there[path]


def _told(moment: Moment, there: Mapping[str, Stat]) -> Iterable[Stat]:
    """The files of Hudi's active timeline that end instants, and those of savepoints. Of this very version's events
    there may be none yet: whoever follows it puts them, in the copy as well."""
    value = moment.value
    for completion in _active(moment, there):
        path = moment.projector.path(completed_name(completion))
        if path in there:
            yield there[path]
        elif completion.version != value.version:
            raise GoneError(path)
    for savepoint in value.savepoints:
        for path in reversed(moment.projector.savepoint_paths(savepoint)):
            if path in there:
                yield there[path]
            elif savepoint.version != value.version:
                raise GoneError(path)


def _timeline(folder: str, there: Iterable[str]) -> list[tuple[str, TimelineFileName | None]]:
    """The files of Hudi's active timeline, with what their names say."""
    paths = [path for path in there if path.rpartition("/")[0] == folder]
    return [(path, timeline_file_name(path)) for path in paths]


# --- what goes from a copy --------------------------------------------------------------------------------------------


def superfluous(moment: Moment, kept: set[str], there: Iterable[str]) -> list[list[str]]:
    """The objects of a copy that its moment needs no more, in the order in which they are removed: group by group.

    Each is of an instant, a version or a plan that is over at the moment, so that none is of what another process
    copies beside it, or of what somebody has begun in the copy since. kept: the paths that the moment needs.
    """
    going = [path for path in there if path not in kept]
    folder, value = moment.projector.folder, moment.value
    known = {c.requested for c in moment.completions if c.requested > value.archive.watermark}
    told = [(path, name) for path, name in _timeline(folder, going) if name and _is_untold(moment, path, name, known)]
    archived = [(path, name) for path, name in told if name.requested <= value.archive.watermark]
    dropped = [(path, name) for path, name in told if name.requested > value.archive.watermark]
    return [
        [path for path, name in dropped if name.state == "completed"],
        [path for path in going if _is_old_data(value, path)],
        [path for path, name in dropped if name.state != "completed"],
        [path for path, _ in sorted(archived, key=lambda item: when_removed(item[1]))],
        [path for path in going if _is_old_history(moment, path) or _is_old_own(value, path)],
    ]


def _is_untold(moment: Moment, path: str, name: TimelineFileName, known: set[InstantTime]) -> bool:
    """Whether a file of Hudi's active timeline tells of what is not so at a moment. known: the instants in it."""
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
    """Whether a segment, a plan, a staged file or a note is of before a version, which does not need it."""
    folder, _, name = path.rpartition("/")
    first = name.partition("-")[0]
    if not is_own(path):
        return False
    if folder == SEGMENTS:
        return int(first) < value.version
    if folder in (PLANS, STAGED):
        return first.isdigit() and not name.endswith(TICKET) and is_over(value, InstantTime(first))
    return folder == COPIED and path < copied_path(value.version)


def moment_of(session: Session, value: Timeline, data: bytes, properties: bytes) -> Moment:
    """A version of a session's table, with all of its completions."""
    completions = session.views.completions(value)
    return Moment(value, data, properties, tuple(completions), session.publisher.projector)


def sizes(stats: Sequence[Stat]) -> int:
    """How many bytes objects have."""
    return sum(stat.size for stat in stats)

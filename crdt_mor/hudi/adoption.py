"""Instants that Hudi itself wrote, found in Hudi's timeline: the active one, a file each, and the archived one.

Completions in segments are projected for sure, and those that the value carries are known by name. So nobody else has
written if three things hold of the rest of the directory: it counts as many completed files as the segments have that
are not archived, none of them is newer, and none is below the watermark of what we have archived. A look is one listing
then. Names are compared and files read only otherwise, and the archive only where its newest manifest is not one of
ours.

These are never adopted: an instant that the value knows, one whose file carries our own key (a commit newer than the
value, or a stale helper's), and a `.requested` or `.inflight` file alone; nor a savepoint, which only marks the instant
whose requested time it bears; nor what a restore has dropped; nor any instant at or below the watermark. A commit of
Hudi's that is found there is refused, as no reader could see its rows.

A log file belongs to the slice of the newest base file before its completion. So no reader would see a commit that is
found late and completed before a base file of ours, in a file group that it wrote to: the compaction that wrote that
base file did not know it. Such a commit appears where the clock of Hudi's writer is behind the table's, or where it
writes at the very moment of a compaction. Such a table is refused, to readers and writers alike. As long as the
compaction is only planned nothing is lost: adopting the commit cancels the plan, and the next one has it.

Hudi archives an instant before it removes it from the active timeline. So the archive is read last: what left the
active timeline in the meantime is found there, and what is found in both is one instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import FormatError, StorageUnavailableError, UnsupportedFeatureError
from crdt_mor.format.archive import (
    VERSION_FILE,
    decode_instants,
    decode_manifest,
    manifest_number,
    newest_manifest,
)
from crdt_mor.format.commit import CommitMetadata, WriteStat, decode_commit
from crdt_mor.ground.observing import AdoptionEvent
from crdt_mor.hudi.actions import ACTIONS
from crdt_mor.hudi.plan import read_plan
from crdt_mor.hudi.projection import Projector, TablePublisher, wide_completions
from crdt_mor.hudi.restore import dropped_by_restores
from crdt_mor.log.outcome import all_completions
from crdt_mor.log.paths import OWN_FOLDER, VERSIONS, version_path
from crdt_mor.log.steps import List, Nonce, Read, Steps
from crdt_mor.log.tail import find_tail
from crdt_mor.model.instant import EPOCH, LAST, InstantTime
from crdt_mor.model.names import (
    COMMIT,
    DATA_ACTIONS,
    OWN_KEY,
    REPLACE_COMMIT,
    SAVEPOINT,
    LogFileName,
    TimelineFileName,
    join_path,
)
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup, OpenPlan, completed_name
from crdt_mor.store.protocol import Stat

_OWN_SERVICES = {action.completed: action for action in ACTIONS.values() if action.completed not in DATA_ACTIONS}
"""The services of ours whose completed instants are neither commits of ours nor of Hudi's, by Hudi's word for them."""

_NUMBERED_SCHEMA = "latest_schema"
_OTHER_BASES = (".orc", ".hfile", ".lance")

READS_MAX = 10
"""How often the archive is read while Hudi replaces its files."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """What Hudi wrote: its completions, in completion order, and the table's schema with theirs."""

    completions: tuple[Completion, ...]
    schema: str


@dataclass(frozen=True, slots=True)
class HudiInstant:
    """One completed instant of Hudi's timeline.

    own: we projected it. schema: the Avro schema that it carries, as text; "" for none. numbered: it carries another
    schema as well, whose columns have numbers, by which Hudi's readers find them in older files.
    """

    completion: Completion
    own: bool = False
    schema: str = ""
    numbered: bool = False


InstantCache = dict[str, tuple[HudiInstant, ...]]
"""What files of Hudi's timeline hold, by path. They never change, so a process with a cache reads each once."""


def foreign_completions(
    projector: Projector, value: Timeline, cache: InstantCache | None = None, listed: Sequence[Stat] | None = None
) -> Steps[Foreign]:
    """The completed instants in Hudi's timeline that are not ours; raises where one of them is below a base of ours.

    listed: the folder of that timeline, where it was listed since `value` was read.
    """
    cache = {} if cache is None else cache
    names: Sequence[Stat] = (yield List(projector.folder)) if listed is None else listed
    parsed = [TimelineFileName.parse(stat.path.rpartition("/")[2]) for stat in names]
    fresh = yield from wide_completions(value)  # which may not be projected yet, though they are in a segment
    carried = {str(completed_name(c)) for c in (*value.completions, *fresh)}
    candidates = [name for name in parsed if name and _is_completed(name) and str(name) not in carried]
    if value.version > 0 and _are_those_of(value, candidates, value.standing - len(fresh)):
        return Foreign((), value.schema)
    moved = yield from is_archived_by_others(projector, value)
    completions = yield from all_completions(value)
    known = {p.requested for p in value.pending} | {p.barrier for p in value.plans} | {c.requested for c in completions}
    known |= {r.requested for r in value.rolled_back}
    instants: dict[InstantTime, HudiInstant] = {}
    completed = {c.requested: c.completed for c in completions}
    dropped = yield from dropped_by_restores(value, {name.requested: [name] for name in candidates}, known)
    for name in (name for name in candidates if name.requested not in dropped):  # nobody has come to those yet
        if name.requested in known and name.completed in (None, completed.get(name.requested)):
            continue
        instant = yield from _read_active(projector.path(name), name, cache)
        if instant is None:
            moved = True
        elif name.requested not in known and not _is_misplaced(value, instant):
            instants[name.requested] = instant
        elif name.requested in known and not instant.own and name.action in DATA_ACTIONS:
            raise _same_time_error(instant.completion)
    for instant in (yield from _read_archive(projector.archive, cache)) if moved else []:
        requested = instant.completion.requested
        if requested not in known and requested > value.archive.watermark and instant.completion.action != SAVEPOINT:
            instants.setdefault(requested, instant)
    own = next((instant for instant in instants.values() if instant.own), None)
    if own is not None and value.version == 0 and not (yield from _has_later_versions()):
        raise FormatError(
            "this table's own timeline is missing, though commits of ours stand in Hudi's: restore the folder "
            f"from a backup. folder={OWN_FOLDER} instant={own.completion.requested}"
        )
    foreign = _foreign(projector, value, list(instants.values()))
    _refuse_below(bases_of(completions), foreign.completions)
    return foreign


def _are_those_of(value: Timeline, candidates: Sequence[TimelineFileName], count: int) -> bool:
    """Whether these completed files are those of the sealed completions, as far as their number and times tell."""
    newest = max((segment.last for segment in value.segments), default=EPOCH)
    return len(candidates) == count and all(
        name.requested > value.archive.watermark and (name.completed or EPOCH) <= newest for name in candidates
    )


def is_archived_by_others(projector: Projector, value: Timeline) -> Steps[bool]:
    """Whether Hudi's writers have archived instants: the newest manifest is not one of those that we have written.

    Without a manifest, files there are those of our first archiving, if the value has one: it is being projected, or
    who did so died. A value that is older than the newest one may take what others of ours have archived for Hudi's.
    """
    listed: list[Stat] = yield List(projector.archive)
    numbers = [manifest_number(stat.path.rpartition("/")[2]) for stat in listed]
    newest = max((number for number in numbers if number is not None), default=None)
    if newest is None:
        return bool(listed) and value.archive.manifest == 0
    return newest > value.archive.manifest


def require_own_history(projector: Projector, value: Timeline, refusal: str) -> Steps[None]:
    """Raise with `refusal` where Hudi's writers have archived instants.

    The newest value is asked before, if there is one: only Hudi may have written to the table so far.
    """
    while (yield from is_archived_by_others(projector, value)):
        newest = (yield from find_tail(value)) if (yield List(VERSIONS)) else value
        if newest.version == value.version:
            raise UnsupportedFeatureError(f"{refusal} folder={projector.archive}")
        value = newest


def adopt(publisher: TablePublisher, known: Timeline) -> Steps[Timeline]:
    """Instants that Hudi itself wrote become part of the value; open plans that would hide one are cancelled."""
    nonce = yield Nonce()
    told: AdoptionEvent | None = None

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        nonlocal told
        event, told = yield from adopting(publisher.projector, tail, nonce, wall_ms)
        return event

    value = yield from publisher.publish(derive, known)
    if told is not None:
        publisher.tell(told)
    return value


def adopting(
    projector: Projector, tail: Timeline, nonce: str, wall_ms: int, until: InstantTime = LAST
) -> Steps[tuple[Timeline | None, AdoptionEvent | None]]:
    """The event that adopts what Hudi completed at or before `until`, and what is told of it; None for nothing."""
    foreign = yield from foreign_completions(projector, tail)
    due = [completion for completion in foreign.completions if completion.completed <= until]
    if not due:
        return None, None
    cancelled = yield from plans_missing(tail, due)
    event = tail.adopt(nonce, wall_ms, due, foreign.schema, cancelled)
    return event, AdoptionEvent(version=event.version, commits=len(due), cancelled=len(cancelled))


def plans_missing(tail: Timeline, completions: Sequence[Completion]) -> Steps[list[OpenPlan]]:
    """The open plans that lack a commit of Hudi's although it is below their barrier, in one of their file groups."""
    outdated = []
    for plan in tail.plans:
        frozen = yield from read_plan(tail, plan)
        barriers = dict.fromkeys(frozen.file_groups if frozen is not None else (), plan.barrier)
        if any(group_below(completion, barriers) for completion in completions):
            outdated.append(plan)
    return outdated


def bases_of(completions: Iterable[Completion]) -> dict[FileGroup, InstantTime]:
    """The instant of our newest base file of each file group."""
    bases: dict[FileGroup, InstantTime] = {}
    for completion in completions:
        for file in completion.files if not completion.adopted else ():
            if file.is_base:
                bases[file.group] = max(file.name.instant, bases.get(file.group, EPOCH))
    return bases


def group_below(
    completion: Completion, barriers: Mapping[FileGroup, InstantTime]
) -> tuple[FileGroup, InstantTime] | None:
    """A file group in which a commit of Hudi's wrote to a slice that is older than our barrier, and that barrier.

    A compaction of Hudi's writes nothing new.
    """
    if completion.action == COMMIT:
        return None
    touched = [(file.group, file.name.instant if file.is_base else completion.completed) for file in completion.files]
    touched += [(group, completion.completed) for group in completion.replaced]
    lost = ((group, barriers[group]) for group, since in touched if since <= barriers.get(group, EPOCH))
    return next(lost, None)


def _refuse_below(bases: Mapping[FileGroup, InstantTime], completions: Iterable[Completion]) -> None:
    for completion in completions:
        if (lost := group_below(completion, bases)) is not None:
            (partition, file_id), base = lost
            raise UnsupportedFeatureError(
                "a commit of Hudi's completed at a time that a compaction of ours had passed already, so that no "
                "reader would see its rows: the clock of Hudi's writer is behind the table's, or it wrote at the same "
                "moment. Take that commit back, with Hudi's rollback_to_instant or by moving the files of its instant "
                f"out of the timeline's folder, and write its rows again. instant={completion.requested} "
                f"completed={completion.completed} compaction={base} partition={partition!r} file_group={file_id}"
            )


def _is_misplaced(value: Timeline, instant: HudiInstant) -> bool:
    """Whether the times of an unknown instant keep it from being adopted; raises where rows would be lost."""
    if instant.completion.requested <= value.archive.watermark:
        _refuse_archived(instant, value.archive.watermark)
        return True
    if not instant.own and _is_cut_off(value, instant):
        raise _cut_off_error(instant.completion)
    return False


def _refuse_archived(instant: HudiInstant, watermark: InstantTime) -> None:
    """Raise for a commit of Hudi's at or below the watermark. What a stale helper of ours has left is swept."""
    if not instant.own and instant.completion.action in DATA_ACTIONS:
        raise UnsupportedFeatureError(
            "a commit of Hudi's was requested at a time up to which this table is archived already, so that no reader "
            "would see its rows: the clock of Hudi's writer is far behind the table's. Move the files of its instant "
            "out of the timeline's folder and its log files out of the table, and write its rows again. "
            f"instant={instant.completion.requested} archived_until={watermark}"
        )


def _same_time_error(completion: Completion) -> UnsupportedFeatureError:
    """The refusal of a table in which a commit of Hudi's has the requested time of an instant of ours."""
    return UnsupportedFeatureError(
        "Hudi and we wrote to this table at the very same moment, and a commit of Hudi's has the requested time of an "
        "instant of ours, so that its rows cannot be told from ours: move its completed file out of the timeline's "
        f"folder and its log files out of the table, and write its rows again. instant={completion.requested} "
        f"completed={completion.completed} files={[file.path for file in completion.files]}"
    )


def _is_cut_off(value: Timeline, instant: HudiInstant) -> bool:
    """Whether a commit of Hudi's that nobody knew bears a time that a restore has passed and gone back beyond."""
    completed = instant.completion.completed
    wrote = instant.completion.action in DATA_ACTIONS
    return wrote and any(restore.to < completed < restore.at for restore in value.restores)


def _cut_off_error(completion: Completion) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        "a commit of Hudi's was completed at a time that a restore of this table had passed already, so that it "
        "belongs neither to what was dropped nor to what came after it: Hudi wrote at the very same moment, or its "
        "clock is behind the table's. Move the files of its instant out of the timeline's folder and its log files out "
        f"of the table, and write its rows again. instant={completion.requested} completed={completion.completed}"
    )


def _has_later_versions() -> Steps[bool]:
    """Whether there are versions after the first by now. Then commits of ours in Hudi's directory are newer ones.

    It is asked after that directory was listed, since each commit of ours is published before it is projected.
    """
    names: list[Stat] = yield List(VERSIONS)
    return bool(names) and names[-1].path > version_path(0)


def _is_completed(name: TimelineFileName) -> bool:
    return name.state == "completed" and name.action != SAVEPOINT


def _foreign(projector: Projector, value: Timeline, instants: list[HudiInstant]) -> Foreign:
    foreign = [instant for instant in instants if not instant.own]
    foreign.sort(key=lambda instant: instant.completion.completed)
    with_schema = [instant for instant in foreign if instant.schema]
    if not with_schema:
        schema = value.schema
    elif value.version == 0 and not projector.config.ours:
        # Hudi's readers take the schema of the commit that was requested last, whatever older files hold.
        with_schema.sort(key=lambda instant: instant.completion.requested)
        if any(instant.numbered for instant in with_schema):
            _refuse_renamed(with_schema)
        schema = TableSchema.from_avro(with_schema[-1].schema).to_json()
    else:
        joined = TableSchema.from_json(value.schema)
        for text in dict.fromkeys(instant.schema for instant in with_schema):
            joined = joined.join(TableSchema.from_avro(text))
        schema = joined.to_json()
    return Foreign(tuple(instant.completion for instant in foreign), schema)


def _refuse_renamed(instants: list[HudiInstant]) -> None:
    """Refuse a table in which a column was renamed or dropped by number: by name it would be looked for in vain.

    A name that comes back later would even be found where it means another column.
    """
    schemas = [TableSchema.from_avro(text).declared for text in dict.fromkeys(instant.schema for instant in instants)]
    for before, after in pairwise(schemas):
        if gone := sorted(_column_names(before) - _column_names(after)):
            raise UnsupportedFeatureError(
                "columns of this table were renamed or dropped with hoodie.schema.on.read.enable, and older files have "
                f"them under other names, which this release does not follow: use Hudi's own reader. columns={gone}"
            )


def _column_names(columns: Iterable[pa.Field], above: str = "") -> set[str]:
    """Names of columns, and of what is inside them, as paths."""
    names = set()
    for column in columns:
        name = f"{above}{column.name}"
        names.add(name)
        inner = [column.type.field(index) for index in range(column.type.num_fields)]
        names |= _column_names(inner, f"{name}.")
    return names


# --- reading --------------------------------------------------------------------------------------------------------


def _read_active(path: str, name: TimelineFileName, cache: InstantCache) -> Steps[HudiInstant | None]:
    """An instant of the active timeline; None if its file is gone by now."""
    if path not in cache:
        data = b""
        if name.action in DATA_ACTIONS or name.action in _OWN_SERVICES:
            content = yield Read(path)
            if content is None:
                return None
            data = content
        cache[path] = (_hudi_instant(name, data, path),)
    return cache[path][0]


def _read_archive(folder: str, cache: InstantCache) -> Steps[list[HudiInstant]]:
    """All archived instants; read again if Hudi replaces the files meanwhile."""
    for _ in range(READS_MAX):
        listed: list[Stat] = yield List(folder)
        version = yield Read(f"{folder}/{VERSION_FILE}")
        manifest = newest_manifest(version, [stat.path.rpartition("/")[2] for stat in listed], folder)
        if manifest is None:
            return []
        data = yield Read(f"{folder}/{manifest}")
        if data is None:
            continue
        paths = [f"{folder}/{name}" for name in decode_manifest(data, f"{folder}/{manifest}")]
        for path in paths:
            if path not in cache and (data := (yield Read(path))) is not None:
                cache[path] = tuple(_hudi_instant(row.name, row.metadata, path) for row in decode_instants(data, path))
        if all(path in cache for path in paths):
            return [instant for path in paths for instant in cache[path]]
    raise StorageUnavailableError(
        "files of Hudi's archived timeline are missing: Hudi is replacing them, then try again, or they were deleted, "
        f"then restore them from a backup. folder={folder}"
    )


def _hudi_instant(name: TimelineFileName, data: bytes, path: str) -> HudiInstant:
    if name.action not in DATA_ACTIONS:
        return HudiInstant(_completion(name, CommitMetadata()), own=_is_own_service(name, data, path))
    metadata = decode_commit(data, path, replace=name.action == REPLACE_COMMIT)
    extra = metadata.extra
    own, schema, numbered = OWN_KEY in extra, extra.get("schema", ""), bool(extra.get(_NUMBERED_SCHEMA))
    return HudiInstant(_completion(name, metadata), own, schema, numbered)


def _is_own_service(name: TimelineFileName, data: bytes, path: str) -> bool:
    """Whether a completed instant that wrote no data is one of ours. What cannot be read is not: we put files whole."""
    action = _OWN_SERVICES.get(name.action)
    if action is None or not data:
        return False
    try:
        return OWN_KEY in action.completed_extra(data, path)
    except (FormatError, UnsupportedFeatureError):
        return False


def _completion(name: TimelineFileName, metadata: CommitMetadata) -> Completion:
    files: dict[str, DataFile] = {}
    for partition, stats in metadata.stats.items():
        for stat in stats:
            for path in _paths(partition, stat, name):
                size, rows, deletes = stat.file_size_in_bytes or 0, stat.num_writes or 0, stat.num_deletes or 0
                files.setdefault(path, DataFile(path, size, rows, deletes))
    return Completion(
        name.requested,
        name.completed or name.requested,
        version=0,
        nonce="",
        action=name.action,
        operation=metadata.operation or name.action.upper(),
        files=tuple(files.values()),
        replaced=tuple((partition, group) for partition, groups in metadata.replaced.items() for group in groups),
        adopted=True,
    )


def _paths(partition: str, stat: WriteStat, name: TimelineFileName) -> list[str]:
    """The files that a commit wrote. Beside its own log a stat may list earlier logs, and those of a change feed."""
    if not stat.path:
        raise FormatError(f"a write stat without a path. file={name}")
    if stat.path.endswith(_OTHER_BASES):
        raise UnsupportedFeatureError(
            "this release cannot read base files that are not Parquet: use Hudi's own reader. "
            f"file={stat.path} instant={name.requested}"
        )
    named = [(log, LogFileName.parse(log)) for log in stat.log_files or ()]
    logs = [join_path(partition, log) for log, parsed in named if parsed and parsed.instant == name.requested]
    return [stat.path, *logs]

"""Instants that Hudi itself wrote, found in Hudi's timeline: the active one, a file each, and the archived one.

Completions in segments are projected for sure, and those that the value carries are known by name. So nobody else has
written if three things hold of the rest of the directory: it counts as many completed files as the segments have that
are not archived, none of them is newer, and none is below the watermark of what we have archived. A look is one listing
then. Names are compared and files read only otherwise, and the archive only where its newest manifest is not one of
ours.

A completed compaction at the barrier of a plan of ours is that plan, which a writer of Hudi's has executed. Its
adoption ends the plan. Where we had completed it as well, both wrote the same rows, and a sweep removes Hudi's.

These are never adopted: an instant that the value knows, one whose file carries our own key (a commit newer than the
value, or a stale helper's), and a `.requested` or `.inflight` file alone; nor a savepoint, which only marks the instant
whose requested time it bears; nor what a restore has dropped; nor any instant at or below the watermark. A commit of
Hudi's that is found there is refused, as no reader could see its rows.

A log file belongs to the slice of the newest base file before its completion. So no reader sees a commit that
completed before a compaction which did not know it: `hudi.adoption_compactions` finds both kinds, and the table is
refused. As long as a compaction of ours is only planned nothing is lost: adopting the commit cancels the plan.

Hudi archives an instant before it removes it from the active timeline. So the archive is read last: what left the
active timeline in the meantime is found there, and what is found in both is one instant.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import pyarrow as pa

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import FormatError, UnsupportedFeatureError
from crdt_mor.format.archive import manifest_number
from crdt_mor.ground.observing_events import AdoptionEvent
from crdt_mor.hudi.adoption_compactions import (
    bases_of,
    group_below,
    refuse_below,
    refuse_uncovering,
    remove_own_outputs,
)
from crdt_mor.hudi.adoption_instants import HudiInstant, InstantCache, read_active, read_archive
from crdt_mor.hudi.adoption_layout_one import instants_of_layout_one
from crdt_mor.hudi.plan import read_plan
from crdt_mor.hudi.projection import Projector, TablePublisher, wide_completions
from crdt_mor.hudi.restore import dropped_by_restores
from crdt_mor.log.outcome import all_completions
from crdt_mor.log.paths import OWN_FOLDER, version_path
from crdt_mor.log.steps import List, Nonce, Steps
from crdt_mor.log.tail import find_tail, listed_versions
from crdt_mor.model.file_ids import LiveGroups, index_bucket, live_groups
from crdt_mor.model.instant import EPOCH, LAST, InstantTime, from_ms
from crdt_mor.model.names import (
    COMMIT,
    DATA_ACTIONS,
    DELTA_COMMIT,
    SAVEPOINT,
    TimelineFileName,
    timeline_file_name,
)
from crdt_mor.model.overwrite import is_replacing
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup, OpenPlan, completed_name
from crdt_mor.store.protocol import Stat

AHEAD_MAX_MS: Final = 600_000
"""How far the clock of Hudi's writers may be ahead of ours; no two zones are as near as that."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """What Hudi wrote: its completions, in completion order, and the table's schema with theirs.

    known: all completions of the value, where the look had to ask for them.
    """

    completions: tuple[Completion, ...]
    schema: str
    known: tuple[Completion, ...] = ()


def foreign_completions(
    projector: Projector, value: Timeline, cache: InstantCache | None = None, listed: Sequence[Stat] | None = None
) -> Steps[Foreign]:
    """The completed instants in Hudi's timeline that are not ours; raises where one of them is below a base of ours.

    listed: the folder of that timeline, where it was listed since `value` was read.
    """
    cache = {} if cache is None else cache
    names: Sequence[Stat] = (yield List(projector.folder)) if listed is None else listed
    if projector.config.layout_one:
        found = yield from instants_of_layout_one(projector.config, projector.folder, names, cache)
        return _foreign(projector, value, found)
    parsed = [timeline_file_name(stat.path) for stat in names]
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
    actions = {c.requested: c.action for c in completions if not c.adopted}
    plans = {p.barrier for p in value.plans} | {r.requested for r in value.rolled_back if r.is_plan}
    dropped = yield from dropped_by_restores(value, {name.requested: [name] for name in candidates}, known)
    for name in (name for name in candidates if name.requested not in dropped):  # nobody has come to those yet
        if name.requested in known and name.completed in (None, completed.get(name.requested)):
            continue
        instant = yield from read_active(projector.path(name), name, cache)
        if instant is None:
            moved = True
        elif name.requested in known:
            if not instant.own and name.action in DATA_ACTIONS and _is_executed(instant.completion, plans, actions):
                instants[name.requested] = instant
        elif not _is_misplaced(value, instant):
            instants[name.requested] = instant
    for instant in (yield from read_archive(projector.archive, cache)) if moved else []:
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
    executed = [c for c in foreign.completions if c.requested in plans]
    refuse_below(bases_of((*completions, *executed)), foreign.completions)
    yield from refuse_uncovering(projector.folder, completions, list(instants.values()), plans)
    _refuse_replaced(completions, foreign.completions)
    return replace(foreign, known=tuple(completions))


def _are_those_of(value: Timeline, candidates: Sequence[TimelineFileName], count: int) -> bool:
    """Whether these completed files are those of the sealed completions, as far as their number and times tell."""
    newest = max((segment.last for segment in value.segments), default=EPOCH)
    return len(candidates) == count and all(
        name.requested > value.archive.watermark and (name.completed or EPOCH) <= newest for name in candidates
    )


def is_archived_by_others(projector: Projector, value: Timeline) -> Steps[bool]:
    """Whether Hudi's writers have archived instants: the newest manifest is not one of those that we have written.

    Without a manifest, files there are those of our first archiving, if the value has one: it is being projected, or
    its process died. A value that is older than the newest one may take what others of ours have archived for Hudi's.
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
        newest = (yield from find_tail(value)) if (yield from listed_versions()) else value
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
        yield from remove_own_outputs(value)
    return value


def adopting(
    projector: Projector, tail: Timeline, nonce: str, wall_ms: int, until: InstantTime = LAST
) -> Steps[tuple[Timeline | None, AdoptionEvent | None]]:
    """The event that adopts what Hudi completed at or before `until`, and what is told of it; None for nothing."""
    foreign = yield from foreign_completions(projector, tail)
    due = [completion for completion in foreign.completions if completion.completed <= until]
    buckets = projector.config.buckets
    if not due and not may_be_led_to(tail.foreign_group, buckets):
        return None, None
    known = foreign.known or (yield from all_completions(tail))
    groups = live_groups((*known, *due), buckets)
    if not due and groups == LiveGroups(tail.file_ids, tail.foreign_group):
        return None, None
    nonces = {p.barrier: p.nonce for p in tail.plans} | {r.requested: r.nonce for r in tail.rolled_back}
    due = [replace(completion, nonce=nonces.get(completion.requested, "")) for completion in due]
    cancelled = yield from plans_missing(tail, due)
    if due:
        _refuse_ahead(projector, due, wall_ms)
    event = tail.adopt(nonce, wall_ms, due, foreign.schema, groups, cancelled)
    return event, AdoptionEvent(version=event.version, commits=len(due), cancelled=len(cancelled))


def _refuse_ahead(projector: Projector, due: Sequence[Completion], wall_ms: int) -> None:
    """Raise for a commit of a table that Hudi made, of a time that is still to come: ours would have to come after it.

    Hudi's own next commits would not. Such times are left where the zone of its writers was east of UTC.
    """
    newest = max(completion.completed for completion in due)
    if not projector.config.ours and newest > from_ms(wall_ms + AHEAD_MAX_MS):
        raise UnsupportedFeatureError(
            "the newest commit of Hudi's has a time that is still to come: the clock of its writer is ahead, or wrote "
            "times of a zone east of UTC until hoodie.table.timeline.timezone was set. Neither Hudi nor we may write "
            f"here before that time has come. completed={newest} now={from_ms(wall_ms)}"
        )


def may_be_led_to(file_id: str | None, buckets: int | None) -> bool:
    """Whether a file group that stops writers may be that of a bucket: an older release took no other ids for one."""
    return file_id is not None and index_bucket(file_id, buckets) is not None


def plans_missing(tail: Timeline, completions: Sequence[Completion]) -> Steps[list[OpenPlan]]:
    """The open plans that lack a commit of Hudi's although it is below their barrier, in one of their file groups.

    Those that Hudi has executed are open no more.
    """
    outdated = []
    executed = {completion.requested for completion in completions}
    for plan in (plan for plan in tail.plans if plan.barrier not in executed):
        frozen = yield from read_plan(tail, plan)
        barriers = dict.fromkeys(frozen.file_groups if frozen is not None else (), plan.barrier)
        if any(group_below(completion, barriers) for completion in completions):
            outdated.append(plan)
    return outdated


def _refuse_replaced(completions: Iterable[Completion], found: Iterable[Completion]) -> None:
    """Raise where Hudi has replaced file groups to which a commit of ours wrote that comes after the replacing one."""
    replacing: dict[FileGroup, list[Completion]] = {}
    for completion in found:
        for group in completion.replaced:
            replacing.setdefault(group, []).append(completion)
    for own in completions if replacing else ():
        if own.adopted or not (own.action == DELTA_COMMIT or own.overwriting is not None):
            continue  # what a compaction wrote are rows of such commits
        for file in own.files:
            for by in replacing.get(file.group, ()):
                if by.requested < (own.requested if is_replacing(by) else own.completed):
                    raise _hidden_error(own, by, file)


def _hidden_error(own: Completion, by: Completion, file: DataFile) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        "Hudi has replaced file groups of this table, and a later commit of ours wrote to them, so that no reader "
        "would see its rows: they wrote at the same moment, or our process had not looked since. Take Hudi's commit "
        "back, by moving the files of its instant out of the timeline's folder and its data files out of the table, "
        "and make it again; and call table.refresh() after Hudi has written, before you write through an open table. "
        f"instant={by.requested} completed={by.completed} ours={own.requested} partition={file.partition!r} "
        f"file_group={file.group[1]}"
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


def _is_executed(completion: Completion, plans: Collection[InstantTime], actions: Mapping[InstantTime, str]) -> bool:
    """Whether a commit of Hudi's at the time of an instant of ours is the execution of a plan that is to be adopted.

    Raises where it is none at all. actions: those of our completions.
    """
    is_plan = completion.requested in plans
    if completion.action != COMMIT or not (is_plan or actions.get(completion.requested) == COMMIT):
        raise _same_time_error(completion)
    return is_plan


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
    names = yield from listed_versions()
    return bool(names) and names[-1].path > version_path(0)


def _is_completed(name: TimelineFileName) -> bool:
    return name.state == "completed" and name.action != SAVEPOINT


def _foreign(projector: Projector, value: Timeline, instants: list[HudiInstant]) -> Foreign:
    foreign = [instant for instant in instants if not instant.own]
    foreign.sort(key=lambda instant: instant.completion.completed)
    with_schema = [instant for instant in foreign if instant.schema]
    if not with_schema:
        schema = value.schema
        if not projector.config.ours:
            _require_schema(schema, foreign)
    elif value.version == 0 and not projector.config.ours:
        # Hudi's readers take the schema of the commit that was requested last, whatever older files hold.
        with_schema.sort(key=lambda instant: instant.completion.requested)
        if any(instant.numbered for instant in with_schema):
            _refuse_renamed(with_schema)
        schema = TableSchema.from_avro(with_schema[-1].schema).to_json()
    else:
        joined = TableSchema.from_json(value.schema)
        for text in dict.fromkeys(instant.schema for instant in with_schema):
            joined = joined.join(TableSchema.from_avro(text).with_fields_as_in(joined))
        schema = joined.to_json()
    return Foreign(tuple(instant.completion for instant in foreign), schema)


def _require_schema(schema: str, instants: Iterable[HudiInstant]) -> None:
    """Raise where nothing says which columns a table has that has files."""
    wrote = next((instant.completion for instant in instants if instant.completion.files), None)
    if schema == "[]" and wrote is not None:
        raise UnsupportedFeatureError(
            "no commit in the timeline of this table says which columns it has, nor do its properties: let Hudi write "
            f"to it once more, or use Hudi's own reader. instant={wrote.requested}"
        )


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

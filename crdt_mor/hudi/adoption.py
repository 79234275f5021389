"""Find and adopt instants that Hudi wrote, in its active and archived timeline.

Usually a look is a single listing. Hudi has written nothing if the unknown completed files are as many as the sealed,
unarchived completions, none is newer, and none lies below our archive's watermark. Otherwise names are compared and
files read. The archive is read only if its newest manifest is not ours, and last, as Hudi archives an instant before
removing it.

A completed compaction at our plan's barrier is that plan, executed by Hudi; its adoption ends the plan. If we completed
it, too, both wrote the same rows, and a sweep removes Hudi's.

Never adopted are: known instants; files with our key; lone `.requested` or `.inflight` files; savepoints; instants that
a restore dropped; and instants up to the watermark. A Hudi commit up to the watermark is refused, as no reader could
see its rows.

`hudi.adoption_compactions` refuses tables with commits invisible to readers. If our compaction is only planned,
adoption cancels the plan and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import pyarrow as pa

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import FormatError, SchemaMismatchError, UnsupportedFeatureError
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
from crdt_mor.log.publish import NO_SHORTCUTS, Shortcuts
from crdt_mor.log.steps import List, Nonce, Steps
from crdt_mor.log.tail import find_tail, listed_versions
from crdt_mor.model.file_ids import LiveGroups, index_bucket, live_groups
from crdt_mor.model.instant import EPOCH, LAST, InstantTime, from_ms
from crdt_mor.model.names import COMMIT, DATA_ACTIONS, DELTA_COMMIT, SAVEPOINT, TimelineFileName, timeline_file_name
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup, OpenPlan, completed_name
from crdt_mor.store.protocol import Stat

AHEAD_MAX_MS: Final = 600_000
"""How far the clock of Hudi's writers may be ahead of ours. Time zones differ by more."""


@dataclass(frozen=True, slots=True)
class HudiCompletions:
    """Hudi's completions, in order, and the schema joined with theirs.

    value_completions: all completions of the value, if read.
    """

    completions: tuple[Completion, ...]
    schema: str
    value_completions: tuple[Completion, ...] = ()


def foreign_completions(
    projector: Projector, value: Timeline, cache: InstantCache | None = None, listed: Sequence[Stat] | None = None
) -> Steps[HudiCompletions]:
    """Return Hudi's completed instants. Raises if one lies below our base file. listed: Hudi's timeline, listed after
    `value`.
    """
    cache = {} if cache is None else cache
    names: Sequence[Stat] = (yield List(projector.folder, numbered=True)) if listed is None else listed
    if projector.config.layout_one:
        found = yield from instants_of_layout_one(projector.config, projector.folder, names, cache)
        return _foreign(projector, value, found)
    fresh = yield from wide_completions(value)  # in a segment, but perhaps not projected yet
    candidates = _completed_names(names, (*value.completions, *fresh))
    if value.version > 0 and _are_those_of(value, candidates, value.standing - len(fresh)):
        return HudiCompletions((), value.schema)
    is_archived = yield from is_archived_by_others(projector, value)
    recorded = _ValueInstants.of(value, (yield from all_completions(value)))
    active, have_moved = yield from _active(projector, recorded, candidates, cache)
    archived = (yield from _archived(projector, recorded, cache)) if is_archived or have_moved else {}
    # Hudi archives an instant before removing it: the active one counts.
    instants = [*active.values(), *(instant for requested, instant in archived.items() if requested not in active)]
    yield from _require_own_timeline(value, instants)
    return (yield from _checked(projector, recorded, instants))


def _completed_names(listed: Sequence[Stat], carried: Iterable[Completion]) -> list[TimelineFileName]:
    """Return the names of completed instants in Hudi's timeline, without those of the completions in `carried`."""
    ours = {str(completed_name(completion)) for completion in carried}
    parsed = (timeline_file_name(stat.path) for stat in listed)
    completed = (name for name in parsed if name and name.state == "completed" and name.action != SAVEPOINT)
    return [name for name in completed if str(name) not in ours]


@dataclass(frozen=True, slots=True)
class _ValueInstants:
    """The instants of a value. plans: barriers of plans that Hudi may have executed."""

    value: Timeline
    completions: tuple[Completion, ...]
    requested: frozenset[InstantTime]
    plans: frozenset[InstantTime]
    own_actions: Mapping[InstantTime, str]
    completed: Mapping[InstantTime, InstantTime]

    @classmethod
    def of(cls, value: Timeline, completions: Sequence[Completion]) -> _ValueInstants:
        barriers = {plan.barrier for plan in value.plans}
        requested = {p.requested for p in value.pending} | barriers | {c.requested for c in completions}
        return cls(
            value,
            tuple(completions),
            frozenset(requested | {r.requested for r in value.rolled_back}),
            frozenset(barriers | {r.requested for r in value.rolled_back if r.is_plan}),
            {c.requested: c.action for c in completions if not c.adopted},
            {c.requested: c.completed for c in completions},
        )

    def is_completed(self, name: TimelineFileName) -> bool:
        return name.requested in self.requested and name.completed in (None, self.completed.get(name.requested))

    def is_adoptable(self, instant: HudiInstant) -> bool:
        """Return True for an unknown instant and for an executed plan. Raises if rows would be lost."""
        if instant.completion.requested not in self.requested:
            return not _is_misplaced(self.value, instant)
        is_commit = not instant.own and instant.completion.action in DATA_ACTIONS
        return is_commit and _is_executed(instant.completion, self.plans, self.own_actions)


Instants = dict[InstantTime, HudiInstant]


def _active(
    projector: Projector, recorded: _ValueInstants, candidates: Sequence[TimelineFileName], cache: InstantCache
) -> Steps[tuple[Instants, bool]]:
    """Return the adoptable instants of the active timeline, and True if a listed file has disappeared."""
    dropped = yield from dropped_by_restores(
        recorded.value, {name.requested: [name] for name in candidates}, recorded.requested
    )
    found: Instants = {}
    have_moved = False
    for name in candidates:
        if name.requested in dropped or recorded.is_completed(name):  # a dropped one is not removed yet
            continue
        instant = yield from read_active(projector.path(name), name, cache)
        if instant is None:
            have_moved = True
        elif recorded.is_adoptable(instant):
            found[name.requested] = instant
    return found, have_moved


def _archived(projector: Projector, recorded: _ValueInstants, cache: InstantCache) -> Steps[Instants]:
    found: Instants = {}
    for instant in (yield from read_archive(projector.archive, cache)):
        requested = instant.completion.requested
        is_new = requested not in recorded.requested and requested > recorded.value.archive.watermark
        if is_new and instant.completion.action != SAVEPOINT:
            found.setdefault(requested, instant)
    return found


def _require_own_timeline(value: Timeline, instants: Sequence[HudiInstant]) -> Steps[None]:
    own = next((instant for instant in instants if instant.own), None)
    if own is not None and value.version == 0 and not (yield from _has_later_versions()):
        raise FormatError(
            "the table's own timeline is missing, but Hudi's timeline contains commits of ours. Restore the folder "
            f"from a backup. folder={OWN_FOLDER} instant={own.completion.requested}"
        )


def _checked(projector: Projector, recorded: _ValueInstants, instants: Sequence[HudiInstant]) -> Steps[HudiCompletions]:
    """Return Hudi's instants. Raises if they, or commits of ours, would have no reader."""
    foreign = _foreign(projector, recorded.value, instants)
    executed = [c for c in foreign.completions if c.requested in recorded.plans]
    refuse_below(bases_of((*recorded.completions, *executed)), foreign.completions)
    yield from refuse_uncovering(projector.folder, recorded.completions, instants, recorded.plans)
    _refuse_replaced(recorded.completions, foreign.completions)
    return replace(foreign, value_completions=recorded.completions)


def _are_those_of(value: Timeline, candidates: Sequence[TimelineFileName], count: int) -> bool:
    newest = max((segment.last for segment in value.segments), default=EPOCH)
    return len(candidates) == count and all(
        name.requested > value.archive.watermark and (name.completed or EPOCH) <= newest for name in candidates
    )


def is_archived_by_others(projector: Projector, value: Timeline) -> Steps[bool]:
    """Return True if the archive's newest manifest is Hudi's.

    Files without a manifest may belong to our first archiving. An old `value` may take our own later archiving for
    Hudi's, so `require_own_history` asks the newest version before it refuses.
    """
    listed: list[Stat] = yield List(projector.archive)
    numbers = [manifest_number(stat.path.rpartition("/")[2]) for stat in listed]
    newest = max((number for number in numbers if number is not None), default=None)
    if newest is None:
        return bool(listed) and value.archive.manifest == 0
    return newest > value.archive.manifest


def require_own_history(projector: Projector, value: Timeline, refusal: str) -> Steps[None]:
    """Raise with `refusal` if Hudi's writers have archived instants, according to the newest value."""
    while (yield from is_archived_by_others(projector, value)):
        newest = (yield from find_tail(value)) if (yield from listed_versions()) else value
        if newest.version == value.version:
            raise UnsupportedFeatureError(f"{refusal} folder={projector.archive}")
        value = newest


def adopt(publisher: TablePublisher, known_tail: Timeline, shortcuts: Shortcuts = NO_SHORTCUTS) -> Steps[Timeline]:
    """Adopt Hudi's instants, and cancel open plans that would hide them."""
    nonce = yield Nonce()
    adoption: AdoptionEvent | None = None

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        nonlocal adoption
        event, adoption = yield from adopting(publisher.projector, tail, nonce, wall_ms)
        return event

    value = yield from publisher.publish(derive, known_tail, shortcuts)
    if adoption is not None:
        publisher.tell(adoption)
        yield from remove_own_outputs(value)
    return value


def adopting(
    projector: Projector, tail: Timeline, nonce: str, wall_ms: int, until: InstantTime = LAST
) -> Steps[tuple[Timeline | None, AdoptionEvent | None]]:
    """Return the event that adopts Hudi's instants up to `until`, and its notice."""
    foreign = yield from foreign_completions(projector, tail)
    due = [completion for completion in foreign.completions if completion.completed <= until]
    buckets = projector.config.buckets
    if not due and not may_be_led_to(tail.foreign_group, buckets):
        return None, None
    known = foreign.value_completions or (yield from all_completions(tail))
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
    """Raise for a Hudi commit in the future, in a table made by Hudi. Our next commit would get a later time than that
    commit, but Hudi's next commit an earlier one.
    """
    newest = max(completion.completed for completion in due)
    if not projector.config.ours and newest > from_ms(wall_ms + AHEAD_MAX_MS):
        raise UnsupportedFeatureError(
            "Hudi's newest commit lies in the future: its writer's clock is ahead, or wrote local times east of UTC "
            "before hoodie.table.timeline.timezone was set. Neither Hudi nor crdt_mor may write before that time. "
            f"completed={newest} now={from_ms(wall_ms)}"
        )


def may_be_led_to(file_id: str | None, buckets: int | None) -> bool:
    """Return True if a noted foreign file group may belong to a bucket, which an older release did not recognise."""
    return file_id is not None and index_bucket(file_id, buckets) is not None


def plans_missing(tail: Timeline, completions: Sequence[Completion]) -> Steps[list[OpenPlan]]:
    """Return the open plans that miss a Hudi commit below their barrier. Plans that Hudi executed are not open."""
    outdated = []
    executed = {completion.requested for completion in completions}
    for plan in (plan for plan in tail.plans if plan.barrier not in executed):
        frozen = yield from read_plan(tail, plan)
        barriers = dict.fromkeys(frozen.file_groups if frozen is not None else (), plan.barrier)
        if any(group_below(completion, barriers) for completion in completions):
            outdated.append(plan)
    return outdated


def _refuse_replaced(completions: Iterable[Completion], found: Iterable[Completion]) -> None:
    replacing: dict[FileGroup, list[Completion]] = {}
    for completion in found:
        for group in completion.replaced:
            replacing.setdefault(group, []).append(completion)
    for own in completions if replacing else ():
        if own.adopted or not (own.action == DELTA_COMMIT or own.overwriting is not None):
            continue  # a compaction only rewrites rows of such commits
        for file in own.files:
            for by in replacing.get(file.group, ()):
                if by.requested < (own.requested if by.is_replacing else own.completed):
                    raise _hidden_error(own, by, file)


def _hidden_error(own: Completion, by: Completion, file: DataFile) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        "Hudi replaced file groups with a later commit of ours, so no reader would see our rows. Move the files of "
        "Hudi's instant out of the timeline's folder and its data files out of the table, then repeat Hudi's "
        f"commit; and open the table again after each Hudi commit, before your next write. instant={by.requested} "
        f"completed={by.completed} ours={own.requested} partition={file.partition!r} file_group={file.group[1]}"
    )


def _is_misplaced(value: Timeline, instant: HudiInstant) -> bool:
    """Return True if an unknown instant's times prevent adoption. Raises if rows would be lost."""
    if instant.completion.requested <= value.archive.watermark:
        _refuse_archived(instant, value.archive.watermark)
        return True
    if not instant.own and _is_cut_off(value, instant):
        raise _cut_off_error(instant.completion)
    return False


def _refuse_archived(instant: HudiInstant, watermark: InstantTime) -> None:
    if not instant.own and instant.completion.action in DATA_ACTIONS:
        raise UnsupportedFeatureError(
            "a commit of Hudi lies below this table's archive, so no reader would see its rows: the clock of Hudi's "
            "writer is behind. Move the files of its instant out of the timeline's folder and its log files out of "
            f"the table, then write its rows again. instant={instant.completion.requested} archived_until={watermark}"
        )


def _is_executed(completion: Completion, plans: Collection[InstantTime], actions: Mapping[InstantTime, str]) -> bool:
    """Return True if Hudi's commit at our instant's time executes an adoptable plan. Raises for other commits."""
    is_plan = completion.requested in plans
    if completion.action != COMMIT or not (is_plan or actions.get(completion.requested) == COMMIT):
        raise _same_time_error(completion)
    return is_plan


def _same_time_error(completion: Completion) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        "a commit of Hudi and an instant of ours have the same requested time, so their rows cannot be "
        "distinguished. Move Hudi's completed file out of the timeline's folder and its log files out of the table, "
        f"then write its rows again. instant={completion.requested} completed={completion.completed} "
        f"files={[file.path for file in completion.files]}"
    )


def _is_cut_off(value: Timeline, instant: HudiInstant) -> bool:
    """Return True if an unknown Hudi commit completed in a time that a restore dropped."""
    completed = instant.completion.completed
    wrote = instant.completion.action in DATA_ACTIONS
    return wrote and any(restore.to < completed < restore.at for restore in value.restores)


def _cut_off_error(completion: Completion) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        "a commit of Hudi completed before a restore of this table that did not know it: both ran at the same "
        "moment, or Hudi's clock is behind. Move the files of its instant out of the timeline's folder and its log "
        f"files out of the table, then write its rows again. instant={completion.requested} "
        f"completed={completion.completed}"
    )


def _has_later_versions() -> Steps[bool]:
    """Return True if versions published since the listing explain our commits in it: a version is published before its
    files are put.
    """
    names = yield from listed_versions()
    return bool(names) and names[-1].path > version_path(0)


def _foreign(projector: Projector, value: Timeline, instants: Sequence[HudiInstant]) -> HudiCompletions:
    foreign = [instant for instant in instants if not instant.own]
    foreign.sort(key=lambda instant: instant.completion.completed)
    with_schema = [instant for instant in foreign if instant.schema]
    if not with_schema:
        schema = value.schema
        if not projector.config.ours:
            _require_schema(schema, foreign)
    elif value.version == 0 and not projector.config.ours:
        # Hudi's readers take the schema of the last requested commit.
        with_schema.sort(key=lambda instant: instant.completion.requested)
        if any(instant.numbered for instant in with_schema):
            _refuse_renamed(with_schema)
        schema = TableSchema.from_avro(with_schema[-1].schema).to_json()
    else:
        schema = _joined(TableSchema.from_json(value.schema), with_schema).to_json()
    return HudiCompletions(tuple(instant.completion for instant in foreign), schema)


def _joined(schema: TableSchema, instants: Iterable[HudiInstant]) -> TableSchema:
    """Return the schema for rows of ours and of Hudi's commits."""
    for text, instant in {instant.schema: instant.completion.requested for instant in instants}.items():
        try:
            schema = schema.join_hudi(text)
        except SchemaMismatchError as error:
            raise UnsupportedFeatureError(
                "a commit of Hudi changed the type of a column, so the table cannot be read. Take the commit back with "
                "Hudi's rollback_to_instant, or move its files out of the timeline's folder and its data files out of "
                f"the table; then write its rows with the old type. instant={instant} cause={error}"
            ) from error
    return schema


def _require_schema(schema: str, instants: Iterable[HudiInstant]) -> None:
    wrote = next((instant.completion for instant in instants if instant.completion.files), None)
    if schema == "[]" and wrote is not None:
        raise UnsupportedFeatureError(
            "neither commits nor properties of this table contain its columns. Write to the table once with Hudi, or "
            f"use Hudi's own reader. instant={wrote.requested}"
        )


def _refuse_renamed(instants: list[HudiInstant]) -> None:
    """Raise for columns renamed or dropped by number: a name that returns later could mean another column."""
    schemas = [TableSchema.from_avro(text).declared for text in dict.fromkeys(instant.schema for instant in instants)]
    for before, after in pairwise(schemas):
        if gone := sorted(_column_names(before) - _column_names(after)):
            raise UnsupportedFeatureError(
                "columns of this table were renamed or dropped with hoodie.schema.on.read.enable, and older files "
                f"use other names. This release does not follow them: use Hudi's own reader. columns={gone}"
            )


def _column_names(columns: Iterable[pa.Field], above: str = "") -> set[str]:
    names = set()
    for column in columns:
        name = f"{above}{column.name}"
        names.add(name)
        inner = [column.type.field(index) for index in range(column.type.num_fields)]
        names |= _column_names(inner, f"{name}.")
    return names

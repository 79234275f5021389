"""Project events to Hudi's readers: the files of Hudi's timeline, as a function of one value.

The value's completion, for some actions with its frozen plan, determines a completed file, so all helpers put the same
bytes. They are encoded only if the file is missing. Every completed file contains the value's joined schema, as Hudi's
readers take the schema of the last requested commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import StorageUnavailableError
from crdt_mor.hudi.actions import (
    WRITE,
    Action,
    D,
    FrozenAction,
    MomentaryAction,
    action_ending_as,
    action_named,
    planned_action,
)
from crdt_mor.hudi.archive import HudiHistory, when_removed
from crdt_mor.hudi.overwrite import place
from crdt_mor.hudi.records import overwrite_record, pending_record
from crdt_mor.hudi.restore import carry_out, withdraw_dropped
from crdt_mor.hudi.restore_records import encode_savepoint_record
from crdt_mor.log.paths import plan_path
from crdt_mor.log.projection import EventFile
from crdt_mor.log.publish import Publisher
from crdt_mor.log.segments import SegmentGoneError, fresh_completions, read_segment
from crdt_mor.log.steps import Delete, List, Steps, Walk, delete_for_good, read_named
from crdt_mor.log.tail import still_stands
from crdt_mor.model.config import TableConfig
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import (
    COMMIT,
    SAVEPOINT,
    TimelineFileName,
    TimelineState,
    data_file_name,
    join_path,
    timeline_file_name,
)
from crdt_mor.model.savepoint import Savepoint
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, completed_name
from crdt_mor.store.protocol import Stat


@lru_cache(maxsize=64)
def avro_schema(schema: str, table: str) -> str:
    return TableSchema.from_json(schema).avro(table)


@dataclass(frozen=True)
class Projector:
    config: TableConfig

    @cached_property
    def folder(self) -> str:
        return join_path(".hoodie", self.config.timeline_path)

    @cached_property
    def archive(self) -> str:
        return join_path(self.folder, self.config.history_path)

    @cached_property
    def history(self) -> HudiHistory:
        return HudiHistory(self.folder, self.archive)

    def path(self, name: TimelineFileName) -> str:
        return f"{self.folder}/{name}"

    def claim_path(self, instant: InstantTime) -> str:
        return self.path(TimelineFileName(instant, WRITE.name, "requested"))

    def inflight_path(self, instant: InstantTime) -> str:
        return self.path(TimelineFileName(instant, WRITE.name, "inflight"))

    def pending_paths(self, instant: InstantTime, action: str) -> list[str]:
        """Return the files of a pending instant, in put order."""
        row = action_named(action)
        return self._paths(instant, row, (*row.begin_states, *row.end_states))

    def _paths(self, instant: InstantTime, action: Action, states: Iterable[TimelineState]) -> list[str]:
        return [self.path(TimelineFileName(instant, action.name, state)) for state in states]

    def place(self, value: Timeline) -> Steps[None]:
        completions = (*value.completions, *(yield from wide_completions(value)))
        overwriting = [c for c in completions if c.version == value.version and c.overwriting is not None]
        if overwriting:
            yield from place(value, overwriting)

    def files(self, value: Timeline) -> Steps[list[EventFile]]:
        files: list[EventFile] = []
        for pending in value.pending:
            if pending.version == value.version:
                files += self._begun(pending.requested, WRITE, pending_record)
        for plan in (plan for plan in value.plans if plan.version == value.version):
            action = planned_action(plan.action)
            data = (yield from read_named(plan.path)) if action.shown_while_open else None
            if data is not None:
                files += self._begun(plan.barrier, action, partial(_record, action, data, plan.path))
        for savepoint in value.savepoints:
            if savepoint.version == value.version and savepoint.is_in_hudi:
                files += yield from self._saved(value, savepoint)
        for completion in (*value.completions, *(yield from wide_completions(value))):
            if completion.version == value.version and not completion.adopted:
                files += yield from self._ended(completion, value.schema)
        return files

    def withdraw_obsolete(self, value: Timeline, placed: Sequence[str]) -> Steps[None]:
        """Remove files of instants that were given up meanwhile, or of another table."""
        plans = [plan for instant in value.newly_pending if (plan := value.find_plan(instant)) is not None]
        for plan in plans:
            yield from self._withdraw(plan.barrier, plan.action)
        for path in reversed(placed) if not plans else ():
            yield Delete(path)

    def paths_of(self, instant: InstantTime, placed: Sequence[str]) -> list[str]:
        names = ((path, timeline_file_name(path)) for path in placed)
        return [path for path, name in names if name is not None and name.requested == instant]

    def withdraw_cancelled(self, value: Timeline) -> Steps[None]:
        for cancelled in value.rolled_back:
            if cancelled.is_plan and cancelled.version == value.version:
                yield from self._withdraw(cancelled.requested, cancelled.action)

    def withdraw_archived(self, tail: Timeline, placed: Sequence[str]) -> Steps[None]:
        """Remove the `placed` files of archived instants, in archiving order."""
        names = ((path, timeline_file_name(path)) for path in placed)
        stale = [(path, name) for path, name in names if name and name.requested <= tail.archive.watermark]
        for path, _ in sorted(stale, key=lambda item: when_removed(item[1])):
            yield Delete(path)

    def move_archived(self, value: Timeline) -> Steps[None]:
        yield from self.history.project(value)

    def withdraw_dropped(self, tail: Timeline, value: Timeline, placed: Sequence[str]) -> Steps[None]:
        yield from withdraw_dropped(tail, value, placed)

    def carry_out_restore(self, value: Timeline) -> Steps[None]:
        yield from carry_out(value, self.folder)

    def savepoint_paths(self, savepoint: Savepoint) -> list[str]:
        """Return the files of a savepoint in removal order; none if Hudi does not know it."""
        names = (
            TimelineFileName(savepoint.marks, SAVEPOINT, "completed", savepoint.saved),
            TimelineFileName(savepoint.marks, SAVEPOINT, "inflight"),
        )
        return [self.path(name) for name in names] if savepoint.is_in_hudi else []

    def _saved(self, value: Timeline, savepoint: Savepoint) -> Steps[list[EventFile]]:
        """Return the files of a savepoint. If a segment was swept the version is old, and other processes have put the
        files: return none.
        """
        cut = Cut("completed", savepoint.at)
        shown = [c for c in value.completions if cut.shows(c)]
        try:
            for segment in (segment for segment in value.segments if cut.needs(segment)):
                shown += [c for c in (yield from read_segment(segment)) if cut.shows(c)]
        except SegmentGoneError:
            if (yield from still_stands(value)):
                raise
            return []
        record = partial(encode_savepoint_record, savepoint, tuple(fold_slices(shown)))
        return [EventFile(path, record) for path in reversed(self.savepoint_paths(savepoint))]

    def _withdraw(self, barrier: InstantTime, action: str) -> Steps[None]:
        """Remove a cancelled plan: its outputs first (see `events.plan`), then its files in Hudi's timeline.

        If an output stays, the plan stays for a sweep. A plan that Hudi executed stays and is adopted.
        """
        try:
            listed: list[Stat] = yield List(self.folder, numbered=True)
            if barrier in ended_in(timeline_file_name(stat.path) for stat in listed):
                return
            files: list[Stat] = yield Walk()
        except StorageUnavailableError:
            return
        named = ((file.path, data_file_name(file.path)) for file in files)
        outputs = [path for path, name in named if name is not None and name.instant == barrier]
        if (yield from delete_for_good(outputs)):
            for path in reversed(self.pending_paths(barrier, action)):
                yield Delete(path)

    def _begun(self, instant: InstantTime, action: Action, make: Callable[[], bytes]) -> list[EventFile]:
        """Return the files of an instant's begin.

        A power cut that takes a write's files also takes its writer, while a plan waits for any executor. So only a
        plan's files are durable.
        """
        durable = action is not WRITE
        return [EventFile(path, make, durable=durable) for path in self._paths(instant, action, action.begin_states)]

    def _ended(self, completion: Completion, schema: str) -> Steps[list[EventFile]]:
        """Return the files of a completion. The completed file comes first: Hudi's writers roll back or execute
        unfinished instants.
        """
        action = action_ending_as(completion.action)
        files: list[EventFile] = []
        if action is WRITE and not completion.files:  # schema growth is one event
            files += self._begun(completion.requested, WRITE, pending_record)
        if isinstance(action, MomentaryAction):
            files += self._begun(completion.requested, action, partial(action.encode_record, completion))
        if completion.overwriting is not None:  # an overwrite is one event, too
            files += self._begun(completion.requested, action, overwrite_record)
        files += [EventFile(path, bytes) for path in self._paths(completion.requested, action, action.end_states)]
        path = self.path(completed_name(completion))
        if not isinstance(action, FrozenAction) or action.encode_outcome is None:
            return [EventFile(path, partial(self._completed, completion, schema)), *files]
        plan = plan_path(completion.requested, completion.nonce)
        data = yield from read_named(plan)
        if data is None:  # it is deleted only after all these files were put, or the table was replaced
            return []
        begun: list[EventFile] = []
        if not action.shown_while_open:
            begun = self._begun(completion.requested, action, partial(_record, action, data, plan))
        return [EventFile(path, partial(_outcome, action, completion, data, plan)), *begun, *files]

    def _completed(self, completion: Completion, schema: str) -> bytes:
        encode = action_ending_as(completion.action).encode_completed
        return encode(completion, avro_schema(schema, self.config.name))


def _record(action: FrozenAction[D], data: bytes, path: str) -> bytes:
    return action.encode_record(action.decode(data, path))


def _outcome(action: FrozenAction[D], completion: Completion, data: bytes, path: str) -> bytes:
    assert action.encode_outcome is not None, "only actions of which Hudi is told more than the files"
    return action.encode_outcome(completion, action.decode(data, path))


def ended_in(names: Iterable[TimelineFileName | None]) -> set[InstantTime]:
    return {name.requested for name in names if name is not None and name.state == "completed"}


def executed_twice(
    completions: Iterable[Completion], names: Iterable[TimelineFileName | None]
) -> list[tuple[TimelineFileName, TimelineFileName]]:
    """Return Hudi's completed files of plans that we completed, each after ours."""
    own = {c.requested: completed_name(c) for c in completions if c.action == COMMIT and not c.adopted}
    ended = [name for name in names if name is not None and name.state == "completed" and name.action == COMMIT]
    return [(own[name.requested], name) for name in ended if name != own.get(name.requested, name)]


def is_projected(value: Timeline, listed: Iterable[Stat]) -> bool:
    own = {str(completed_name(c)) for c in value.completions if c.version == value.version and not c.adopted}
    return not own or own <= {stat.path.rpartition("/")[2] for stat in listed}


def wide_completions(value: Timeline) -> Steps[tuple[Completion, ...]]:
    """Return this version's wide completions, which a segment stores. If the segment was swept the version is old, and
    other processes have projected it: return none.
    """
    try:
        return (yield from fresh_completions(value))
    except SegmentGoneError:
        if (yield from still_stands(value)):
            raise
        return ()


@dataclass(frozen=True, slots=True)
class TablePublisher(Publisher):
    projector: Projector

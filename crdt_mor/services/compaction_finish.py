"""Finish a compaction: execute and complete its plan, and plan again without the failing file groups.

    execute ──► all parts are written ────────────────────────────────────────► complete
       ▲  └───► some file groups failed ──► cancel ──► schedule the others ──┐
       └─────────────────────────────────────────────────────────────────────┘

A payload can raise on the values of one key. The frozen plan could then never complete and would hold its other file
groups for ever. Any number of processes may do this at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from crdt_mor.errors import CrdtMorError, UnsupportedFeatureError
from crdt_mor.events.session import Session
from crdt_mor.hudi.actions import COMPACT
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup
from crdt_mor.planners.compaction import CompactionPlan, GroupInput
from crdt_mor.planners.compaction_due import group_name
from crdt_mor.services import compaction_failures, service
from crdt_mor.services.compaction import compaction, compaction_again

ExecuteParts = Callable[[Sequence[CompactionPlan]], Iterable[list[DataFile] | CrdtMorError]]
"""Execute parts; yield in order each part's files or its error."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The outcome of a plan, with failed file groups and their errors.

    `completion` is None if another process cancelled the plan, or no file group was left.
    """

    plan: CompactionPlan
    completion: Completion | None
    failed: Mapping[FileGroup, CrdtMorError] = field(default_factory=dict)


def finish(session: Session, plan: CompactionPlan, execute_parts: ExecuteParts | None = None) -> Finished:
    failed: list[tuple[GroupInput, CrdtMorError]] = []
    left: CompactionPlan | None = plan
    while left is not None:
        executed = _executed(session, left, execute_parts)
        if not executed.failed:
            completion = service.complete(session, left, executed.files, seen=executed.look)
            return Finished(left, completion, _standing(session, failed))
        failed += [(part.groups[0], error) for part, error in executed.failed]
        service.cancel(session, left.barrier)
        groups = {(group.partition, group.file_id) for group, _ in failed}
        others = [group for group in left.groups if (group.partition, group.file_id) not in groups]
        rest = replace(left, groups=tuple(others))
        left = service.schedule(session, compaction_again(rest)) if others else None
    return Finished(plan, None, _standing(session, failed))


def finish_all(
    session: Session, fresh: Callable[..., service.Service[CompactionPlan]], execute_parts: ExecuteParts | None
) -> list[Finished]:
    """Finish every open plan, oldest first, then a `fresh` plan without the failed file groups."""
    seen = service.look(session, fresh().require)
    finished = [finish(session, plan, execute_parts) for plan in service.open_plans(session, COMPACT, seen.tail)]
    failed = {group for one in finished for group in one.failed}

    def others(_: Timeline, slices: Sequence[FileSlice], __: Collection[FileGroup]) -> set[FileGroup]:
        return {slice_.group for slice_ in slices if slice_.group not in failed}

    plan = service.schedule(session, fresh(choose=others), None if finished else seen)
    return finished if plan is None else [*finished, finish(session, plan, execute_parts)]


def _executed(
    session: Session, plan: CompactionPlan, execute_parts: ExecuteParts | None
) -> service.Executed[CompactionPlan]:
    if execute_parts is None:
        return service.execute(session, compaction(), plan, completes=True)
    session.require_table(plan.table_id)
    parts = replace(plan, payloads=session.payloads()).parts()
    return service.executed_parts(parts, execute_parts(parts))


def _standing(session: Session, failed: Sequence[tuple[GroupInput, CrdtMorError]]) -> dict[FileGroup, CrdtMorError]:
    """Return the failures that still apply, because nothing was written to their file group since, and note them.

    `UnsupportedFeatureError` is not noted: the next attempt may succeed on the same files.
    """
    if not failed:
        return {}
    value = session.tail()
    slices = session.views.slices(value)
    standing: dict[FileGroup, CrdtMorError] = {}
    for group, error in failed:
        of = group.partition, group.file_id
        if any(compaction_failures.is_same(group, slice_) for slice_ in slices.of_group(of)):
            standing[of] = error
            if not isinstance(error, UnsupportedFeatureError):
                compaction_failures.note(session, [group])
    return standing


def failure_texts(failed: Mapping[FileGroup, CrdtMorError]) -> list[str]:
    return [f"file group {group_name(group)}: {error}" for group, error in failed.items()]


def raise_failed(failed: Mapping[FileGroup, CrdtMorError]) -> None:
    for first, error in failed.items():
        more = f" {len(failed) - 1} more failed." if len(failed) > 1 else ""
        raise type(error)(
            f"file group {group_name(first)} cannot be compacted and was left out; the others were compacted.{more} "
            f"{error}"
        ) from error

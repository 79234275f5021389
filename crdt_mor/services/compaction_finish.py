"""Finishing a compaction: its plan is executed and completed, and made again without what cannot be compacted.

    execute ──► all parts are written ────────────────────────────────────────► complete
       ▲  └───► some file groups failed ──► cancel ──► schedule the others ──┐
       └─────────────────────────────────────────────────────────────────────┘

A payload can raise on the values of one key. A plan is frozen whole, so that it can never be completed then, even if
the key is deleted meanwhile, and it would hold its other file groups for ever. Both events are those of any plan, so
that any number of processes may meet such a file group at once: the first process cancels, the first one schedules, and
for all others there is nothing left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from crdt_mor.errors import CrdtMorError, UnsupportedFeatureError
from crdt_mor.events.session import Session
from crdt_mor.hudi.actions import COMPACT
from crdt_mor.model.slices import FileSlice, fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup
from crdt_mor.planners.compaction import CompactionPlan, GroupInput
from crdt_mor.planners.compaction_due import group_name
from crdt_mor.services import compaction_failures, service
from crdt_mor.services.compaction import compaction, compaction_again

ExecuteParts = Callable[[Sequence[CompactionPlan]], Iterable[list[DataFile] | CrdtMorError]]
"""Executes the parts of a plan somewhere; in their order, the files of each, or the error that says why not."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of a plan.

    plan, completion: the plan that was completed in the end; None where somebody cancelled it, or nothing was left.
    failed: the file groups that cannot be compacted as they are now, each with what was said of it.
    """

    plan: CompactionPlan
    completion: Completion | None
    failed: Mapping[FileGroup, CrdtMorError] = field(default_factory=dict)


def finish(session: Session, plan: CompactionPlan, execute_parts: ExecuteParts | None = None) -> Finished:
    """Execute a plan and complete it; where file groups fail, cancel it and go on without them.

    execute_parts: None: this process executes them.
    """
    session.require_table(plan.table_id)
    failed: list[tuple[GroupInput, CrdtMorError]] = []
    left: CompactionPlan | None = plan
    while left is not None:
        executed = _executed(session, left, execute_parts)
        if not executed.failed:
            return Finished(left, service.complete(session, left, executed.files), _standing(session, failed))
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
    """Finish every open plan, oldest first, and then a new one of the file groups that have not failed by then.

    fresh: the compaction that is planned, of the file groups that its argument `choose` chooses.
    """
    finished = [finish(session, plan, execute_parts) for plan in service.open_plans(session, COMPACT)]
    failed = {group for one in finished for group in one.failed}

    def others(_: Timeline, slices: Sequence[FileSlice], __: Collection[FileGroup]) -> set[FileGroup]:
        return {slice_.group for slice_ in slices if slice_.group not in failed}

    plan = service.schedule(session, fresh(choose=others))
    return finished if plan is None else [*finished, finish(session, plan, execute_parts)]


def _executed(
    session: Session, plan: CompactionPlan, execute_parts: ExecuteParts | None
) -> service.Executed[CompactionPlan]:
    if execute_parts is None:
        return service.execute(session, compaction(), plan)
    parts = replace(plan, payloads=session.payloads()).parts()
    return service.executed_parts(parts, execute_parts(parts))


def _standing(session: Session, failed: Sequence[tuple[GroupInput, CrdtMorError]]) -> dict[FileGroup, CrdtMorError]:
    """Those of the failures after which nothing was written to the file group; they are noted.

    Not noted is what may be otherwise in the next attempt, although the files are the same.
    """
    if not failed:
        return {}
    value = session.tail()
    slices = {s.group: s for s in fold_slices(session.views.snapshot_completions(value, None))}
    standing: dict[FileGroup, CrdtMorError] = {}
    for group, error in failed:
        of = group.partition, group.file_id
        if of in slices and compaction_failures.is_same(group, slices[of]):
            standing[of] = error
            if not isinstance(error, UnsupportedFeatureError):
                compaction_failures.note(session, [group])
    return standing


def said_of(failed: Mapping[FileGroup, CrdtMorError]) -> list[str]:
    """What is said of file groups that cannot be compacted, each by its name."""
    return [f"file group {group_name(group)}: {error}" for group, error in failed.items()]


def raise_failed(failed: Mapping[FileGroup, CrdtMorError]) -> None:
    """Raise the first of some failures, if there is any: an error of its class, which names its file group."""
    for first, error in failed.items():
        more = f" So it is with {len(failed) - 1} more." if len(failed) > 1 else ""
        raise type(error)(
            f"file group {group_name(first)} cannot be compacted, and was left out; the others were compacted.{more} "
            f"{error}"
        ) from error

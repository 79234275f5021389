"""Overwrite a scope: stage base files for a pending write, then publish one event.

The barrier and the file groups derive from the value that the event follows, so a lost race changes nothing. A later
process gives the base files their final names (`hudi.overwrite`).
"""

from __future__ import annotations

from crdt_mor.events.rollback import give_up
from crdt_mor.events.write import GroupsMovedError, WriteOutcome, expired_or_unknown, taken_over_error
from crdt_mor.hudi.adoption import adopt
from crdt_mor.hudi.plan import read_plan
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.log.deciding import deciding
from crdt_mor.log.outcome import find_completion, find_overwrite
from crdt_mor.log.paths import heartbeat_path
from crdt_mor.log.segments import Contents, read_once
from crdt_mor.log.steps import Delete, Nonce, Steps
from crdt_mor.log.stopping import blocking_token, repeated_token
from crdt_mor.model.overwrite import Scope
from crdt_mor.model.slices import Slices, fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import OpenPlan, Pending
from crdt_mor.planners.overwrite import StagedOverwrite, overwritten


def overwrite(
    publisher: TablePublisher,
    known_tail: Timeline,
    begun: Pending,
    staged: StagedOverwrite,
    token: tuple[str, int] | None,
) -> Steps[WriteOutcome]:
    """Overwrite a scope in one put, unless the token was used or the write was given up.

    Only the driver that took the write over last can publish. Staged files are removed only when the write is over, as
    several drivers may use them. Raises `GroupsMovedError` if Hudi's commits have replaced their file groups.
    """
    nonce = yield Nonce()
    segments: Contents = {}

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        pending = tail.find_pending(begun.requested)
        if pending is None or pending.driver != begun.driver or blocking_token(tail, token) is not None:
            return None
        if staged.is_misplaced(tail.file_ids):
            return None
        slices = yield from live_slices(tail, segments)
        cancelled = yield from plans_of(tail, staged.scope)
        return overwritten(tail, nonce, wall_ms, pending, staged, slices, cancelled, token)

    tail = yield from adopt(publisher, known_tail)  # Hudi's commits are replaced as well
    value = yield from publisher.publish(derive, tail)
    with deciding(is_made=True):
        completion = yield from find_overwrite(begun.requested, value)
        if completion is not None:
            for path in sorted({file.staged for file in completion.files} | _staged_paths(staged)):
                yield Delete(path)  # the base files have their final names
            yield Delete(heartbeat_path(begun.requested))
            ended = yield from find_completion(begun.requested, value)
            return WriteOutcome(completion, value, repeated=ended is not None and ended.driver != begun.driver)
    pending = value.find_pending(begun.requested)
    if pending is None:
        raise expired_or_unknown(begun.requested, value)
    if pending.driver != begun.driver:
        raise taken_over_error(begun.requested)
    if blocking_token(value, token) is None:
        raise GroupsMovedError(value)
    yield from give_up(publisher, value, begun.requested, sorted(_staged_paths(staged)), begun.driver)
    return WriteOutcome(repeated_token(value, token), value, repeated=True)


def _staged_paths(staged: StagedOverwrite) -> set[str]:
    return {staged.empty[0], *(base.path for base in staged.bases)}


def live_slices(tail: Timeline, contents: Contents) -> Steps[Slices]:
    """Return the latest file slices. `contents` caches segments across lost races."""
    completions = list(tail.completions)
    for segment in tail.segments:
        if segment.superseded is None:
            completions += yield from read_once(segment, contents)
    return fold_slices(sorted(completions, key=lambda c: c.completed))


def plans_of(tail: Timeline, scope: Scope) -> Steps[list[OpenPlan]]:
    found = []
    for plan in tail.plans:
        frozen = yield from read_plan(tail, plan)
        if frozen is not None and any(scope.covers(partition) for partition, _ in frozen.file_groups):
            found.append(plan)
    return found

"""Schedule, execute, complete and cancel the plans of every service.

schedule   one event; the plan is a pure function of the event's previous value, and is frozen whole
execute    by any number of processes at once, in parts or whole; the plan names each output, which is put if absent
complete   one event; the first counts, and later ones find the plan completed
cancel     one event; the outputs are removed, and a later completion is refused
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from crdt_mor.errors import (
    CrdtMorError,
    FormatError,
    PayloadError,
    SnapshotExpiredError,
    UnsupportedFeatureError,
    UnsupportedVersionError,
)
from crdt_mor.events import plan as plans
from crdt_mor.events import sweep
from crdt_mor.events.session import Session
from crdt_mor.ground.clock import Looks
from crdt_mor.ground.observing_events import PartEvent, PlanEvent
from crdt_mor.ground.threads import REQUESTS, THREADS, groups_in_threads
from crdt_mor.hudi import adoption
from crdt_mor.hudi.actions import P, PlannedAction
from crdt_mor.log.foreseen import Replies, foreseen
from crdt_mor.log.outcome import is_given_up_in
from crdt_mor.log.paths import POSTS
from crdt_mor.log.publish import Shortcuts
from crdt_mor.log.steps import GetStat, List, Read, Single, perform
from crdt_mor.log.tail import look_once, table_replaced
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup
from crdt_mor.planners.clean import needless_files
from crdt_mor.store.protocol import Bucket, is_bucket, side_by_side
from crdt_mor.write.log_files import staging
from crdt_mor.write.open_write import LOOK_KEPT_MS

R = TypeVar("R")

READ_AHEAD_MAX: Final = 128
"""Most inputs read while their plan is published."""


@dataclass(frozen=True, slots=True)
class Planner(Generic[P]):
    """The planning of a service under some policy.

    Attributes:
        action: Its row in the table of actions.
        require: Raises, before anything is published, if the service must not run in this table.
        plan: Makes the plan from a value and the file groups in its open plans, without taking these; None if nothing
            is due. Through the session it reads only objects named by the value, never the current value.
    """

    action: PlannedAction[P]
    require: Callable[[Session], None]
    plan: Callable[[Session, Timeline, Collection[FileGroup]], P | None]


@dataclass(frozen=True, slots=True)
class Service(Planner[P]):
    """A service that writes files.

    `execute` writes the outputs of a part, or finds another executor's. Its last argument limits the threads. `size`
    returns the bytes of a part's files, `inputs` the files to read first.
    """

    execute: Callable[[Session, P, int], list[DataFile]]
    size: Callable[[P], int]
    inputs: Callable[[P], Iterable[DataFile]] = lambda _: ()


@dataclass(frozen=True, slots=True)
class Look:
    """The newest value a moment ago. replies: in advance, for the next protocol."""

    tail: Timeline
    replies: Replies = field(default_factory=dict)

    def replies_after(self, tail: Timeline) -> Replies:
        return self.replies if tail.version == self.tail.version else {}


def look(session: Session, require: Callable[[Session], None]) -> Look:
    if not session.is_far or not session.has_known_tail:
        require(session)
        return Look(session.tail())
    known = session.known_tail()
    tail, replies = _beside(session, session.tail, (), partial(require, session), session.store.now_ms)
    return _look_of(known, tail, replies)


def _look_of(known: Timeline, tail: Timeline, replies: Replies) -> Look:
    """replies: count only if the known value is the newest."""
    return Look(tail, replies if tail.version == known.version else {})


def _beside(
    session: Session, call: Callable[[], R], reads: Sequence[Read], *checks: Callable[[], object]
) -> tuple[R, Replies]:
    """Return the result of a call, and the replies to reads and to listings for an event."""
    hudi = List(session.publisher.projector.folder, numbered=True)
    steps: tuple[Single, ...] = (hudi, List(POSTS), *reads)
    asked = [partial(perform, step, session.store, session.environment) for step in steps]
    calls: list[Callable[[], Any]] = [call, *asked, *checks]
    result, *found = side_by_side(session.store, calls)
    replies: Replies = dict(zip(steps, found, strict=False))
    return result, {**replies, **{GetStat(stat.path): stat for stat in replies[hudi]}}


def schedule(session: Session, service: Planner[P], seen: Look | None = None) -> P | None:
    """Plan and schedule in a single transition, after rolling back expired writers."""
    publisher = session.publisher
    seen = seen or look(session, service.require)
    session.start()
    kept, _ = session.run(sweep.timed_upkeep(publisher, session.known_tail(), session.expiry_ms, looked=True))
    replies = seen.replies_after(kept)  # upkeep that published an event is newer than the listings
    # A commit of Hudi's completed before the plan's instant but missing in the plan would fall into the old slice.
    tail = session.run(foreseen(adoption.adopt(publisher, kept, Shortcuts(looked=True)), replies))
    session.pace.projected(tail)
    shortcuts = session.pace.of_service(looked=True)
    is_planned = session.is_far and not tail.plans
    planned = service.plan(session, tail, ()) if is_planned else None

    def plan_from(value: Timeline, taken: Collection[FileGroup]) -> P | None:
        return planned if is_planned and value is tail else service.plan(session, value, taken)

    planning = plans.schedule(publisher, tail, service.action, plan_from, shortcuts, replies)
    calls: list[Callable[[], Any]] = [partial(session.run, foreseen(planning, replies))]
    if planned is not None and isinstance(service, Service):
        calls += _reads_ahead(session, service.inputs(planned))
    (value, plan), *_ = side_by_side(session.store, calls)
    session.pace.projected(value, shortcuts)
    return plan  # type: ignore[no-any-return]


def _reads_ahead(session: Session, files: Iterable[DataFile]) -> list[Callable[[], None]]:
    """Return reads of small inputs and of the others' ends, which the store keeps."""
    store = session.store
    if not is_bucket(store):
        return []

    def read(bucket: Bucket, file: DataFile) -> None:
        with suppress(CrdtMorError, FileNotFoundError):  # the executor finds out
            bucket.ranges_of(file.path, file.size).read(max(0, file.size - 1), 1)

    return [partial(read, store, file) for file in islice(files, READ_AHEAD_MAX)]


def open_plans(session: Session, action: PlannedAction[P], tail: Timeline | None = None) -> list[P]:
    """Return the open plans of a service in the order to execute them, oldest first."""
    tail = session.tail() if tail is None else tail
    if not tail.plans:
        return []
    tail, frozen = session.run(plans.open_plans(session.publisher, tail, action))
    session.remember(tail)
    left = session.views.sealed(look=True)
    return [plan for plan in frozen if left.find_plan(plan.barrier) is not None]


@dataclass(frozen=True, slots=True)
class Executed(Generic[P]):
    """The outputs of a plan, and the parts that fail on their files in every executor, with their errors.

    look: after the outputs, for a cancel.
    """

    files: list[DataFile]
    failed: list[tuple[P, CrdtMorError]]
    look: Look | None = None


def is_of_files(error: BaseException) -> bool:
    """Return True if files cannot be merged; False for faults of store, table or process."""
    of_files = isinstance(error, FormatError | PayloadError | SnapshotExpiredError | UnsupportedFeatureError)
    return of_files and not isinstance(error, UnsupportedVersionError)


def execute(session: Session, service: Service[P], plan: P, *, completes: bool = False) -> Executed[P]:
    """Write a plan's outputs, or find another executor's. A cancelled plan leaves none.

    completes: this process completes the plan next.
    """
    if session.known_tail().find_plan(plan.barrier) is None:
        session.require_table(plan.table_id)
    started_ms = session.environment.now_ms()
    parts = plan.parts()
    # A few parts share all threads; with many parts, more threads would only use more memory.
    threads = max(1, THREADS // max(1, len(parts)))

    looks = Looks(session.environment, LOOK_KEPT_MS)
    looks.is_due()

    def outcome(part: P) -> list[DataFile] | CrdtMorError:
        if looks.is_due():
            session.tail()
        try:
            return _execute_part(session, service, part, threads, len(parts))
        except CrdtMorError as error:
            if is_of_files(error):
                return error
            raise

    at_once = REQUESTS if session.is_far else THREADS
    outcomes = groups_in_threads(outcome, parts, service.size, session.memory_limit, at_once)
    executed = _kept(session, plan, executed_parts(parts, outcomes), lists=completes and session.is_far)
    files = executed.files
    if files and not executed.failed:
        session.publisher.tell(
            PlanEvent(
                state="executed", barrier=plan.barrier, action=service.action.name,
                file_groups=len({file.group for file in files}), rows=sum(file.rows for file in files),
                bytes=sum(file.size for file in files), duration_ms=session.environment.now_ms() - started_ms,
            )
        )  # fmt: skip
    return executed


def executed_parts(parts: Sequence[P], outcomes: Iterable[list[DataFile] | CrdtMorError]) -> Executed[P]:
    """Combine the results of a plan's parts. Raise errors that are not about files."""
    files: list[DataFile] = []
    failed: list[tuple[P, CrdtMorError]] = []
    for part, outcome in zip(parts, outcomes, strict=True):
        if not isinstance(outcome, CrdtMorError):
            files += outcome
        elif is_of_files(outcome):
            failed.append((part, outcome))
        else:
            raise outcome
    return Executed(files, failed)


def _execute_part(session: Session, service: Service[P], part: P, threads: int, parts: int) -> list[DataFile]:
    if session.run(is_given_up_in(part.barrier, session.known_tail())):
        return []
    try:
        with staging():
            files = service.execute(session, part, threads)
    except SnapshotExpiredError:
        if session.tail().find_plan(part.barrier) is not None:
            raise
        return []  # the plan ended meanwhile, and a clean removed the files that it replaced
    session.publisher.tell(
        PartEvent(
            barrier=part.barrier, action=service.action.name, parts=parts, rows=sum(file.rows for file in files),
            bytes=sum(file.size for file in files),
        )
    )  # fmt: skip
    return files


def _kept(session: Session, plan: P, executed: Executed[P], *, lists: bool) -> Executed[P]:
    """Return no files if the plan was cancelled meanwhile. lists: ask beside for the completion."""
    known, paths = session.known_tail(), [file.path for file in executed.files]
    keep = partial(session.run, plans.keep_outputs(known, plan.barrier, paths))
    tail, replies = _beside(session, keep, _reads(known, plan)) if lists else (keep(), {})
    if tail is None:
        session.tail()  # the known tail still has the plan, and `complete` trusts it
        return replace(executed, files=[])
    _remove_erased(session, session.remember(tail), plan.barrier, executed.files)
    return replace(executed, look=_look_of(known, tail, replies))


def look_before_completion(session: Session, plan: P) -> Look | None:
    """Look in a bucket; on a disk, the completion looks itself."""
    if not session.is_far:
        return None
    known = session.known_tail()
    tail, replies = _beside(session, partial(session.run, look_once(known)), _reads(known, plan))
    return _look_of(known, session.remember(tail), replies)


def _reads(known: Timeline, plan: P) -> list[Read]:
    opened = known.find_plan(plan.barrier)
    return [] if opened is None else [Read(opened.path)]


def _remove_erased(session: Session, value: Timeline, barrier: InstantTime, files: Sequence[DataFile]) -> None:
    """Delete outputs that were put after an erasure had removed them.

    A sleeping executor may not know of the erasure, and no other process would look at its files again.
    """
    marks = dict(value.retention.groups)
    if value.find_plan(barrier) is not None or marks.keys().isdisjoint(file.group for file in files):
        return
    needless = {file.path for file in needless_files(value, session.views.completions(value), EPOCH, marks)}
    for file in files:
        if file.path in needless:
            session.store.delete(file.path)
            session.store.make_durable(file.path)


def complete(
    session: Session, plan: P, files: Sequence[DataFile], *, seen: Look | None = None, drops_commits: bool = True
) -> Completion | None:
    """Publish the completion of a plan, with the files of all parts; None if it was cancelled.

    drops_commits: False if files were left to a later plan.
    """
    publisher, pace, known = session.publisher, session.pace, session.known_tail()
    replies = {} if seen is None else seen.replies_after(known)
    # Adoption cancels a plan that would bury a commit.
    adopting = adoption.adopt(publisher, known, pace.of_service(looked=seen is not None))
    tail = pace.projected(session.run(foreseen(adopting, replies)))
    if plan.table_id not in (None, tail.table_id):
        raise table_replaced(plan.table_id, tail.table_id)
    shortcuts = pace.of_service(looked=True)
    completing = plans.complete(
        publisher, tail, plan.barrier, files, session.author(), shortcuts, drops_commits=drops_commits
    )
    value, completion = session.run(foreseen(completing, replies))
    pace.projected(value, shortcuts)
    return completion


def cancel(session: Session, barrier: InstantTime) -> bool:
    value = session.remember(session.run(plans.cancel(session.publisher, session.known_tail(), barrier)))
    return value.find_rolled_back(barrier) is not None

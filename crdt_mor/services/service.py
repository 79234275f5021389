"""What every service of a table shares: its plans are scheduled, executed, completed and cancelled here.

    schedule   one event. The plan is a pure function of the value that the event derives from, and is frozen whole
    execute    any number of processes at once, early or late, in parts or whole: each output has one name, which the
               plan gives it, and is put if absent
    complete   one event; the first counts, and the others find that it is done
    cancel     one event; the outputs are removed, and a completion that comes later is refused

So no process waits for another one, and a process that dies at any of these steps leaves a plan that any other
finishes. A service adds a pure planner and an executor of one part, and its row in the table of actions
(`hudi.actions`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic

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
from crdt_mor.ground.observing_events import PartEvent, PlanEvent
from crdt_mor.ground.threads import THREADS, in_threads
from crdt_mor.hudi import adoption
from crdt_mor.hudi.actions import P, PlannedAction
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup
from crdt_mor.planners.clean import needless_files
from crdt_mor.write.log_files import staging


@dataclass(frozen=True, slots=True)
class Planner(Generic[P]):
    """How a service plans, with the policy that it is asked to follow.

    action: its row in the table of actions.
    require: raises where the service must not run in this table; nothing has been published by then.
    plan: the plan that follows from a value of the timeline and from the file groups in its open plans, none of which
        it takes; None where there is nothing to do. A function of these alone: of a session it reads what the value
        names, and never the current value.
    """

    action: PlannedAction[P]
    require: Callable[[Session], None]
    plan: Callable[[Session, Timeline, Collection[FileGroup]], P | None]


@dataclass(frozen=True, slots=True)
class Service(Planner[P]):
    """What a service adds that writes files: beside its planner, how they are written.

    execute: writes the outputs of a part of a plan, or finds that another executor has; returns them all. The last
        argument is how many threads it may use.
    """

    execute: Callable[[Session, P, int], list[DataFile]]


def schedule(session: Session, service: Planner[P]) -> P | None:
    """Plan and schedule in one transition; None if there is nothing to do. Gives up expired writers first."""
    publisher = session.publisher
    service.require(session)
    session.start()
    # A commit of Hudi's that completed before the plan's instant and is not in the plan would fall into the old slice.
    tail = session.run(sweep.upkeep_and_adoption(publisher, session.known(), session.expiry_ms))

    def plan_from(tail: Timeline, taken: Collection[FileGroup]) -> P | None:
        return service.plan(session, tail, taken)

    value, plan = session.run(plans.schedule(publisher, tail, service.action, plan_from))
    session.remember(value)
    return plan


def open_plans(session: Session, action: PlannedAction[P]) -> list[P]:
    """The open plans of a service, oldest first: the order in which to execute them. Hudi may have executed some."""
    tail = session.tail()
    if not tail.plans:
        return []
    tail, frozen = session.run(plans.open_plans(session.publisher, tail, action))
    session.remember(tail)
    left = session.views.sealed(look=True)
    return [plan for plan in frozen if left.find_plan(plan.barrier) is not None]


@dataclass(frozen=True, slots=True)
class Executed(Generic[P]):
    """What came of the execution of a plan.

    files: the outputs. failed: the parts that no executor can execute, as long as their files are what they are, each
    with what was said of it.
    """

    files: list[DataFile]
    failed: list[tuple[P, CrdtMorError]]


def is_of_files(error: BaseException) -> bool:
    """Whether an error says that files cannot be merged, and nothing of the store, the table or this process."""
    of_files = isinstance(error, FormatError | PayloadError | SnapshotExpiredError | UnsupportedFeatureError)
    return of_files and not isinstance(error, UnsupportedVersionError)


def execute(session: Session, service: Service[P], plan: P) -> Executed[P]:
    """Write the plan's outputs, or find that another executor has; nothing stays if the plan was cancelled."""
    session.require_table(plan.table_id)
    started_ms = session.environment.now_ms()
    parts = plan.parts()
    # Few parts leave threads to each of them; with many, more threads would only hold more in memory.
    threads = max(1, THREADS // max(1, len(parts)))

    def outcome(part: P) -> list[DataFile] | CrdtMorError:
        try:
            return _execute_part(session, service, part, threads, len(parts))
        except CrdtMorError as error:
            if is_of_files(error):
                return error
            raise

    executed = executed_parts(parts, in_threads(outcome, parts))
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
    """What came of the parts of a plan, in their order: files or an error. Raises one that says nothing of files."""
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
    if not session.run(plans.keep_outputs(session.known(), part.barrier, [])):
        return []
    try:
        with staging():
            files = service.execute(session, part, threads)
    except SnapshotExpiredError:
        if session.tail().find_plan(part.barrier) is not None:
            raise
        return []  # the plan has ended meanwhile, and a clean has removed what it had replaced
    kept = session.run(plans.keep_outputs(session.known(), part.barrier, [file.path for file in files]))
    if not kept:
        return []
    _remove_erased(session, part.barrier, files)
    session.publisher.tell(
        PartEvent(
            barrier=part.barrier, action=service.action.name, parts=parts, rows=sum(file.rows for file in files),
            bytes=sum(file.size for file in files),
        )
    )  # fmt: skip
    return files


def _remove_erased(session: Session, barrier: InstantTime, files: Sequence[DataFile]) -> None:
    """Delete outputs that were put so late that an erasure had removed them already.

    An executor that was asleep does not know that others have completed the plan, and that rows which it read before
    were erased since. Nobody would look at its files, and they would keep these rows.
    """
    value = session.tail()
    marks = dict(value.retention.groups)
    if value.find_plan(barrier) is not None or marks.keys().isdisjoint(file.group for file in files):
        return
    needless = {file.path for file in needless_files(value, session.views.completions(value), EPOCH, marks)}
    for file in files:
        if file.path in needless:
            session.store.delete(file.path)
            session.store.make_durable(file.path)


def complete(session: Session, plan: P, files: Sequence[DataFile]) -> Completion | None:
    """Publish that a plan is executed, unless somebody has; None if it was cancelled.

    files: those of all its parts.
    """
    session.require_table(plan.table_id)
    tail = session.run(adoption.adopt(session.publisher, session.known()))  # cancels it where it would bury a commit
    value, completion = session.run(plans.complete(session.publisher, tail, plan.barrier, files, session.author()))
    session.remember(value)
    return completion


def cancel(session: Session, barrier: InstantTime) -> bool:
    """Give an open plan of any service up, by name; whether it was open."""
    value = session.remember(session.run(plans.cancel(session.publisher, session.known(), barrier)))
    return value.find_rolled_back(barrier) is not None

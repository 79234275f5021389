"""Savepoints, and restoring a table to an earlier moment, as calls of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from crdt_mor.errors import InvalidInputError, RestoreUnfinishedError
from crdt_mor.events import restore as restoring
from crdt_mor.events import rollback, sweep
from crdt_mor.events.migration import require_restorable
from crdt_mor.events.session import Session
from crdt_mor.log.deciding import deciding
from crdt_mor.log.outcome import find_completion
from crdt_mor.model.instant import InstantTime, to_datetime
from crdt_mor.model.points import Point
from crdt_mor.model.policies import plural
from crdt_mor.model.savepoint import Savepoint as Saved
from crdt_mor.model.savepoint import checked_comment, checked_name, is_savepoint_name
from crdt_mor.model.timeline import Timeline
from crdt_mor.planners.restore import RestorePlan, plan_restore
from crdt_mor.read.cut import cut_at, saved_under, sealed_at
from crdt_mor.services.clean import saved_files
from crdt_mor.services.erasure import open_erasures
from crdt_mor.write.refusals import require_writable


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A name for a moment of a table, which stays exactly readable while the name exists.

    Attributes:
        at: Completion time up to which everything is shown, 17 digits; valid for `as_of`.
        application, host, pid: The author.
    """

    name: str
    at: InstantTime
    created: datetime
    comment: str = ""
    application: str | None = None
    host: str | None = None
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore or its dry run.

    Attributes:
        to: The table shows everything completed up to this time, 17 digits.
        commits: Number of dropped commits without compactions.
        instants: Requested times of all dropped instants, newest first, including compactions.
        pending: Requested times of the rolled-back writes.
        plans: Number of cancelled plans.
    """

    to: InstantTime
    savepoint: str | None = None
    commits: int = 0
    instants: tuple[InstantTime, ...] = ()
    files: int = 0
    pending: tuple[InstantTime, ...] = ()
    plans: int = 0
    dry_run: bool = False

    @property
    def drops(self) -> bool:
        return bool(self.instants or self.pending or self.plans)

    def __str__(self) -> str:
        where = f"{to_datetime(self.to):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"
        where = f"{self.savepoint}, {where}" if self.savepoint else where
        if not self.drops:
            return f"the table already shows its rows of {where}: there is nothing to drop"
        could = "would be restored" if self.dry_run else "was restored"
        return (
            f"the table {could} to {where}: {plural(self.commits, 'commit', ',')} dropped, "
            f"{plural(self.files, 'data file', ',')} removed, "
            f"{plural(len(self.pending), 'pending write', ',')} rolled back, "
            f"{plural(self.plans, 'open plan', ',')} cancelled"
        )


def _savepoint(saved: Saved) -> Savepoint:
    by = saved.author
    who = (None, None, None) if by is None else (by.application, by.host, by.pid)
    return Savepoint(saved.name, saved.at, to_datetime(saved.saved), saved.comment, *who)


def save(session: Session, name: object, comment: object) -> Savepoint:
    named, said = checked_name(name), checked_comment(comment)
    _require(session)
    steps = restoring.make_savepoint(session.publisher, session.known_tail(), named, said, session.author())
    value, made = session.run(steps)
    session.remember(value)
    return _savepoint(made)


def savepoints(session: Session) -> list[Savepoint]:
    return [_savepoint(saved) for saved in session.views.sealed().savepoints]


def unsave(session: Session, name: object) -> None:
    named = checked_name(name)
    _require(session)
    value, found = session.run(restoring.drop_savepoint(session.publisher, session.known_tail(), named))
    session.remember(value)
    if found is None:
        saved_under(value, named, "name")


def restore(session: Session, to: Point) -> Restored:
    """Restore the table to a point in a single event, and remove the dropped files.

    If nothing is left to drop, finish the removal of an earlier restore.
    """
    _require_restorable(session)
    value, target, name = _target(session, to)
    _refuse_open_erasures(session, target(value))
    there, saved = _listed(session), saved_files(session)
    done = session.run(
        restoring.restore(session.publisher, session.known_tail(), target, there, saved, session.author())
    )
    session.remember(done.value)
    if done.restore is None or done.plan is None or done.before is None:
        if session.run(restoring.files_of_dropped(session.publisher, done.value)):
            session.remember(session.run(sweep.sweep(session.publisher, done.value)))
        _require_carried_out(session)
        return Restored(target(done.value), name)
    with deciding(is_made=True):
        for given_up in (r for r in done.value.rolled_back if r.version == done.restore.version and not r.is_plan):
            session.run(rollback.remove_files(session.publisher, given_up, None))
        _require_carried_out(session)
    return _said(done.plan, done.before, name)


def _require_carried_out(session: Session) -> None:
    left = session.run(restoring.files_of_dropped(session.publisher, session.known_tail()))
    if left:
        instants = tuple(sorted(left))
        first = session.publisher.projector.path(left[instants[0]][0])
        raise RestoreUnfinishedError(
            "the table is restored for readers of crdt_mor, but files of dropped commits could not be removed, so "
            "Hudi's readers still see these commits: restore to the same point again from a process that may remove "
            "the files, or write, as each writer sweeps once a minute. "
            f"table={session.config.name} instants={len(instants)} file={first}",
            instants,
        )


def would_restore(session: Session, to: Point) -> Restored:
    """Return what `restore` would do now. Publishes at most the event that decides a recent moment."""
    _require_restorable(session)
    value, target, name = _target(session, to)
    _refuse_open_erasures(session, target(value))
    there, saved = _listed(session), saved_files(session)
    plan = plan_restore(value, session.views.completions(value), target(value), 0, there, saved)
    return _said(plan, value, name, dry_run=True)


def _require(session: Session) -> None:
    require_writable(session)
    session.start()


def _require_restorable(session: Session) -> None:
    _require(session)
    require_restorable(session.tail())


def _target(session: Session, to: Point) -> tuple[Timeline, Callable[[Timeline], InstantTime], str | None]:
    value = sealed_at(session, to=to)
    if is_savepoint_name(to):
        name = str(to)
        at = saved_under(value, name, "to", moments=True).at

        def saved(tail: Timeline) -> InstantTime:
            if saved_under(tail, name, "to").at != at:
                raise InvalidInputError(f"the savepoint was replaced meanwhile: restore again. to={name!r}")
            return at

        return value, saved, name
    time = cut_at(session, value, to, "to").time
    return value, lambda _: time, None


def _listed(session: Session) -> set[str]:
    """List the data files, after giving final names to files of dead overwrites."""
    session.durable_tail()
    return {stat.path for stat in session.store.walk("")}


def _refuse_open_erasures(session: Session, to: InstantTime) -> None:
    tail = session.tail()
    for erasure in open_erasures(session):
        completion = session.run(find_completion(erasure.requested, tail))
        if completion is None or completion.completed > to:
            raise InvalidInputError(
                "an erasure is unfinished, and this restore would bring its rows back: call the erasure again, "
                "then restore to a later moment. "
                f"erasure={erasure.requested} to={to}"
            )


def _said(plan: RestorePlan, before: Timeline, name: str | None, *, dry_run: bool = False) -> Restored:
    commits = sum(d.action != "commit" for d in plan.dropped)
    return Restored(
        plan.to,
        name,
        commits,
        tuple(d.requested for d in plan.dropped),
        sum(len(d.files) for d in plan.dropped),
        tuple(sorted(p.requested for p in before.pending)),
        len(before.plans),
        dry_run,
    )

"""Cleaning, as a service: the marks of the history that is kept move, and then the files go that no kept view needs.

`planners.clean` says which marks follow from a policy, and which files may go by them. The event that schedules the
plan moves the marks. From then on nobody makes a view of what lies before them, so that the files may be deleted by any
number of processes, at any time. A file that the store does not delete stops nobody: the plan is completed without it,
and a later clean finds it again, as it plans from a listing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from crdt_mor.errors import StorageUnavailableError, UnsupportedFeatureError
from crdt_mor.events import write
from crdt_mor.events.session import Session
from crdt_mor.format.clean import decode_savepoint
from crdt_mor.ground.threads import in_threads
from crdt_mor.hudi.actions import CLEAN
from crdt_mor.hudi.restore_records import own_savepoint_time
from crdt_mor.model.instant import EPOCH, InstantTime, to_datetime
from crdt_mor.model.names import SAVEPOINT, timeline_file_name
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import DataFile, FileGroup, Segment
from crdt_mor.planners.clean import (
    Cleaning,
    CleanPlan,
    RetentionPolicy,
    is_commit,
    plan_clean,
    plan_cleaning,
)
from crdt_mor.services import service
from crdt_mor.services.service import Planner
from crdt_mor.store.protocol import Stat
from crdt_mor.write.refusals import require_written_format

GroupMarks = Callable[[Timeline], Mapping[FileGroup, InstantTime]]
"""Later marks of single file groups, as they follow from a value. Their readers are not spared."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a clean has done, or would do.

    since: from which completion time on views of the table are exact for ever, 17 digits; earlier ones are refused.
    files, bytes: how many files it has removed, and of how many bytes.
    spared: files that no kept view needs and that stay for now, since a reader that began lately, a pending write, an
        open plan or a savepoint of Hudi's may need them.
    failed: files that the store did not remove; the next clean tries again.
    dry_run: nothing was removed or published; this is what would be.
    """

    since: InstantTime
    files: int
    bytes: int
    spared: int = 0
    failed: int = 0
    dry_run: bool = False

    def __str__(self) -> str:
        verb = "would remove" if self.dry_run else "removed"
        rest = f", {self.spared:,} more are spared for now" if self.spared else ""
        left = f", {self.failed:,} could not be removed" if self.failed else ""
        start = "whole" if self.since == EPOCH else f"from {to_datetime(self.since):%Y-%m-%d %H:%M:%S} UTC on"
        return f"{verb} {self.files:,} files, {self.bytes:,} bytes{rest}{left}; history is kept {start}"


@dataclass(frozen=True, slots=True)
class _Listed:
    """What a clean goes by beside a value: the store's clock, and what listings have found.

    there: the paths of the data files; None: the table was not listed. saved: the files that savepoints of Hudi's name.
    """

    now_ms: int
    there: frozenset[str] | None
    saved: Collection[str]


class Cleaner:
    """A clean by one policy, as it would be or as it is done, planned from one listing of the table.

    The listing is made before the value is looked at by which files go: what is not in it is left to a later clean.

    groups: later marks of single file groups. dry_run: it is only said what would be, by a process that may not write.
    """

    def __init__(
        self, session: Session, policy: RetentionPolicy, groups: GroupMarks | None = None, *, dry_run: bool = False
    ) -> None:
        self._session = session
        self._policy = policy
        self._groups = groups
        self._dry_run = dry_run
        self._spared = 0
        self._listed: _Listed | None = None

    def due(self) -> Cleaning | None:
        """What `clean` would do by the newest value that is known; None where the table needs no clean.

        The mark moves only where a commit lies before it, or a file can go: else every look would publish an event.
        For a table of ours this is one request in a bucket, the listing of Hudi's directory, where no file can go.
        """
        session = self._session
        known = session.known()
        hudi = session.store.list(session.publisher.projector.folder)
        value = session.views.with_hudi(known, hudi)
        self._listed = _Listed(self._clock(), None, _saved_among(session, hudi))
        needed = self._lies_before_mark(value, self._listed.now_ms)
        found = self._cleaning(value, needed)
        if found.files:
            self._listed = replace(self._listed, there=_there(session))
            found = self._cleaning(value, needed)
        commits = (c for c in session.views.completions(known, needed) if is_commit(c))
        passed = any(known.retention.since < commit.completed <= found.retention.since for commit in commits)
        is_open = any(plan.action == CLEAN.name for plan in known.plans)
        return found if found.files or passed or is_open else None

    def would_clean(self) -> Cleaned:
        """What `clean` would do now. Publishes nothing."""
        _require(self._session)
        self._listed = self._look()
        found = self._cleaning(self._session.views.sealed(look=True))
        size = sum(file.size for file in found.files)
        return Cleaned(found.retention.since, len(found.files), size, found.spared, dry_run=True)

    def clean(self) -> Cleaned:
        """Move the marks as the policy says, and delete the files that no kept view needs; open cleans go first."""
        session = self._session
        _require(session)
        executed = service.open_plans(session, CLEAN)
        gone = [file for plan in executed for file in finish(session, plan)]
        if executed:
            self._listed = None  # what these have removed is not there any more
        plan = service.schedule(session, self.planner)
        if plan is not None:
            executed.append(plan)
            gone += finish(session, plan)
        else:
            moved = write.retain(session.publisher, session.known(), lambda tail: self._cleaning(tail).retention)
            session.remember(session.run(moved))
        size = sum(file.size for file in gone)
        failed = sum(len(one.files) for one in executed) - len(gone)
        return Cleaned(session.known().retention.since, len(gone), size, self._spared, failed)

    @property
    def planner(self) -> Planner[CleanPlan]:
        """How the plan follows from a value, for the event that schedules it. Lists the table, unless that was done."""
        if self._listed is None or self._listed.there is None:
            self._listed = self._look()
        return Planner(CLEAN, _require, self._plan)

    def _look(self) -> _Listed:
        now_ms, there = self._clock(), _there(self._session)
        return _Listed(now_ms, there, saved_files(self._session))

    def _clock(self) -> int:
        return self._session.looked_ms() if self._dry_run else self._session.store.now_ms()

    def _lies_before_mark(self, value: Timeline, now_ms: int) -> Callable[[Segment], bool]:
        """Whether a clean of a value asks for a segment: what completed after the marks passes none of them."""
        if self._policy.commits is not None or self._groups is not None:
            return lambda _: True  # the mark follows from the commits
        marks = [value.retention.since, *(mark for _, mark in value.retention.groups)]
        last = max(self._policy.mark(value, (), now_ms), *marks)
        return lambda segment: segment.first <= last

    def _cleaning(self, value: Timeline, needed: Callable[[Segment], bool] = lambda _: True) -> Cleaning:
        """What follows from a value, as far as the `needed` segments say it."""
        completions = self._session.views.completions(value, needed)
        groups = self._groups(value) if self._groups is not None else None
        listed = self._listed
        assert listed is not None, "the table is listed before a value is looked at"
        found = plan_cleaning(value, completions, self._policy, listed.now_ms, listed.there, listed.saved, groups)
        self._spared = found.spared
        return found

    def _plan(self, session: Session, value: Timeline, taken: Collection[FileGroup]) -> CleanPlan | None:  # noqa: ARG002
        found = self._cleaning(value)
        if not found.files:
            return None
        by_commits = self._policy.keep_ms is None and self._policy.commits is not None
        return plan_clean(value, session.views.completions(value), found, "commits" if by_commits else "time")


def finish(session: Session, plan: CleanPlan) -> list[DataFile]:
    """Delete the files of an open plan and complete it; the files that are gone.

    Nothing is written, and what is deleted nobody needs, whatever becomes of the plan: so it is not asked in between.
    """
    session.require_table(plan.table_id)
    gone = [file for part in in_threads(lambda part: _delete(session, part), plan.parts()) for file in part]
    service.complete(session, plan, [])
    return gone


def _delete(session: Session, part: CleanPlan) -> list[DataFile]:
    """Delete the files of a part of a plan, which is in an event that is genuine. Returns those that are gone."""
    gone: list[DataFile] = []
    for file in part.files:
        try:
            session.store.delete(file.path)
        except (StorageUnavailableError, UnsupportedFeatureError):
            continue  # another user's, or behind a link: it stays for a user that may
        gone.append(file)
    return gone


def _require(session: Session) -> None:
    require_written_format(session.settings())


def _there(session: Session) -> frozenset[str]:
    """The paths of the data files that a listing finds."""
    return frozenset(stat.path for stat in session.store.walk(""))


def saved_files(session: Session) -> set[str]:
    """The files that savepoints of Hudi's own name. Those of ours stand in the timeline's value."""
    return _saved_among(session, session.store.list(session.publisher.projector.folder))


def _saved_among(session: Session, hudi: Sequence[Stat]) -> set[str]:
    """The files that savepoints of Hudi's own name. hudi: its directory, as it was just listed."""
    found: set[str] = set()
    for stat in hudi:
        name = timeline_file_name(stat.path)
        if name is None or name.action != SAVEPOINT or name.state != "completed":
            continue
        data = session.store.read(stat.path)
        if data is not None and own_savepoint_time(data, stat.path) is None:
            found.update(decode_savepoint(data, stat.path))
    return found

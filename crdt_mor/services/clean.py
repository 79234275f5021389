"""Cleaning: move the retention marks, then delete files without a retained view.

`planners.clean` computes the marks and the removable files. After the scheduling event moves the marks, no process
creates an earlier view, so any process may delete the files at any time. If the store refuses a delete, the plan
completes without it. A later clean lists the file again, or a sweep deletes it once the value has dropped its commit.
Files that a mirror names meanwhile are spared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from crdt_mor.errors import StorageUnavailableError, UnsupportedFeatureError
from crdt_mor.events import write
from crdt_mor.events.session import Session
from crdt_mor.format.clean import decode_savepoint
from crdt_mor.ground.threads import REQUESTS, in_threads
from crdt_mor.hudi.actions import CLEAN
from crdt_mor.hudi.restore_records import own_savepoint_time
from crdt_mor.model.checkpoints import Checkpoint, newest
from crdt_mor.model.instant import EPOCH, InstantTime, from_ms, to_datetime
from crdt_mor.model.names import SAVEPOINT, timeline_file_name
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup, Segment
from crdt_mor.planners.checkpoints import held_from
from crdt_mor.planners.clean import Cleaning, CleanPlan, RetentionPolicy, is_commit, plan_clean, plan_cleaning
from crdt_mor.services import service
from crdt_mor.services.checkpoints import recorded
from crdt_mor.services.service import Planner
from crdt_mor.store.protocol import Stat, side_by_side
from crdt_mor.write.refusals import require_written_format

GroupMarks = Callable[[Timeline], Mapping[FileGroup, InstantTime]]
"""Return later marks of single file groups. Their readers are not spared."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The result of a clean, or of its dry run.

    Attributes:
        since: Views from this completion time (17 digits) on stay exact; earlier ones are refused.
        spared: Unneeded files kept for recent readers, pending writes, open plans or Hudi's savepoints.
        failed: Files not removed by the store; a later clean or sweep tries again.
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
class Finished:
    """The files deleted by a plan, and the numbers of spared and of failed files."""

    gone: list[DataFile]
    spared: int
    failed: int


@dataclass(frozen=True, slots=True)
class _Listed:
    now_ms: int
    there: frozenset[str] | None
    saved: Collection[str]
    mirrored: frozenset[str] = frozenset()
    checkpoints: tuple[Checkpoint, ...] = ()


class Cleaner:
    """Plan a clean from one listing of the table, and run or report it.

    The listing precedes the value that selects files, so newer files stay.

    Args:
        groups: Later marks of single file groups.
        dry_run: Only report, for a process that may not write.
        readers: All checkpoints, for a dry run; None lists them.
    """

    def __init__(
        self,
        session: Session,
        policy: RetentionPolicy,
        groups: GroupMarks | None = None,
        *,
        dry_run: bool = False,
        readers: tuple[Checkpoint, ...] | None = None,
    ) -> None:
        self._session = session
        self._policy = policy
        self._groups = groups
        self._dry_run = dry_run
        self._readers = readers
        self._spared = 0
        self._listed: _Listed | None = None

    def due(self, *, walks: bool = True, listed: Sequence[Stat] = ()) -> Cleaning | None:
        """Return the effect of `clean` on the newest known value; None if no clean is due.

        Marks move only if a commit is passed or a file can go; otherwise every call would publish an event.

        walks: look which files exist.
        listed: Hudi's timeline, if it was listed since the newest known value was read.
        """
        session = self._session
        known = session.known_tail()
        folder = session.publisher.projector.folder
        looks: list[Callable[[], Any]] = [lambda: listed or session.store.list(folder), self._checkpoints]
        hudi, checkpoints = side_by_side(session.store, looks)
        value = session.views.with_hudi(known, hudi)
        self._listed = _Listed(self._clock(), None, _saved_among(session, hudi), checkpoints=checkpoints)
        needed = self._lies_before_mark(value, self._listed.now_ms)
        found = self._cleaning(value, needed)
        if found.files and walks:
            there = _there(session)
            self._listed = replace(self._listed, there=there, mirrored=self._mirrored(there))
            found = self._cleaning(value, needed)
        commits = (c for c in session.views.completions(known, needed) if is_commit(c))
        passed = any(known.retention.since < commit.completed <= found.retention.since for commit in commits)
        is_open = any(plan.action == CLEAN.name for plan in known.plans)
        return found if found.files or passed or is_open else None

    def would_clean(self) -> Cleaned:
        _require(self._session)
        self._listed = self._look()
        found = self._cleaning(self._session.views.sealed(look=True))
        size = sum(file.size for file in found.files)
        return Cleaned(found.retention.since, len(found.files), size, found.spared, dry_run=True)

    def clean(self) -> Cleaned:
        """Finish open cleans, move the marks, and delete files without a retained view."""
        session, planner = self._session, self.planner
        seen = service.look(session, _require)
        done = [finish(session, plan) for plan in service.open_plans(session, CLEAN, seen.tail)]
        if done:
            self._listed = None  # the executed plans removed files of this listing
            planner = self.planner
        plan = service.schedule(session, planner, None if done else seen)
        if plan is not None:
            done.append(finish(session, plan))
        else:
            moved = write.retain(session.publisher, session.known_tail(), lambda tail: self._cleaning(tail).retention)
            session.remember(session.run(moved))
        gone = [file for one in done for file in one.gone]
        spared, failed = self._spared + sum(one.spared for one in done), sum(one.failed for one in done)
        since, size = session.known_tail().retention.since, sum(file.size for file in gone)
        return Cleaned(since, len(gone), size, spared, failed)

    @property
    def planner(self) -> Planner[CleanPlan]:
        if self._listed is None or self._listed.there is None:
            self._listed = self._look()
        return Planner(CLEAN, _require, self._plan)

    def _look(self) -> _Listed:
        session = self._session
        looks: list[Callable[[], Any]] = [
            self._clock, partial(_there, session), partial(saved_files, session), self._checkpoints,
        ]  # fmt: skip
        now_ms, there, saved, checkpoints = side_by_side(session.store, looks)
        return _Listed(now_ms, there, saved, self._mirrored(there), checkpoints)

    def _checkpoints(self) -> tuple[Checkpoint, ...]:
        """Return those of named readers. An erasure waits for none."""
        if self._groups is not None:
            return ()
        return recorded(self._session.store) if self._readers is None else self._readers

    def _mirrored(self, there: Collection[str]) -> frozenset[str]:
        """Return the files that mirrors need. An erasure removes them: its mirrors show newer files."""
        if self._groups is not None:
            return frozenset()
        from crdt_mor.services.mirror import files_needed

        return files_needed(self._session, there)

    def _clock(self) -> int:
        return self._session.looked_ms() if self._dry_run else self._session.store.now_ms()

    def _lies_before_mark(self, value: Timeline, now_ms: int) -> Callable[[Segment], bool]:
        """Return a predicate for the segments to read: later completions pass no mark."""
        assert self._listed is not None
        is_stable = any(checkpoint.cut.by == "requested" for checkpoint in self._listed.checkpoints)
        if self._policy.commits is not None or self._groups is not None or is_stable:
            return lambda _: True  # the mark is computed from the commits
        marks = [value.retention.since, *(mark for _, mark in value.retention.groups)]
        last = max(self._policy.mark(value, (), now_ms), *marks)
        return lambda segment: segment.first <= last

    def _cleaning(self, value: Timeline, needed: Callable[[Segment], bool] = lambda _: True) -> Cleaning:
        completions = self._session.views.completions(value, needed)
        groups = self._groups(value) if self._groups is not None else None
        looked = self._listed
        assert looked is not None, "list the table before computing a clean from a value"
        found = plan_cleaning(
            value, completions, self._policy, looked.now_ms, looked.there, looked.saved, groups, looked.mirrored,
            self._held(value, completions),
        )  # fmt: skip
        self._spared = found.spared
        return found

    def _held(self, value: Timeline, completions: Sequence[Completion]) -> InstantTime:
        assert self._listed is not None
        oldest = from_ms(max(0, self._listed.now_ms - self._policy.named_ms))
        checkpoints = newest(self._listed.checkpoints, value.table_id).values()
        return held_from(completions, checkpoints, oldest, expires=self._session.config.merge.expiry is not None)

    def _plan(self, session: Session, value: Timeline, taken: Collection[FileGroup]) -> CleanPlan | None:  # noqa: ARG002
        found = self._cleaning(value)
        if not found.files:
            return None
        by_commits = self._policy.keep_ms is None and self._policy.commits is not None
        return plan_clean(value, session.views.completions(value), found, "commits" if by_commits else "time")


def finish(session: Session, plan: CleanPlan) -> Finished:
    """Delete the files of an open plan, and complete it.

    No retained view needs these files, so the plan may end in between.
    """
    with session.beside(partial(session.require_table, plan.table_id)) as require_table:
        named = _named_meanwhile(session, plan)
        require_table()
    going = replace(plan, files=tuple(file for file in plan.files if file.path not in named))
    delete = partial(_is_deleted, session)
    deleted = in_threads(delete, going.files, REQUESTS) if session.is_far else map(delete, going.files)
    gone = [file for file, is_gone in zip(going.files, deleted, strict=True) if is_gone]
    spared = len(plan.files) - len(going.files)
    seen = service.look_before_completion(session, plan)
    service.complete(session, plan, [], seen=seen, drops_commits=not spared)
    return Finished(gone, spared, len(going.files) - len(gone))


def _named_meanwhile(session: Session, plan: CleanPlan) -> frozenset[str]:
    """Return the plan's files that mirrors name by now, except erased ones."""
    from crdt_mor.services.mirror import files_needed

    erased = dict(plan.retention.groups)
    left = frozenset(file.path for file in plan.files if file.group not in erased)
    return left & files_needed(session) if left else left


def _is_deleted(session: Session, file: DataFile) -> bool:
    """Delete a file of a plan with a genuine event."""
    try:
        session.store.delete(file.path)
    except (StorageUnavailableError, UnsupportedFeatureError):
        return False  # another user's, or behind a link: a user with permission deletes it later
    return True


def _require(session: Session) -> None:
    require_written_format(session.settings())


def _there(session: Session) -> frozenset[str]:
    return frozenset(stat.path for stat in session.store.walk(""))


def saved_files(session: Session) -> set[str]:
    return _saved_among(session, session.store.list(session.publisher.projector.folder))


def _saved_among(session: Session, hudi: Sequence[Stat]) -> set[str]:
    found: set[str] = set()
    for stat in hudi:
        name = timeline_file_name(stat.path)
        if name is None or name.action != SAVEPOINT or name.state != "completed":
            continue
        data = session.store.read(stat.path)
        if data is not None and own_savepoint_time(data, stat.path) is None:
            found.update(decode_savepoint(data, stat.path))
    return found

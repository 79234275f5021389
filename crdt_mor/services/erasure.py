"""Erasure: after the delete of some rows commits, continue until no file holds a byte of them.

    1. settle    void and delete posts, and wait until no write older than the delete is pending
    2. fold      compact the file groups that may hold the rows; a stable delete leaves neither row nor tombstone
    3. mirrors   show the folded rows alone, and lose their earlier versions
    4. wait      for older writes: their transactions may still read the rows
    5. clean     start the history of these file groups now, and delete their older files
    6. prove     list the files: nothing of the rows remains, and no power cut restores any (erasure_proof.py)

The note of an erasure, put before its delete and removed at the end, names file groups, never keys. The next
erasure of any process finds it and finishes an erasure that died or gave up waiting. Each step reads its
state from the table, so any number of processes may run the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from crdt_mor.errors import (
    CommitUnknownError,
    CrdtMorError,
    ErasureUnfinishedError,
    InvalidInputError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)
from crdt_mor.events import rollback, sweep
from crdt_mor.events.group import sweep_posts
from crdt_mor.events.session import Session
from crdt_mor.hudi.actions import COMPACT
from crdt_mor.log.deciding import Decision, without_promise
from crdt_mor.log.outcome import find_completion, may_be_dropped
from crdt_mor.log.paths import ERASURES, POSTS, STAGED, erasure_path, only_own, stable_path
from crdt_mor.log.steps import Put, put_surely
from crdt_mor.model.authors import Info
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import EPOCH, InstantTime, parse, to_datetime, to_ms
from crdt_mor.model.names import SAVEPOINT
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import FileGroup, Pending
from crdt_mor.planners.clean import RetentionPolicy
from crdt_mor.planners.erasure import Erasure, history_begins
from crdt_mor.services import service
from crdt_mor.services.clean import Cleaner, saved_files
from crdt_mor.services.compaction import compaction_of
from crdt_mor.services.compaction_finish import finish as finish_plan
from crdt_mor.services.compaction_finish import raise_failed
from crdt_mor.services.erasure_proof import files_of, group_of, keep_away, left_over
from crdt_mor.store.paths import TEMP_FOLDER

ERASURE_MARK: Final = ("erasure", "true")
"""Marks the commits of erasures."""

ERASURE_INFO: Final[Info] = (("message", "an erasure: these rows go from history, too"), ERASURE_MARK)
"""The commit info of an erasure; it never contains keys."""

GROUPS_MAX: Final = 1000
"""Most file groups with their own mark. A larger erasure moves the mark of the whole table."""

_CLOCK_AHEAD_MS: Final = 5_000
_OF_THE_STORE: Final = (CommitUnknownError, StorageUnavailableError, UnsupportedFeatureError)
_EVERYTHING_KEPT: Final = RetentionPolicy(keep_ms=1 << 60)
_LOOK_EVERY_S: Final = (0.05, 5.0)
"""Seconds between two looks while an erasure waits: first and longest."""


class Patience:
    def __init__(self, session: Session, wait_ms: int) -> None:
        self.environment = session.environment
        self._until_ms = session.environment.now_ms() + wait_ms
        self._step_s = _LOOK_EVERY_S[0]

    def another_look(self) -> bool:
        left_ms = self._until_ms - self.environment.now_ms()
        if left_ms <= 0:
            return False
        self.environment.sleep(min(self._step_s, left_ms / 1000))
        self._step_s = min(2 * self._step_s, _LOOK_EVERY_S[1])
        return True


@dataclass(frozen=True, slots=True)
class Removed:
    groups: tuple[FileGroup, ...] = ()
    files: int = 0
    bytes: int = 0
    retained_from: InstantTime = EPOCH


@contextmanager
def unfinished_by_the_store(session: Session) -> Iterator[Decision]:
    """Raise `ErasureUnfinishedError` if the store fails once the rows are deleted (`is_made`)."""
    decision = Decision(False)
    try:
        yield decision
    except Exception as error:
        known = isinstance(error, CrdtMorError) and not isinstance(error, _OF_THE_STORE)
        if known or not decision.is_made:
            raise
        raise ErasureUnfinishedError(
            "the erasure is not finished: the store failed. The rows are deleted, but files may still hold them. Check "
            f"the cause, then erase again. table={session.config.name} cause={without_promise(error)}"
        ) from error


# --- the notes --------------------------------------------------------------------------------------------------------


def note(session: Session, erasure: Erasure) -> None:
    session.run(put_surely(Put(erasure_path(erasure.requested), erasure.encode())))


def open_erasures(session: Session) -> list[Erasure]:
    """Return the unfinished erasures with a committed or pending delete; delete other notes."""
    stats = only_own(session.store.list(ERASURES))
    if not stats:
        return []
    tail, found = session.tail(), []
    for stat in stats:
        data = session.store.read(stat.path) if stat.path.endswith(".json") else None
        if data is None:
            continue
        erasure = Erasure.decode(data, stat.path)
        if erasure.table_id != tail.table_id:
            continue  # an earlier table's at this address
        if _may_be_committed(session, erasure.requested, tail):
            found.append(erasure)
        else:
            with suppress(StorageUnavailableError):  # another user's, or this process is read-only
                _forget(session, erasure)
    return found


def _may_be_committed(session: Session, requested: InstantTime, tail: Timeline) -> bool:
    if tail.find_pending(requested) is not None or may_be_dropped(requested, tail):
        return True
    return session.run(find_completion(requested, tail)) is not None


def _forget(session: Session, erasure: Erasure) -> None:
    session.store.delete(stable_path(erasure.requested))
    session.store.delete(erasure_path(erasure.requested))


# --- the steps --------------------------------------------------------------------------------------------------------


def finish(session: Session, erasures: Sequence[Erasure], patience: Patience) -> Removed:
    """Run all steps of some erasures with committed or pending deletes.

    Raises:
        ErasureUnfinishedError: Other processes must finish first.
        InvalidInputError: Savepoints hold the rows. Nothing was deleted yet.
    """
    from crdt_mor.services.mirror import forget as forget_in_mirrors

    if not erasures:
        return Removed()
    groups = tuple(sorted({group for erasure in erasures for group in erasure.groups}))
    refuse_saved(session, groups)
    await_writes(session, max(e.requested for e in erasures), patience, "may still bring rows that are erased")
    stable_at: dict[FileGroup, InstantTime] = {}
    for erasure in erasures:
        since = _stable_at(session, erasure)
        stable_at |= {group: max(since, stable_at.get(group, EPOCH)) for group in erasure.groups}
    before = files_of(session, groups)
    started_ms = session.store.now_ms()
    marks = _fold(session, stable_at, patience)
    forget_in_mirrors(session)
    if marks:
        last = max(marks.values())
        await_writes(session, last, patience, "began when the rows were still there, and may be reading them")
        _execute_plans(session, lambda barrier, _: barrier < last)
        _clean(session, marks)
    session.remember(session.run(sweep.sweep(session.publisher, session.tail())))
    remove_posts(session, patience)
    _prove(session, marks, started_ms, patience)
    keep_away(session, {STAGED, TEMP_FOLDER, *(partition for partition, _ in groups)})
    for erasure in erasures:
        _forget(session, erasure)
    left = {stat.path for stat in files_of(session, groups)}
    gone = [stat for stat in before if stat.path not in left]
    return Removed(groups, len(gone), sum(stat.size for stat in gone), max(marks.values(), default=EPOCH))


def remove_posts(session: Session, patience: Patience) -> None:
    """Void and delete all posts: they may hold the rows. A live writer repeats its write."""
    started_ms = session.store.now_ms()
    while left := session.run(sweep_posts(session.publisher, session.tail(), started_ms)):
        if not patience.another_look():
            raise ErasureUnfinishedError(
                "the erasure is not finished: posted writes remain and may hold the rows. If another user owns them, "
                f"let that user erase. table={session.config.name} files={len(left)} file={min(left)}"
            )
    keep_away(session, [POSTS])


def refuse_saved(session: Session, groups: Collection[FileGroup]) -> None:
    refuse_saved_in(session, session.tail(), groups)
    held = [path for path in saved_files(session) if group_of(path) in set(groups)]
    if held:
        listed = session.store.list(session.publisher.projector.folder)
        names = sorted(stat.path.rpartition("/")[2] for stat in listed if stat.path.endswith(f".{SAVEPOINT}"))
        raise InvalidInputError(
            "savepoints made by Hudi keep files with these rows: delete the savepoints with Hudi (call "
            "delete_savepoint), then erase again. Nothing more was deleted. "
            f"savepoints={names} files={len(held)} file={min(held)}"
        )


def refuse_saved_in(session: Session, value: Timeline, groups: Collection[FileGroup]) -> None:
    for savepoint in value.savepoints:
        cut = Cut("completed", savepoint.at)
        held = [s for s in session.views.slices(value, cut) if s.group in set(groups)]
        if held:
            raise InvalidInputError(
                "a savepoint keeps files with these rows, and the table could be restored to it: drop it with "
                f"drop_savepoint({savepoint.name!r}), then erase again. Nothing more was deleted. "
                f"savepoint={savepoint.name} as_of={savepoint.at} file={held[0].files[0].path}"
            )


def await_writes(session: Session, until: InstantTime, patience: Patience, why: str) -> None:
    """Wait until no write requested at or before `until` is pending.

    The delete of an earlier erasure is rolled back instead, because its process may have died on a full disk. If it is
    alive, it deletes again without harm.
    """
    while True:
        tail = session.remember(session.run(sweep.upkeep(session.publisher, session.known_tail(), session.expiry_ms)))
        for earlier in (p for p in tail.pending if p.requested < until and _is_erasure(p)):
            tail = session.run(rollback.give_up(session.publisher, tail, earlier.requested, None, others=True))
        session.remember(tail)
        pending = [p for p in tail.pending if p.requested <= until]
        if not pending:
            return
        if not patience.another_look():
            raise _unfinished(session, pending, why)


def _is_erasure(write: Pending) -> bool:
    return write.author is not None and ERASURE_MARK in write.author.info


def _unfinished(session: Session, pending: Sequence[Pending], why: str) -> ErasureUnfinishedError:
    named = ", ".join(_described(p) for p in sorted(pending, key=lambda p: p.requested)[:8])
    more = f", and {len(pending) - 8} more" if len(pending) > 8 else ""
    return ErasureUnfinishedError(
        f"the erasure is not finished: pending writes {why}. They are: {named}{more}. When they have ended, "
        "erase again, or wait for them with erase(..., wait=timedelta(minutes=10)). Silent writes expire, see "
        "inspect.pending(). "
        f"table={session.config.name} pending={len(pending)} oldest={min(p.requested for p in pending)}",
        tuple(sorted(p.requested for p in pending)),
    )


def _described(write: Pending) -> str:
    who = f" by {write.author.application} on {write.author.host}, pid {write.author.pid}" if write.author else ""
    return f"{write.requested}{who}, since {to_datetime(write.requested):%Y-%m-%d %H:%M:%S} UTC"


def _stable_at(session: Session, erasure: Erasure) -> InstantTime:
    """Return a time of the table's clock without a pending write older than the delete; the first noted time wins."""
    path = stable_path(erasure.requested)
    tail = session.tail()
    assert not [p for p in tail.pending if p.requested <= erasure.requested]
    session.run(put_surely(Put(path, tail.clock.encode())))
    data = session.store.read(path)
    return tail.clock if data is None else parse(data.decode())  # None: another process finished the erasure


def _fold(
    session: Session, stable_at: Mapping[FileGroup, InstantTime], patience: Patience
) -> dict[FileGroup, InstantTime]:
    """Compact these file groups as needed; return the start of each group's history."""
    while True:
        _execute_plans(session, lambda _, groups: not groups.isdisjoint(stable_at))
        value = session.tail()
        slices = session.views.slices(value)
        begins = history_begins(session.views.completions(value), slices, stable_at)
        unfolded = stable_at.keys() - begins.keys()
        if not unfolded:
            return {group: since for group, since in begins.items() if since > EPOCH}
        plan = service.schedule(session, compaction_of(unfolded))
        if plan is not None:
            _execute(session, plan.barrier, unfolded)
            continue
        tail = session.tail()
        # Another process may have completed a plan of these file groups meanwhile. Then the next look finds them
        # folded.
        if tail.pending and not tail.plans and not patience.another_look():
            raise _unfinished(session, tail.pending, "keep this table from being compacted")


def _execute_plans(session: Session, chosen: Callable[[InstantTime, set[FileGroup]], bool]) -> None:
    """Execute open compactions; cancel failing ones, with their outputs."""
    for plan in service.open_plans(session, COMPACT):
        if chosen(plan.barrier, set(plan.file_groups)):
            _execute(session, plan.barrier, ())


def _execute(session: Session, barrier: InstantTime, needed: Collection[FileGroup]) -> None:
    for plan in service.open_plans(session, COMPACT):
        if plan.barrier == barrier:
            failed = finish_plan(session, plan).failed
            raise_failed({group: error for group, error in failed.items() if group in needed})


def _clean(session: Session, marks: Mapping[FileGroup, InstantTime]) -> None:
    """Move the groups' marks, or the table's if they are too many, and delete older files."""
    policy = _EVERYTHING_KEPT
    if len(marks) > GROUPS_MAX:
        last_ms = to_ms(max(marks.values()))
        ahead_ms = last_ms - session.store.now_ms()  # recent events put the table's clock ahead of the store's
        if 0 <= ahead_ms < _CLOCK_AHEAD_MS:
            session.environment.sleep((ahead_ms + 1) / 1000)
        policy = RetentionPolicy(keep_ms=max(0, session.store.now_ms() - last_ms))

    def unsaved(value: Timeline) -> Mapping[FileGroup, InstantTime]:
        refuse_saved_in(session, value, marks)  # a savepoint made since the erasure began
        return marks

    Cleaner(session, policy, unsaved).clean()


def _prove(session: Session, marks: Mapping[FileGroup, InstantTime], started_ms: int, patience: Patience) -> None:
    while left := left_over(session, marks, started_ms):
        if not patience.another_look():
            raise ErasureUnfinishedError(
                "the erasure is not finished: remaining files may hold the rows. If a process just died, "
                "erase again in a minute. If another user owns the files, let that user erase. "
                f"table={session.config.name} files={len(left)} file={min(left)}"
            )

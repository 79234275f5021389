"""A process dies, sleeps or meets a full disk at each single moment of a commit and of a compaction, one by one.

Every file that the operation puts or deletes is such a moment; no chance is involved. (`test_processes.py` does the
same with real processes and real signals, at random moments.)
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from crdt_mor import Commit, Opening, StorageUnavailableError, Table
from crdt_mor.errors import CommitUnknownError, WriterExpiredError
from crdt_mor.events import rollback
from crdt_mor.events.session import Session
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.store.local import LocalStore
from crdt_mor.testing.faults import InterruptedStore, ProcessDied
from tests.inside import completions_of, run_sweep, session_of, tail_of
from tests.simulated import Simulated
from tests.tiers import slow

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
KEYS = [f"k{i}" for i in range(8)]  # neighbours: two in each of four buckets
FIRST, SECOND, THIRD = ([(k, n) for k in KEYS] for n in (1, 2, 3))
MOMENTS_MAX = 200


def in_block(table: Table, rows: pa.Table) -> Commit:
    """A commit that begins and completes in an event each."""
    with table.transaction() as tx:
        tx.upsert(rows)
    assert tx.commit is not None
    return tx.commit


ways = pytest.mark.parametrize(
    ("write", "every"),
    [
        pytest.param(Table.upsert, 1, id="in one event, every"),
        pytest.param(in_block, 3, id="in two, every third"),
        pytest.param(in_block, 1, id="in two, every", marks=pytest.mark.slow),
    ],
)
Write = Callable[[Table, pa.Table], Commit]

EVERY = [pytest.param(3, id="every third"), pytest.param(1, id="every", marks=pytest.mark.slow)]
"""The fast tier has a death at every third moment, the slow one at each; a disk is full at each in both."""


def frame(rows: list[tuple[str, int]]) -> pa.Table:
    return pa.table({"k": [k for k, _ in rows], "n": [n for _, n in rows]}, schema=SCHEMA)


def rows_of(table: Table) -> list[tuple[str, int]]:
    return sorted((row["k"], row["n"]) for row in table.scan().to_arrow().to_pylist())


class World:
    """A table with one commit, and a second handle on it whose store can be stopped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.table = Table.create(str(path), SCHEMA, key="k")
        self.table.upsert(frame(FIRST))
        self.store = InterruptedStore(LocalStore(path))
        session = Session(self.store, SystemEnvironment(), session_of(self.table).config, expiry_ms=600_000)
        self.other = Table._of(session, str(path))

    def give_everybody_up(self) -> None:
        """As if each pending writer had been silent past the expiry."""
        session = session_of(self.table)
        value = session.tail()
        for pending in value.pending:
            value = session.run(rollback.give_up(session.publisher, value, pending.requested, None))

    def files(self) -> set[str]:
        for _ in range(2):
            run_sweep(self.table)
        return {file.name for file in self.path.iterdir() if file.is_file()}

    def known_files(self) -> set[str]:
        done = completions_of(self.table)
        return {f.path for c in done for f in c.files} | {".hoodie_partition_metadata"}

    def check(self, expected: list[list[tuple[str, int]]]) -> list[tuple[str, int]]:
        """The rows are one of these; nobody else is disturbed; nothing is left lying about."""
        found = rows_of(self.table)
        assert found in expected
        self.table.upsert(frame([("after", 9)]))
        after = rows_of(self.table)
        assert after in [sorted([*rows, ("after", 9)]) for rows in expected]
        self.give_everybody_up()
        self.table.maintenance.compact()
        assert rows_of(self.table) == after
        assert self.files() == self.known_files()
        assert not tail_of(self.table).plans
        return found


def moments(fast_path: Path, every: int, scene: Callable[[World, int], bool]) -> int:
    """`scene` for moment 1 and each `every`-th after it, until it says that there was none; how many there were.

    Where not each moment is looked at, the number may be too large by less than `every`.
    """
    for at in range(1, MOMENTS_MAX, every):
        if not scene(World(fast_path / str(at)), at):
            return at - 1
    raise AssertionError("an operation without an end")


@pytest.mark.costly
@ways
@pytest.mark.parametrize("after", [False, True], ids=["just before", "just after"])
def test_a_process_may_die_at_any_moment_of_a_commit(fast_path: Path, after: bool, write: Write, every: int) -> None:
    seen = set()

    def scene(world: World, at: int) -> bool:
        world.store.arm(at, world.store.die, after=after)
        try:
            write(world.other, frame(SECOND))
        except ProcessDied:
            seen.add(world.check([FIRST, SECOND])[0][1])
            return True
        assert rows_of(world.table) == SECOND
        return False

    # begin: version, inflight, requested; four log files; complete: version, completed file; alone: one version less
    assert moments(fast_path, every, scene) >= 8
    assert seen == {1, 2}, "some of these deaths come before the commit, some after"


@pytest.mark.costly
@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("after", [False, True], ids=["just before", "just after"])
def test_a_process_may_die_at_any_moment_of_a_compaction(fast_path: Path, after: bool, every: int) -> None:
    def scene(world: World, at: int) -> bool:
        world.store.arm(at, world.store.die, after=after)
        try:
            world.other.maintenance.compact()
        except ProcessDied:
            world.check([FIRST])
            return True
        return False

    assert moments(fast_path, every, scene) >= 9


@pytest.mark.slow
@ways
def test_a_writer_that_is_given_up_at_any_moment_either_has_committed_or_leaves_nothing(
    fast_path: Path, write: Write, every: int
) -> None:
    """It sleeps before a put; meanwhile it is given up and somebody else writes; then it wakes up and goes on.

    A write that was tried as one event has not begun yet: it begins then.
    """
    outcomes = set()

    def scene(world: World, at: int) -> bool:
        slept = False

        def sleep() -> None:
            nonlocal slept
            slept = True
            world.give_everybody_up()
            world.table.upsert(frame(THIRD))

        world.store.arm(at, sleep)
        try:
            commit = write(world.other, frame(SECOND))
        except WriterExpiredError:
            outcomes.add("expired")
            assert rows_of(world.table) == THIRD
        else:
            if not slept:
                return False
            outcomes.add("committed")
            later = commit.requested_at > completions_of(world.table)[1].requested
            assert rows_of(world.table) in (SECOND, THIRD), later
        world.check([SECOND, THIRD])
        return True

    moments(fast_path, every, scene)
    assert outcomes == ({"expired", "committed"} if write is in_block else {"committed"})


@pytest.mark.slow
@pytest.mark.parametrize("every", EVERY)
def test_two_executors_may_meet_at_any_moment_of_a_compaction(fast_path: Path, every: int) -> None:
    def scene(world: World, at: int) -> bool:
        world.table.upsert(frame(SECOND))
        plan = world.table.maintenance.plans.schedule()
        assert plan is not None
        met = []

        def other_one() -> None:
            met.append(world.table.maintenance.compact(plan))

        world.store.arm(at, other_one)
        done = world.other.maintenance.compact(plan)
        assert rows_of(world.table) == SECOND
        if not met:
            return False
        assert done == met[0], "both report the one compaction"
        world.check([SECOND])
        return True

    assert moments(fast_path, every, scene) >= 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "stays_full"),
    [(Table.upsert, True), slow(Table.upsert, False), slow(in_block, True), (in_block, False)],
    ids=["in one event, and it stays full", "in one event, once", "in two, and it stays full", "in two, once"],
)
def test_a_full_disk_at_any_moment_of_a_commit_is_a_clear_error_or_does_no_harm(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch, stays_full: bool, write: Write
) -> None:
    real, outcomes = os.write, set()
    messages: list[str] = []

    def scene(world: World, at: int) -> bool:
        left = at

        def full(file: int, data: memoryview) -> int:
            nonlocal left
            left -= 1
            if left == 0 or (stays_full and left < 0):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(file, data)

        with monkeypatch.context() as patch:
            patch.setattr("crdt_mor.store.local.os.write", full)
            try:
                write(world.other, frame(SECOND))
            except StorageUnavailableError as error:
                messages.append(str(error))
                outcomes.add("refused")
                expected = [FIRST]
            except CommitUnknownError as error:
                messages.append(str(error).replace("change may be visible already", "disk full; nothing was published"))
                outcomes.add("unknown")
                expected = [FIRST, SECOND]
            else:
                expected = [SECOND]
        assert not list((world.path / ".hoodie/.temp").glob("put-*"))
        world.check(expected)
        return left <= 0

    assert moments(fast_path, 1, scene) >= 8
    assert all("disk full; nothing was published" in message or "rolled back" in message for message in messages)
    assert outcomes == ({"refused", "unknown"} if stays_full else {"refused"})


def test_the_expiry_is_judged_by_the_age_of_the_heartbeat(simulated: Simulated) -> None:
    table = simulated.create(SCHEMA, key="k", opening=Opening(writer_expiry=timedelta(milliseconds=300)))
    with table.transaction() as tx:
        tx.upsert(frame(FIRST))
        simulated.environment.sleep(1.0)  # three times the expiry, but it beats
        table.upsert(frame(SECOND))
    assert tx.commit is not None
    assert rows_of(table) == SECOND, "requested later"

"""A job is one commit, whatever its tasks and drivers go through; what it says of its files is true of their bytes."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crdt_mor import Commit, CrdtMorError, InvalidInputError, Opening, Table
from crdt_mor.errors import CommitUnknownError, WriterExpiredError
from crdt_mor.events import rollback
from crdt_mor.events.session import Session
from crdt_mor.events.write import TakenOverError
from crdt_mor.format.log import read_log
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.log.paths import GIVEN_UP, HEARTBEATS, STAGED, ticket_path
from crdt_mor.model.timeline_parts import Completion, DataFile
from crdt_mor.parts import Receipt, WriteJob
from crdt_mor.payloads import Counter
from crdt_mor.store.local import LocalStore
from crdt_mor.testing.faults import InterruptedStore, ProcessDied
from crdt_mor.write.open_write import OpenWrite
from tests.inside import run_sweep, session_of, tail_of
from tests.simulation.random_history import SkewedEnvironment
from tests.table.helpers import data_files, files, rows
from tests.tiers import long, slow

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("n", pa.int64())])
Rows = dict[str, int]
"""By key what is added to it; the key's first letter is its partition."""


def frame(wanted: Rows) -> pa.Table:
    return pa.table({"id": list(wanted), "part": [k[0] for k in wanted], "n": list(wanted.values())}, schema=SCHEMA)


ONE = [{"a1": 1, "a2": 1, "b1": 1}, {"a1": 10, "c1": 1}]
"""What the tasks of the first driver stage: `a1` by two of them, so that the driver folds."""

TWO = [{"a1": 5, "a2": 5, "a3": 5, "d1": 5}, {"c1": 50, "a9": 5}]
"""What other attempts of the same tasks stage: other rows, and other file groups."""


def total(parts: Sequence[Rows]) -> list[tuple[object, ...]]:
    found: Rows = {}
    for part in parts:
        for key, n in part.items():
            found[key] = found.get(key, 0) + n
    return sorted(found.items())


def passed(thing: Any) -> Any:
    """What arrives in another process."""
    return pickle.loads(pickle.dumps(thing))


def staged(job: WriteJob, parts: Sequence[Rows]) -> list[Receipt]:
    return [passed(passed(job).stage(frame(part), task=task)) for task, part in enumerate(parts)]


class World:
    """A table of counters with one job, and drivers of it whose stores can be stopped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.table = Table.create(path, SCHEMA, key="id", partition_by="part", buckets=1, merge={"n": Counter()})
        self.job = self.table.jobs.plan("upsert", SCHEMA)

    def driver(self) -> tuple[Table, InterruptedStore]:
        store = InterruptedStore(LocalStore(self.path))
        return Table._of(
            Session(store, SystemEnvironment(), session_of(self.table).config, 600_000), str(self.path)
        ), store

    def complete(self, receipts: Sequence[Receipt]) -> Commit:
        return Table(self.path).jobs.complete(passed(self.job), receipts)

    @property
    def commits(self) -> list[Completion]:
        """What was committed; that Hudi was told of a write that was given up is no commit."""
        session = session_of(self.table)
        return [c for c in session.views.completions(session.tail()) if c.undone is None]

    def forget(self) -> None:
        """As if the pending writes had been silent past the expiry, and had been swept since."""
        session = session_of(self.table)
        for pending in session.tail().pending:
            session.run(rollback.give_up(session.publisher, session.tail(), pending.requested, None))
        self.sweep()
        assert not session.tail().rolled_back

    def sweep(self) -> None:
        for _ in range(2):
            run_sweep(self.table)

    def shows(self, parts: Sequence[Rows]) -> None:
        assert rows(self.table, "id", "n") == total(parts)

    def check(self, *, swept: bool = False) -> None:
        """Of every file its commit says what its bytes say; no other file is there.

        swept: what a driver that has died had staged is still there, until a sweep.
        """
        assert len(self.commits) <= 1
        for done in self.commits:
            for file in done.files:
                data = memoryview((self.path / file.path).read_bytes())
                assert len(data) == file.size
                blocks = [pq.read_table(pa.BufferReader(block.content)) for block in read_log(data, file.path)]
                assert sum(block.num_rows for block in blocks) == file.rows
        assert data_files(self.path) == {file.path for done in self.commits for file in done.files}
        if swept:
            self.sweep()
        assert [name for name in files(self.path) if name.startswith((STAGED, HEARTBEATS))] == []


@pytest.fixture
def world(fast_path: Path) -> World:
    return World(fast_path / "t")


# --- two drivers ------------------------------------------------------------------------------------------------------

Meanwhile = Callable[["World", list[Receipt]], Commit | None]


@dataclass
class Scene:
    """A driver with the receipts of `ONE` that something happened to, at one moment of `jobs.complete`.

    mine: its commit, its error, or None: it died. others: what came of the other driver.
    """

    world: World
    receipts: list[Receipt]
    mine: Commit | Exception | None = None
    others: Commit | None = None


def scenes(path: Path, meanwhile: Meanwhile | None, *, after: bool = False) -> Iterator[Scene]:
    """`meanwhile` happens just before, or just after, the first change of the store that the driver makes, the second,
    ... until there are no more. Without it the driver dies there.
    """
    for at in range(1, 100):
        world = World(path / f"{meanwhile.__name__ if meanwhile else 'die'}-{after}-{at}")
        scene = Scene(world, staged(world.job, ONE))
        driver, store = world.driver()

        def interrupt(scene: Scene = scene, store: InterruptedStore = store) -> None:
            if meanwhile is None:
                store.die()
            else:
                scene.others = meanwhile(scene.world, scene.receipts)

        store.arm(at, interrupt, after=after)
        try:
            scene.mine = driver.jobs.complete(world.job, scene.receipts)
        except ProcessDied:
            pass
        except CrdtMorError as error:
            scene.mine = error
        if store.count < at:
            assert at > 10
            return
        yield scene
    raise AssertionError("an operation without an end")


def same_receipts(world: World, receipts: list[Receipt]) -> Commit:
    return world.complete(receipts)


def other_attempts(world: World, receipts: list[Receipt]) -> Commit:
    return world.complete(staged(world.job, TWO))


def one_task(world: World, receipts: list[Receipt]) -> Commit:
    return world.complete(staged(world.job, TWO[:1]))


SECONDS: dict[Meanwhile, list[Rows]] = {same_receipts: ONE, other_attempts: TWO, one_task: TWO[:1]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("second", "after"),
    [
        (other_attempts, True),
        *(slow(*case) for case in ((same_receipts, False), (same_receipts, True), (other_attempts, False))),
        *(slow(*case) for case in ((one_task, False), (one_task, True))),
    ],
)
def test_when_a_driver_has_died_the_next_one_commits_its_own_receipts_or_finds_the_commit(
    fast_path: Path, second: Meanwhile, after: bool
) -> None:
    outcomes = set()
    for scene in scenes(fast_path, None, after=after):
        world = scene.world
        landed = bool(world.commits)
        commit = second(world, scene.receipts)
        assert commit is not None
        assert commit.repeated == landed
        world.shows(ONE if landed else SECONDS[second])
        world.check(swept=landed)
        assert second(world, scene.receipts) == replace(commit, repeated=True)
        outcomes.add(landed)
    assert outcomes == {False, True}


@pytest.mark.slow
@pytest.mark.parametrize("second", [other_attempts, slow(same_receipts), slow(one_task)])
def test_a_slow_driver_is_given_the_commit_that_another_has_made_meanwhile(fast_path: Path, second: Meanwhile) -> None:
    outcomes = set()
    for scene in scenes(fast_path, second):
        world, mine, others = scene.world, scene.mine, scene.others
        assert isinstance(mine, Commit), mine
        assert others is not None
        assert mine.version == others.version
        assert mine.repeated != others.repeated, "one of them has made it"
        world.shows(SECONDS[second] if mine.repeated else ONE)
        world.check()
        outcomes.add(mine.repeated)
    assert outcomes == {False, True}


@pytest.mark.slow
def test_a_driver_whose_write_another_has_taken_over_and_not_completed_may_call_again(fast_path: Path) -> None:
    def takes_over_and_dies(world: World, receipts: list[Receipt]) -> None:
        other, store = world.driver()
        receipts = staged(world.job, TWO)
        place, placed = OpenWrite.expect_file, list[DataFile]()

        def dying(self: OpenWrite, file: DataFile) -> None:
            place(self, file)
            placed.append(file)
            if len(placed) > 1:  # file groups are placed side by side, so that two may come here at once
                store.die()

        with pytest.MonkeyPatch.context() as patch, suppress(ProcessDied):
            patch.setattr(OpenWrite, "expect_file", dying)
            other.jobs.complete(world.job, receipts)

    outcomes = set()
    for scene in scenes(fast_path, takes_over_and_dies):
        world = scene.world
        outcomes.add(type(scene.mine))
        if isinstance(scene.mine, CommitUnknownError):
            assert "took the write over" in str(scene.mine)
            assert not world.commits
            assert not world.complete(scene.receipts).repeated
        else:
            assert isinstance(scene.mine, Commit)
        world.shows(ONE)
        world.sweep()
        world.check()
    assert outcomes == {TakenOverError, Commit}


@pytest.mark.parametrize("third", [long(other_attempts), long(one_task), long(same_receipts)])
def test_two_drivers_may_die_one_after_the_other_at_any_moments(fast_path: Path, third: Meanwhile) -> None:
    def check(scene: Scene) -> None:
        landed = scene.world.commits
        rows_of = {tuple(total(ONE)): ONE, tuple(total(TWO)): TWO}.get(tuple(rows(scene.world.table, "id", "n")))
        commit = third(scene.world, scene.receipts)
        assert commit is not None
        assert commit.repeated == bool(landed)
        scene.world.shows(rows_of if landed and rows_of else SECONDS[third])
        scene.world.check(swept=bool(landed))

    for first in range(1, 100):
        for second in range(1, 100):
            world = World(fast_path / f"{first}-{second}")
            drivers = [world.driver(), world.driver()]
            scene = Scene(world, staged(world.job, ONE))
            reached = []
            for at, (driver, store), parts in zip((first, second), drivers, (ONE, TWO), strict=True):
                receipts = scene.receipts if parts is ONE else staged(world.job, parts)
                store.arm(at, store.die, after=True)
                with suppress(ProcessDied):
                    driver.jobs.complete(world.job, receipts)
                reached.append(store.count >= at)
            check(scene)
            shutil.rmtree(world.path)
            if not reached[1]:
                break
        if not reached[0]:
            return
    raise AssertionError("an operation without an end")


def test_what_an_overtaken_driver_places_late_is_swept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was frozen in the middle of giving a file its name, and is killed right after that."""
    receipts = staged(world.job, ONE)
    driver, _ = world.driver()
    others: list[Commit] = []

    def frozen(store: InterruptedStore, source: str, target: str) -> bool:
        data = (world.path / source).read_bytes()
        if not others:
            others.append(world.complete(staged(world.job, TWO)))
        (world.path / target).parent.mkdir(exist_ok=True)
        (world.path / target).write_bytes(data)
        store.die()
        return True

    monkeypatch.setattr(InterruptedStore, "copy", frozen)
    with pytest.raises(ProcessDied):
        driver.jobs.complete(world.job, receipts)
    world.shows(TWO)
    assert len(data_files(world.path)) > len(world.commits[0].files)
    world.sweep()
    world.shows(TWO)
    world.check()


def test_a_staged_file_that_a_power_cut_has_cut_short_is_refused(world: World) -> None:
    receipts = staged(world.job, TWO)
    staged_file = next(file for receipt in receipts for file in receipt.files if file.file.partition == "part=d")
    (world.path / staged_file.path).write_bytes(b"")
    with pytest.raises(InvalidInputError, match="differs from the file its task wrote"):
        world.complete(receipts)
    assert not world.commits
    world.check()


def test_an_emptied_ticket_is_no_ticket(world: World) -> None:
    receipts = staged(world.job, ONE)
    ticket = world.path / ticket_path(world.job.job.name)
    ticket.unlink()
    assert world.complete(receipts).rows == 4, "who completes finds the version that published the begin"
    world.shows(ONE)
    other = World(world.path.with_name("other"))
    receipts = staged(other.job, ONE)
    (other.path / ticket_path(other.job.job.name)).write_bytes(b"")
    with pytest.raises(WriterExpiredError, match="Nothing of the write is visible"):
        other.complete(receipts)
    assert not tail_of(other.table).pending
    other.shows([])


# --- a job is one write -----------------------------------------------------------------------------------------------


def test_an_attempt_that_comes_after_the_commit_begins_nothing(world: World) -> None:
    done = world.complete(staged(world.job, ONE))
    late = staged(world.job, TWO)
    assert {(r.requested, r.rows, r.files) for r in late} == {(done.requested_at, 0, ())}
    assert not tail_of(world.table).pending
    assert world.complete(late) == replace(done, repeated=True)
    assert world.complete([]) == replace(done, repeated=True), "a driver that knows nothing"
    world.shows(ONE)
    world.check()


def test_a_job_is_known_when_its_commit_is_in_a_segment(world: World) -> None:
    done = world.complete(staged(world.job, ONE))
    for number in range(20):
        world.table.upsert(frame({f"z{number}": 1}))
    assert tail_of(world.table).find_completion(done.requested_at) is None
    assert world.complete(staged(world.job, TWO)) == replace(done, repeated=True)
    assert not tail_of(world.table).pending


def test_an_attempt_that_is_at_work_when_the_job_is_completed_is_told_so(world: World) -> None:
    def read() -> pa.RecordBatchReader:
        def batches() -> Iterator[pa.RecordBatch]:
            world.complete(receipts)
            yield from frame(TWO[0]).to_batches()

        return pa.RecordBatchReader.from_batches(SCHEMA, batches())

    receipts = staged(world.job, ONE)
    with pytest.raises(WriterExpiredError, match=r"do not write again. The commit is visible.*version="):
        world.job.stage(read(), task=0)
    world.shows(ONE)
    world.check()


@pytest.mark.parametrize("forgotten", [False, True], ids=["", "and forgotten"])
def test_a_job_that_was_given_up_never_begins_again(world: World, forgotten: bool) -> None:
    receipts = staged(world.job, ONE)
    if forgotten:
        world.forget()
    else:
        world.table.jobs.abandon(world.job)
    for again in (lambda: staged(world.job, TWO), lambda: world.complete(receipts), lambda: world.complete([])):
        with pytest.raises(WriterExpiredError, match="Nothing of the write is visible"):
            again()
    world.table.jobs.abandon(world.job)
    assert not tail_of(world.table).pending
    assert not world.commits
    world.check()


def test_notes_on_given_up_jobs_go_when_the_jobs_can_not_begin_any_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def notes() -> list[str]:
        return [name for name in files(world.path) if name.startswith(GIVEN_UP)]

    other = world.table.jobs.plan("upsert", SCHEMA)
    staged(world.job, ONE)
    world.forget()
    assert notes() == [f"{GIVEN_UP}/{world.job.job.name}"]
    world.sweep()
    assert len(notes()) == 1
    monkeypatch.setattr("crdt_mor.events.ticket.JOB_EXPIRY_MS", 0)
    world.table.upsert(frame({"z": 1}))
    world.sweep()
    assert notes() == []
    for job in (world.job, other):
        with pytest.raises(WriterExpiredError, match="planned too long ago to begin"):
            staged(job, TWO)
    assert not tail_of(world.table).pending


def test_a_plan_that_waits_on_a_quiet_table_is_not_too_old(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table's clock stands where its last event was; how old a job is counts from when it was planned."""
    monkeypatch.setattr("crdt_mor.events.ticket.JOB_EXPIRY_MS", 60_000)
    session_of(world.table).start()
    job = Table(world.path, opening=Opening(environment=SkewedEnvironment(50_000))).jobs.plan("upsert", SCHEMA)
    world.table = Table(world.path, opening=Opening(environment=SkewedEnvironment(50_000)))
    world.table.upsert(frame({"z": 1}))
    assert staged(job, ONE)[0].rows == 3


def test_the_receipts_of_another_job_are_refused(world: World) -> None:
    other = world.table.jobs.plan("upsert", SCHEMA)
    receipts = staged(other, TWO)
    staged(world.job, ONE)
    with pytest.raises(InvalidInputError, match="a receipt belongs to another job"):
        world.complete(receipts)
    world.table.jobs.complete(other, receipts)
    world.shows(TWO)
    world.check()

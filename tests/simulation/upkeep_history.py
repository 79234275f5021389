"""A random history with every service between its commits, on a clock that is simulated, the store's as well.

Compactions, of logs alone too, cleans with any policy, archiving, erasures, upkeep by policy, roll-backs by name, and
readers that hold what they once opened. What must hold, on top of what holds in every history:

    - a view as of a moment that is kept shows the plain fold, and the same before and after a service, in the bytes of
      an Arrow stream, too
    - one as of an earlier moment is refused, with `SnapshotExpiredError`; never are there fewer rows
    - where an erasure has ended the history of single file groups, the rows of the others can still be had
    - a follower is refused only where its checkpoint lies before the mark, and goes on from a scan
    - a reader that opened its view before a clean reads all of it, or is refused; one of the latest view that is within
      its grace reads all of it
    - no post that was put before an erasure is left once it is finished
    - a write that was given up never shows, however late its writer ends, and what became of its instant since then

`run_upkeep` makes versions, completions and large commits few and small, so that archiving moves its watermark, commits
are dropped from the value, and wide commits have segments of their own within a few steps.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Commit, InvalidInputError, Opening, Scan, SnapshotExpiredError, Table
from crdt_mor.errors import CheckpointExpiredError, CommitUnknownError, ErasureUnfinishedError, WriterExpiredError
from crdt_mor.ground.clock import Process
from crdt_mor.log.paths import ERASURES
from crdt_mor.merge.oracle import Contribution, Row
from crdt_mor.merge.precombine import DeleteWrite
from crdt_mor.model.instant import EPOCH
from crdt_mor.model.timeline_parts import Completion, Retention
from crdt_mor.results import Maintained
from crdt_mor.testing.clock import SimulatedEnvironment
from crdt_mor.write.open_write import OpenWrite
from tests.inside import tail_of
from tests.simulated import Simulated
from tests.simulation.followers import Follower
from tests.simulation.random_history import KEYS, PARTS, Done, History, Open, run, show

HELD_MAX = 3
PAUSES_S = [0.002, 1, 70, 600, 3 * 3600]
KEEP = [None, timedelta(0), timedelta(minutes=10), timedelta(hours=3)]
GRACE = timedelta(hours=1)


class SkewedSimulation:
    """A machine whose wall clock is off, in simulated time."""

    def __init__(self, environment: SimulatedEnvironment, ahead_ms: int) -> None:
        self._environment = environment
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return self._environment.now_ms() + self._ahead_ms

    def nonce(self) -> str:
        return self._environment.nonce()

    def sleep(self, seconds: float) -> None:
        self._environment.sleep(seconds)

    def every(self, seconds: float, work: Callable[[], None], name: str) -> AbstractContextManager[None]:
        return self._environment.every(seconds, work, name)

    def jitter(self) -> float:
        return self._environment.jitter()

    def process(self) -> Process:
        return self._environment.process()


@dataclass
class Held:
    """A view that a reader has opened, when, and what it must show. latest: it was the newest then."""

    scan: Scan
    since_ms: int
    expected: dict[str, Row]
    latest: bool


@dataclass
class UpkeepHistory(History):
    """A history with services."""

    held: list[Held] = field(default_factory=list)
    stalled: list[Open] = field(default_factory=list)
    """Transactions that were given up by hand, and do not know it yet."""
    place: Simulated = field(default_factory=Simulated)
    spared: timedelta = GRACE
    """The least grace that any clean so far has given to readers."""

    def create(self, schema: pa.Schema, **settings: Any) -> None:
        self.place.create(schema, **settings)

    def handle(self, ahead_ms: int) -> Table:
        environment = SkewedSimulation(self.place.environment, ahead_ms)
        return Table("simulated", opening=Opening(store=self.place.store, environment=environment))

    @property
    def retention(self) -> Retention:
        return tail_of(self.handles[0]).retention

    @property
    def mark(self) -> str:
        """From which completion time on views are kept."""
        return self.retention.since

    def is_whole(self, time: str) -> bool:
        """Whether no erasure has ended the history of a file group after this time."""
        return all(since <= time for _, since in self.retention.groups)

    # --- what can happen ------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.place.environment.sleep(self.random.choice(PAUSES_S))
        x = self.random.random()
        if x < 0.10:
            self.service("clean", self.clean)
        elif x < 0.18:
            self.service("archive", self.archive)
        elif x < 0.22:
            self.service("erase", self.erase, erases=True)
        elif x < 0.26:
            self.service("maintain", self.maintain)
        elif x < 0.32:
            self.service("compact", self.compact_all)
        elif x < 0.35 and self.open:
            self.roll_back_by_name()
        elif x < 0.37 and self.stalled:
            self.end_stalled(self.stalled.pop(self.random.randrange(len(self.stalled))))
        elif x < 0.41 and len(self.held) < HELD_MAX:
            self.hold()
        elif x < 0.46 and self.held:
            self.read(self.held.pop(self.random.randrange(len(self.held))))
        else:
            super().step()

    def clean(self) -> None:
        keep, commits = self.random.choice(KEEP), self.random.choice([None, 1, 2, 5])
        if keep is None and commits is None:
            commits = 1
        grace = self.random.choice([timedelta(0), timedelta(minutes=5), None])
        self.spared = min(self.spared, GRACE if grace is None else grace)
        done = self.table.maintenance.clean(keep, commits=commits, readers=grace)
        self.note("clean", keep, commits, grace, done)

    def maintain(self) -> None:
        """Also finishes erasures that somebody has begun, which gives readers no grace."""
        if self.place.store.list(ERASURES):
            self.spared = timedelta(0)
        done = self.table.maintenance.maintain(keep=timedelta(hours=2))
        self.require_ok(done)
        self.note("maintain", done)
        self.look_at_plans()

    def require_ok(self, done: Maintained) -> None:
        assert done.ok, f"{done}\n{self.story()}"

    def look_at_plans(self) -> None:
        still = {plan.barrier for plan in self.table.maintenance.plans.open()}
        self.plans = [plan for plan in self.plans if plan.barrier in still]

    def compact_all(self) -> None:
        least, logs_only = self.random.choice([1, 2]), self.random.random() < 0.4
        rewrite = None if logs_only else self.relayout()
        done = self.table.maintenance.compact(log_files_min=least, logs_only=logs_only, rewrite=rewrite)
        self.note("compact", done, logs_only, rewrite)
        self.plans.clear()

    def archive(self) -> None:
        done = self.table.maintenance.archive(keep_commits=self.random.choice([1, 2, 5]))
        self.note("archive", done)

    def erase(self) -> None:
        """By key, or by a condition. What its commits delete is theirs to say, so it is noted as they are made."""
        keys = self.random.sample(KEYS, self.random.choice([1, 1, 2]))
        how: dict[str, Any] = {"keys": keys} if self.random.random() < 0.7 else {"where": pl.col("v") > 1}
        if self.key_names_partition and "keys" in how:
            how = {"where": pl.col("k").is_in(keys)}
        deletes: list[tuple[Completion, pl.DataFrame]] = []
        commit = OpenWrite.commit

        def noted(write: OpenWrite, *args: Any, **options: Any) -> Any:
            done = commit(write, *args, **options)
            said = write.statements.collected
            assert isinstance(done.completion, Completion)
            assert all(isinstance(one, DeleteWrite) for one in said)
            deletes.extend((done.completion, one.keys) for one in said if isinstance(one, DeleteWrite))
            return done

        self.spared, finished = timedelta(0), True
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(OpenWrite, "commit", noted)
            try:
                done: Any = self.table.maintenance.erase(**how)
            except ErasureUnfinishedError as error:
                finished, done = False, error.pending
                assert {*done} <= {*self.table.inspect.pending()["requested_at"].to_pylist()}
            except InvalidInputError as error:
                finished, done = False, self.refused_erasure(error)
        for completion, rows in deletes:
            self.done.append(self.erased(completion, rows))
        self.look_at_plans()
        self.note("erase", how, done, *(done.commit for done in self.done[-len(deletes) :] if deletes))
        if finished:
            self.groups.require_none_of_before(self)
        if finished and "keys" in how:
            assert not {key.rpartition("/")[2] for key in self.expected(self.done)} & {*keys}, self.story()

    def refused_erasure(self, error: InvalidInputError) -> str:
        """What to say of an erasure that is refused; raises where it should not be."""
        raise error

    def erased(self, completion: Completion, rows: pl.DataFrame) -> Done:
        """The delete of an erasure, as the oracle sees it."""
        times = completion.requested, completion.completed
        places = [place.removeprefix("p=") for place in rows["_hoodie_partition_path"]]
        keys = [
            f"{place}/{key}" if place else key for place, key in zip(places, rows["_hoodie_record_key"], strict=True)
        ]
        if self.key_names_partition:
            keys = [key.rpartition("p:")[2].replace(",k:", "/") for key in keys]
        writes = [Contribution(f"{times[0]}.{i:03d}", key, "delete", (), times[1]) for i, key in enumerate(keys)]
        return Done(Commit(completion.version, *times, 0, len(keys)), writes)

    def roll_back_by_name(self) -> None:
        """Somebody takes a writer that is alive for a dead one; it ends at once, or long after."""
        found = self.open.pop(self.random.randrange(len(self.open)))
        if found.begun is None:
            self.open.append(found)
            return
        self.table.maintenance.roll_back(found.begun)
        self.note("roll back by name", found)
        if self.random.random() < 0.5:
            self.stalled.append(found)
        else:
            self.end_stalled(found)

    def end_stalled(self, found: Open) -> None:
        self.note("end what was given up", found)
        assert found.begun is not None
        unknown = found.begun < self.retention.dropped  # it may have been a commit that is dropped
        with pytest.raises((WriterExpiredError, CommitUnknownError) if unknown else WriterExpiredError):
            found.tx.__exit__(None, None, None)
        self.check()

    def hold(self) -> None:
        seen, options = list(self.done), dict[str, Any]()
        kept = self.kept()
        if kept and self.random.random() < 0.5:
            at = self.random.choice(kept).commit
            seen = [d for d in self.done if d.commit.completed_at <= at.completed_at]
            options = {"as_of": at}
        scan = self.table.scan(meta=True, **options)
        self.held.append(Held(scan, self.place.environment.now_ms(), self.expected(seen), not options))
        self.note("hold", scan.as_of)

    def read(self, held: Held) -> None:
        age = timedelta(milliseconds=self.place.environment.now_ms() - held.since_ms)
        self.note("read", held.scan.as_of, age)
        try:
            show(held.scan, held.expected, self)
        except SnapshotExpiredError:
            assert not held.latest or age >= self.spared, f"a reader of {age} lost its files\n{self.story()}"

    # --- services -------------------------------------------------------------------------------------------------

    def kept(self) -> list[Done]:
        """The commits whose views are kept."""
        mark = self.mark
        return [done for done in self.done if done.commit.completed_at >= mark]

    def service(self, name: str, run: Callable[[], None], *, erases: bool = False) -> None:
        """Run a service; what is kept looks the same before and after.

        erases: it may delete rows, so that the latest view may change.
        """
        before = {id(done): self.bytes_as_of(done) for done in self.kept()}
        latest, mark = self.bytes_of(self.table.scan(meta=True)), self.mark
        carried = self.groups.carried
        run()
        self.groups.note_carried(self)
        assert self.mark >= mark, f"history came back\n{self.story()}"
        now = self.bytes_of(self.table.scan(meta=True))
        may_change = erases or self.groups.carried > carried
        assert now == latest or may_change, f"{name} changed the rows of the latest view\n{self.story()}"
        for done in self.kept():
            if id(done) in before and (bytes_ := self.bytes_as_of(done)) is not None:
                same = bytes_ == before[id(done)]
                assert same, f"{name} changed the view as of {done.commit.completed_at}\n{self.story()}"
        self.check()

    def bytes_as_of(self, done: Done) -> bytes | None:
        """What a view shows; None where an erasure has ended the history of a file group that it needs."""
        try:
            return self.bytes_of(self.table.scan(as_of=done.commit, meta=True))
        except SnapshotExpiredError:
            assert not self.is_whole(done.commit.completed_at), self.story()
            return None

    def bytes_of(self, scan: Scan) -> bytes:
        """The rows, by key, and their types, but for which file each is in, as an Arrow stream.

        Made of Python's values: what Arrow's buffers hold where a value is null is nobody's, and differs from run to
        run.
        """
        found = scan.to_arrow().drop_columns(["_hoodie_file_name"])
        found = found.sort_by([(name, "ascending") for name in self.key_columns]) if found.num_rows else found
        again = pa.Table.from_pylist(found.to_pylist(), found.schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, again.schema) as stream:
            stream.write_table(again)
        return bytes(sink.getvalue())

    # --- what must hold -------------------------------------------------------------------------------------------

    def check_as_of(self, done: Done) -> None:
        at = done.commit.completed_at
        if at < self.mark:
            hidden = self.hidden_after(done)
            points: list[Commit | int | str] = [done.commit, at, *([done.commit.version] if hidden else [])]
            with pytest.raises(SnapshotExpiredError, match=f"oldest={self.mark}"):
                self.table.scan(as_of=self.random.choice(points))
        elif self.is_whole(at):
            super().check_as_of(done)
        else:
            self.check_rows_as_of(done)

    def check_rows_as_of(self, done: Done) -> None:
        """A view of which an erasure may have ended a part: each row is right, or it is refused."""
        expected = self.expected([d for d in self.done if d.commit.completed_at <= done.commit.completed_at])
        for key in KEYS:
            for part in PARTS if "p" in self.key_columns else [None]:
                wanted = pl.col("k") == key if part is None else (pl.col("k") == key) & (pl.col("p") == part)
                name = key if part is None else f"{part}/{key}"
                scan = self.table.scan(as_of=done.commit, filter=wanted, meta=True)
                with suppress(SnapshotExpiredError):
                    show(scan, {name: expected[name]} if name in expected else {}, self)

    def hidden_after(self, done: Done) -> bool:
        """Whether something was committed after this, and before the mark, which its version would have to hide."""
        mark, at = self.mark, done.commit.completed_at
        return any(d.writes and at < d.commit.completed_at <= mark for d in self.done)

    def check_diff(self, a: Done, b: Done) -> None:
        first = min(a.commit.completed_at, b.commit.completed_at)
        if first < self.mark:
            with pytest.raises(SnapshotExpiredError):
                self.table.diff(a.commit, b.commit).to_arrow()
            return
        try:
            super().check_diff(a, b)
        except (SnapshotExpiredError, CheckpointExpiredError):
            assert not self.is_whole(first), self.story()

    def follow(self, follower: Follower) -> None:
        """Go on, or where the checkpoint is too old, scan the table and go on from there."""
        retention = self.retention
        try:
            follower.go_on(self)
        except CheckpointExpiredError:
            # Images of stable changes go through views between the commits, which a clean beside an old write spares
            # only from the mark on: of a follower that is further behind, the end of the window is kept, not its steps.
            by_mark = follower.consistency == "latest" or follower.images
            mark = retention.since if by_mark else retention.stable_since
            mark = max([mark, *(since for _, since in retention.groups)])
            if follower.checkpoint is None:  # from the empty table on there is what the mark shows, without its images
                assert follower.images or not self.is_whole(EPOCH)
                assert mark > EPOCH
            else:
                assert follower.checkpoint.split(":")[1] < mark, f"{follower.checkpoint}\n{self.story()}"
            scan = self.table.scan(consistency=follower.consistency)
            follower.copy = {self.key(row): row for row in scan.to_arrow().to_pylist()}
            follower.checkpoint = scan.checkpoint
            self.note("a follower begins anew", follower.consistency)
            follower.go_on(self)

    def finish(self) -> None:
        super().finish()
        for held in self.held:
            self.read(held)
        self.service("maintain", self.maintain)
        assert not self.place.store.list(ERASURES), f"an erasure was not finished\n{self.story()}"
        for _ in range(3):  # what archiving waits for comes about
            self.begin()
            self.commit(self.open.pop())
            self.service("compact", lambda: self.note("compact", self.table.maintenance.compact()))
        self.service("archive", lambda: self.note("archive", self.table.maintenance.archive(keep_commits=1)))
        self.service("clean", lambda: self.note(self.table.maintenance.clean(commits=1, readers=timedelta(0))))
        while self.stalled:
            self.end_stalled(self.stalled.pop())
        self.service("sweep", self.sweep)
        self.check_all()


def run_upkeep(seed: int, rule: str, path: Path, steps: int, kind: type[UpkeepHistory] | None = None) -> UpkeepHistory:
    """A history with services from its seed; in it everything is soon over, and in every other one commits are wide."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 2)
        patch.setattr("crdt_mor.log.publish.EXPIRE_EVERY", 1)
        patch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 2)
        patch.setattr("crdt_mor.log.segments.SEGMENTS_MAX", 2)
        if seed % 2:
            patch.setattr("crdt_mor.log.segments.COMPLETIONS_BYTES_MAX", 1)
        history = run(seed, rule, path, steps, kind or UpkeepHistory)
    assert isinstance(history, UpkeepHistory)
    return history

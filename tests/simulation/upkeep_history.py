"""A random history with every service between its commits, on a clock that is simulated, the store's as well.

Compactions, cleans with any policy, upkeep by policy, roll-backs by name, and readers that hold what they once opened.
What must hold, on top of what holds in every history:

    - a view as of a moment that is kept shows the plain fold, and the same before and after a service
    - one as of an earlier moment is refused, with `SnapshotExpiredError`; never are there fewer rows
    - a follower is refused only where its checkpoint lies before the mark, and goes on from a scan
    - a reader that opened its view before a clean reads all of it, or is refused; one of the latest view that is within
      its grace reads all of it
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import CheckpointExpiredError, Scan, SnapshotExpiredError, Table, WriterExpiredError
from crdt_mor.clock import Process
from crdt_mor.model.instant import EPOCH
from crdt_mor.testing.clock import SimulatedEnvironment
from crdt_mor.testing.oracle import Row
from tests.simulated import Simulated
from tests.simulation.followers import Follower
from tests.simulation.random_history import Done, History, show

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
    place: Simulated = field(default_factory=Simulated)
    spared: timedelta = GRACE
    """The least grace that any clean so far has given to readers."""

    def create(self, schema: pa.Schema, **settings: Any) -> None:
        self.place.create(schema, **settings)

    def handle(self, ahead_ms: int) -> Table:
        environment = SkewedSimulation(self.place.environment, ahead_ms)
        return Table.open("simulated", store=self.place.store, environment=environment)

    @property
    def mark(self) -> str:
        """From which completion time on views are kept."""
        return self.handles[0]._session.tail().retention.since

    # --- what can happen ------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.place.environment.sleep(self.random.choice(PAUSES_S))
        x = self.random.random()
        if x < 0.12:
            self.service("clean", self.clean)
        elif x < 0.17:
            self.service("maintain", self.maintain)
        elif x < 0.22:
            self.service("compact", self.compact_all)
        elif x < 0.25 and self.open:
            self.roll_back_by_name()
        elif x < 0.30 and len(self.held) < HELD_MAX:
            self.hold()
        elif x < 0.36 and self.held:
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
        self.note("maintain", self.table.maintenance.maintain(keep=timedelta(hours=2)))
        self.plans = [plan for plan in self.plans if plan in self.table.maintenance.open_plans()]

    def compact_all(self) -> None:
        self.note("compact", self.table.maintenance.compact(log_files_min=self.random.choice([1, 2])))
        self.plans.clear()

    def roll_back_by_name(self) -> None:
        """Somebody takes a writer that is alive for a dead one."""
        found = self.open.pop(self.random.randrange(len(self.open)))
        write = found.tx._write
        if write is None:  # it has not begun yet
            self.open.append(found)
            return
        self.table.maintenance.roll_back(write.begun.requested)
        self.note("roll back by name", found)
        with pytest.raises(WriterExpiredError):
            found.tx.__exit__(None, None, None)

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

    def service(self, name: str, run: Callable[[], None]) -> None:
        """Run a service; what is kept looks the same before and after."""
        before = {id(done): self.bytes_as_of(done) for done in self.kept()}
        latest, mark = self.bytes_of(self.table.scan(meta=True)), self.mark
        run()
        assert self.mark >= mark, f"history came back\n{self.story()}"
        now = self.bytes_of(self.table.scan(meta=True))
        assert now == latest, f"{name} changed what the table shows\n{self.story()}"
        for done in self.kept():
            same = self.bytes_as_of(done) == before[id(done)]
            assert same, f"{name} changed the view as of {done.commit.completed_at}\n{self.story()}"
        self.check()

    def bytes_as_of(self, done: Done) -> bytes:
        return self.bytes_of(self.table.scan(as_of=done.commit, meta=True))

    def bytes_of(self, scan: Scan) -> bytes:
        """The rows, by key, and their types, but for which file each is in.

        As text: what Arrow's buffers hold where a value is null is nobody's, and differs from run to run.
        """
        frame = scan.to_polars().drop("_hoodie_file_name")
        rows = frame.sort(self.key_columns) if frame.height else frame
        return repr((frame.schema, rows.rows())).encode()

    # --- what must hold -------------------------------------------------------------------------------------------

    def check_as_of(self, done: Done) -> None:
        if done.commit.completed_at >= self.mark:
            super().check_as_of(done)
            return
        hidden = self.hidden_after(done)
        points = [done.commit, done.commit.completed_at, *([done.commit.version] if hidden else [])]
        with pytest.raises(SnapshotExpiredError, match=f"oldest={self.mark}"):
            self.table.scan(as_of=self.random.choice(points))

    def hidden_after(self, done: Done) -> bool:
        """Whether something was committed after this, and before the mark, which its version would have to hide."""
        mark, at = self.mark, done.commit.completed_at
        return any(d.writes and at < d.commit.completed_at <= mark for d in self.done)

    def check_diff(self, a: Done, b: Done) -> None:
        if min(a.commit.completed_at, b.commit.completed_at) >= self.mark:
            super().check_diff(a, b)
            return
        with pytest.raises(SnapshotExpiredError):
            self.table.diff(a.commit, b.commit).to_arrow()

    def follow(self, follower: Follower) -> None:
        """Go on, or where the checkpoint is too old, scan the table and go on from there."""
        retention = self.handles[0]._session.tail().retention
        try:
            follower.go_on(self)
        except CheckpointExpiredError:
            mark = retention.since if follower.consistency == "latest" else retention.stable_since
            if follower.checkpoint is None:  # from the empty table on there is what the mark shows, without its images
                assert follower.images
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

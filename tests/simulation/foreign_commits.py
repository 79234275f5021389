"""Random histories of a table that Hudi's writers write to as well, in turns with ours, on clocks that differ.

Each commit, ours or Hudi's, writes a key of its own, so a scan has to show all of them. Our handles may not look into
Hudi's timeline for a minute, which is longer than a history takes: what Hudi wrote comes to light late, after commits,
plans and compactions of ours. Then it is shown in its place, or the table is refused by name; a row that simply is not
there any more is the one thing that must never be. Where Hudi's clock is not behind the table's, followers get each key
once, and what a moment showed it shows for ever.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeVar

import pyarrow as pa

from crdt_mor import Opening, SnapshotExpiredError, Table
from crdt_mor.errors import FutureSnapshotError, UnsupportedFeatureError
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.model.instant import InstantTime, from_ms, to_ms
from crdt_mor.model.timeline_parts import Pending, RolledBack
from crdt_mor.parts import CompactionPlan
from crdt_mor.testing.simulation.hudi_writer import HUDIS_TOKEN, hudi_commits
from tests.inside import look_for_hudi, session_of

T = TypeVar("T")
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


def rows(*keys: str) -> pa.Table:
    return pa.table({"k": keys, "v": range(len(keys))}, schema=SCHEMA)


class Clock(SystemEnvironment):
    """A machine on which it is as late as in the history."""

    def __init__(self, history: SharedTable) -> None:
        super().__init__()
        self.history = history

    def now_ms(self) -> int:
        return self.history.ms


@dataclass
class SharedTable:
    """One table, handles of ours, and Hudi, whose clock is `hudi_ahead_ms` ahead of ours; below 0, in our past."""

    random: Random
    path: Path
    hudi_ahead_ms: int
    ms: int = field(default_factory=lambda: SystemEnvironment().now_ms())
    hudi_ms: int = 0
    keys: set[str] = field(default_factory=set)
    hudis: dict[InstantTime, str] = field(default_factory=dict)
    plans: list[CompactionPlan] = field(default_factory=list)
    moments: dict[str, set[str]] = field(default_factory=dict)
    checkpoint: str | None = None
    delivered: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        Table.create(
            str(self.path),
            SCHEMA,
            key="k",
            buckets=self.random.choice([1, 2]),
            opening=Opening(environment=Clock(self)),
        )
        self.handles = [Table(str(self.path), opening=Opening(environment=Clock(self))) for _ in range(3)]

    @property
    def in_order(self) -> bool:
        """Whether each commit of Hudi's completes after everything that was decided before it."""
        return self.hudi_ahead_ms >= 0

    @property
    def table(self) -> Table:
        return self.random.choice(self.handles)

    def step(self) -> None:
        self.ms += self.random.randint(1, 200)
        acts = [self.write] * 4 + [self.hudi] * 3 + [self.plan, self.compact, self.compact, self.read, self.look]
        if self.in_order:
            acts += [self.follow, self.follow, self.start_following, self.look_back]
        act = self.random.choice(acts)
        self.log.append(act.__name__)
        self.allowing_refusal(act)

    def allowing_refusal(self, act: Callable[[], T]) -> T:
        """Do it. Where the table is refused for a commit of Hudi's, that must be true; take it back as told, go on."""
        while True:
            try:
                return act()
            except UnsupportedFeatureError as error:
                self.take_back(str(error))

    def take_back(self, refusal: str) -> None:
        self.log.append(refusal)
        found = dict(re.findall(r"(instant|completed|compaction)=(\d{17})", refusal))
        assert found["instant"] in self.hudis, self.story()
        pattern = f"{found['instant']}*"
        if "compaction" in found:
            assert found["completed"] <= found["compaction"], self.story()
            assert not self.in_order, self.story()
        else:  # an instant of ours has its requested time
            assert found["instant"] in self.own_instants(), self.story()
            pattern = f"{found['instant']}_{found['completed']}*"
            for file in self.path.glob(f".*_{found['instant']}.log.1_{HUDIS_TOKEN}"):
                file.unlink()
        for file in (self.path / ".hoodie/timeline").glob(pattern):
            file.unlink()
        self.keys.remove(self.hudis.pop(InstantTime(found["instant"])))

    def own_instants(self) -> set[InstantTime]:
        session = session_of(self.handles[0])
        tail = session.tail()
        done = {c.requested for c in session.views.completions(tail) if not c.adopted}
        begun: tuple[Pending | RolledBack, ...] = (*tail.pending, *tail.rolled_back)
        return done | {instant.requested for instant in begun}

    # --- what can happen ------------------------------------------------------------------------------------------

    def key(self, who: str) -> str:
        return f"{who}{len(self.log)}"

    def write(self) -> None:
        key = self.key("ours")
        self.table.upsert(rows(key))
        self.keys.add(key)

    def hudi(self) -> None:
        key, table = self.key("hudi"), self.table
        requested = max(self.ms + self.hudi_ahead_ms, self.hudi_ms + 2)
        while any((self.path / ".hoodie/timeline").glob(f"{from_ms(requested)}*")):
            requested += 1  # Hudi's writers look as well
        self.hudi_ms = requested + self.random.randint(1, 20)
        self.ms = max(self.ms, self.hudi_ms - max(0, self.hudi_ahead_ms) + 1)
        hudi_commits(table, rows(key), from_ms(requested), from_ms(self.hudi_ms))
        self.hudis[from_ms(requested)] = key
        self.keys.add(key)

    def plan(self) -> None:
        plan = self.table.maintenance.plans.schedule()
        if plan is not None:
            self.plans.append(plan)

    def compact(self) -> None:
        if self.plans:
            self.table.maintenance.compact(self.plans.pop(0))
        else:
            self.table.maintenance.compact()
        self.read()

    def look(self) -> None:
        look_for_hudi(self.table)

    def read(self) -> None:
        table = self.table
        look_for_hudi(table)
        found = table.scan().to_arrow()["k"].to_pylist()
        assert sorted(found) == sorted(self.keys), f"lost {self.keys - set(found)}\n{self.story()}"

    # --- what is handed out ---------------------------------------------------------------------------------------

    def start_following(self) -> None:
        """From a scan on: what it shows, and then the changes after it, are each key once."""
        scan = self.table.scan()
        found = scan.to_arrow()["k"].to_pylist()
        try:
            checkpoint, moment = scan.checkpoint, scan.as_of
        except SnapshotExpiredError:
            self.start_following()
            return
        except FutureSnapshotError:  # nobody may go on from here before Hudi's clock has been reached
            assert self.hudi_ms >= self.ms - 2, self.story()
            return
        self.checkpoint, self.delivered = checkpoint, found
        self.moments[moment] = set(found)

    def follow(self) -> None:
        changes = self.table.changes(self.checkpoint)
        self.delivered += changes.to_arrow()["k"].to_pylist()
        self.checkpoint = changes.checkpoint
        assert len(set(self.delivered)) == len(self.delivered), f"{self.delivered}\n{self.story()}"
        late = {key for requested, key in self.hudis.items() if to_ms(requested) + 20 >= self.ms}  # by Hudi's clock
        missing = self.keys - set(self.delivered)
        assert missing <= late, f"{missing}\n{sorted(self.keys)}\n{self.story()}"

    def look_back(self) -> None:
        for moment, shown in self.moments.items():
            found = set(self.table.scan(as_of=moment).to_arrow()["k"].to_pylist())
            assert found == shown, f"as of {moment}\nfound {found}\nfirst {shown}\n{self.story()}"

    def story(self) -> str:
        return f"hudi_ahead_ms={self.hudi_ahead_ms}\n" + "\n".join(self.log)


def run(seed: int, path: Path, hudi_ahead_ms: int, steps: int = 40) -> SharedTable:
    """A history from its seed; at the end everything is compacted, which hides nothing."""
    history = SharedTable(Random(f"{seed} {hudi_ahead_ms}"), path, hudi_ahead_ms)
    for _ in range(steps):
        history.step()
    for act in (history.read, history.compact, history.read):
        history.allowing_refusal(act)
    if history.in_order:
        history.ms = max(history.ms, history.hudi_ms + 10)
        history.follow()
        assert sorted(history.delivered) == sorted(history.keys), history.story()
        history.look_back()
    return history

"""A random history with all that a table can go through, which moves to another address now and then.

Between writes and stragglers are all services, overwrites, savepoints, restores, other orders of rows, and migrations:
to more or fewer buckets, to partitions or from them, to another order, and to another merge. Writers and services go on
while the table moves; then the history goes on at the new address.

The oracle knows of a migration that the commits from before it are one from there on, the opening of the new table.
After each step the snapshot, every as-of answer that is kept, and the images between all moments that are kept must be
the fold of the commits. Every table that was left must go on to answer as it did, to readers who opened it before, too.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from crdt_mor import Commit, InvalidInputError, SnapshotExpiredError
from crdt_mor.errors import CheckpointExpiredError, TableMovedError, TableReplacedError
from crdt_mor.log.paths import ERASURES
from crdt_mor.merge.oracle import Contribution, Row
from crdt_mor.payloads import PartialUpdate
from crdt_mor.store.memory import MemoryStore
from crdt_mor.store.protocol import Store
from tests.inside import completions_of, tail_of
from tests.simulated import Simulated
from tests.simulation.followers import Follower
from tests.simulation.migrated_history import Moves
from tests.simulation.random_history import Done
from tests.simulation.restore_history import RestoringHistory
from tests.simulation.upkeep_history import run_upkeep

MERGES: dict[str, Any] = {
    "latest": "latest",
    "partial": PartialUpdate(),
    "partial, keep": PartialUpdate(nulls="keep"),
}
"""Merges that a table can move to, whatever its values are."""


@dataclass
class MovingHistory(Moves, RestoringHistory):
    """A history with services, savepoints, restores and migrations."""

    left: list[MovingHistory] = field(default_factory=list)
    """The history of each table that has moved, up to then."""
    arrived: dict[tuple[str, str], str] = field(default_factory=dict)
    """By key and commit time of a row, the commit time that it has in the table that it has moved to."""
    under_way: bool = False
    """Whether a migration is under way."""
    waits: bool = True
    """Whether it waits for what is pending."""
    there: Simulated = field(default_factory=Simulated)
    """Where the next table will be."""
    roads: Random = field(default_factory=Random)

    def __post_init__(self) -> None:
        self.roads = Random(repr(self.random.getstate()) + " roads")
        self.key_names_partition = self.roads.random() < 0.4
        super().__post_init__()

    # --- what can happen ------------------------------------------------------------------------------------------

    def step(self) -> None:
        if not self.under_way and self.done and self.roads.random() < 0.15:
            self.move()
        else:
            super().step()
        if not self.under_way:
            self.check_everything()

    def move(self, **wanted: Any) -> None:
        """To somewhere else, unless rows are being erased, as a copy would keep them in its history."""
        wanted = wanted or self.wanted()
        self.there = Simulated()
        self.there.environment = self.place.environment
        self.there.store = MemoryStore(self.place.environment.now_ms)
        if self.place.store.list(ERASURES):
            with pytest.raises(InvalidInputError, match="erasure of this table is unfinished"):
                self.move_to(wanted)
            assert not self.there.store.list("")
            return
        self.note("move", wanted)
        self.under_way, self.waits = True, self.roads.random() < 0.7
        is_moved = self.move_to({**wanted, "pending": "wait" if self.waits else "roll_back"})
        self.under_way = False
        self.look_at_open()
        self.look_at_plans()
        if is_moved:
            self.go_there(wanted)

    def wanted(self) -> dict[str, Any]:
        r = self.roads
        wanted: dict[str, Any] = {"buckets": r.choice([1, 2, 3])}
        if r.random() < 0.4:
            wanted["cluster_by"] = r.sample(["k", "v", "a", "b"], r.choice([1, 2]))
            wanted["cluster_order"] = r.choice(["linear", "z-order"])
        if self.key_names_partition and r.random() < 0.6:
            wanted["partition_by"] = r.choice(["p", ()])
        if self.rule in ("latest", "partial", "partial, keep") and r.random() < 0.3:
            wanted["merge"] = MERGES[r.choice([*MERGES])]
        return wanted

    def new_address(self) -> tuple[str, Store | None]:
        return f"simulated{self.moves}.{self.cancelled}", self.there.store

    def write_on(self) -> None:
        for _ in range(self.roads.randrange(3)):
            self.go_on()
        if self.roads.random() < 0.7:
            self.write()

    def end_open(self) -> None:
        """The migration waits for what is pending, or rolls it back, as it was told."""
        if self.waits:
            super().end_open()

    def look_at_open(self) -> None:
        """The migration may have rolled back what was pending."""
        pending = {*self.table.inspect.pending()["requested_at"].to_pylist()}
        ended = [found for found in self.open if found.begun is not None and found.begun not in pending]
        self.open = [found for found in self.open if found not in ended]
        self.stalled += ended

    def erase(self) -> None:
        if not self.under_way:
            super().erase()
            return
        with pytest.raises(InvalidInputError, match="being migrated"):
            self.table.maintenance.erase(keys=["a"])

    def restore_to(self, to: Any, at: str) -> Any:
        if not self.under_way:
            return super().restore_to(to, at)
        with pytest.raises(InvalidInputError, match="being migrated"):
            self.table.maintenance.restore(to)
        return None

    # --- another table --------------------------------------------------------------------------------------------

    def go_there(self, wanted: dict[str, Any]) -> None:
        """Go on in the new table, whose history begins with its opening; the old one is left as it is."""
        old = copy(self)
        self.left.append(old)
        before = self.expected_then(self.done)
        self.place, self.path = self.there, Path("simulated")
        self.handles = [self.handle(ahead_ms) for ahead_ms in (0, 20_000, -40_000)]
        tail = tail_of(self.table)
        assert tail.origin is not None
        completions = completions_of(self.table, tail)
        opening = next(c for c in completions if c.completed == tail.origin.opened)
        commit = Commit(opening.version, opening.requested, opening.completed, 0, 0)
        if "merge" in wanted:
            self.rule = next(name for name, merge in MERGES.items() if merge == wanted["merge"])
            writes = [
                Contribution(f"{opening.requested}.000", key, "row", tuple((c, row[c]) for c in self.columns))
                for key, row in before.items()
            ]
        else:
            writes = self.all_writes()
        self.done = [Done(commit, writes)]
        self.partitioned = bool(wanted.get("partition_by", self.partitioned))
        times = {self.key(row): row["_hoodie_commit_time"] for row in self.table.scan(meta=True).to_arrow().to_pylist()}
        assert {*times} == {*before}, self.story()
        self.arrived = {
            (key, str(row["_hoodie_commit_time"])[:17]): times[key]
            for key, row in self.expected_then(self.done).items()
        }
        self.open, self.plans, self.stalled, self.held, self.saved, self.gone = [], [], [], [], [], []
        self.followers = [Follower(f.consistency, f.images) for f in old.followers]
        self.groups = self.groups.anew()
        self.tokens = [*{name: (name, number, commit) for name, number, _ in self.tokens}.values()]
        self.left_behind(old)

    def left_behind(self, old: MovingHistory) -> None:
        """The table that has moved answers as before, and nothing else is done to it. The new one tells none of it."""
        for done in old.done:
            points: list[Commit | str] = [done.commit, done.commit.completed_at]
            with pytest.raises(SnapshotExpiredError):
                self.table.scan(as_of=self.roads.choice(points))
        for follower in old.followers:
            if follower.checkpoint is not None:
                with pytest.raises((CheckpointExpiredError, TableReplacedError)):
                    self.table.changes(follower.checkpoint, consistency=follower.consistency)
        for refused in (
            old.table.maintenance.plans.schedule,
            lambda: old.table.maintenance.restore("now"),
            old.table.truncate,
        ):
            with pytest.raises(TableMovedError):
                refused()
        old.check_all()
        old.check_everything()

    def all_writes(self) -> list[Contribution]:
        """What was written, without what overwrites have replaced."""
        overwrites = [d for d in self.done if d.commit.covered is not None]
        return [w for d in self.done for w in d.writes if not any(o.voids(d, w.key) for o in overwrites)]

    def expected_then(self, done: list[Done]) -> dict[str, Row]:
        """What these commits mean, with the commit times that they had where they were made."""
        return super().expected(done)

    def expected(self, done: Any) -> dict[str, Row]:
        rows = super().expected(done)
        for key, row in rows.items():
            time = str(row["_hoodie_commit_time"])[:17]
            row["_hoodie_commit_time"] = self.arrived.get((key, time), time)
        return rows

    # --- what must hold -------------------------------------------------------------------------------------------

    def check_everything(self) -> None:
        """All that is kept: snapshots, and the images between them."""
        self.check_all()
        for a, b in pairwise(self.kept()):
            self.check_diff(a, b)

    def require_unsure(self, name: str) -> None:
        assert name in self.unsure, self.story()
        assert self.retention.dropped_count or self.moves, self.story()

    def finish(self) -> None:
        for _ in range(5):
            if not self.moves:  # the migration may be given up, or refused beside an erasure
                self.write()
                self.move(buckets=3)
        super().finish()
        if self.rule != "latest":
            self.move(merge="latest")
        self.check_everything()
        for old in self.left:
            for held in old.held:
                old.read(held)
            for found in old.stalled:
                old.end_stalled(found)
            old.check_all()
            for follower in old.followers:
                old.follow(follower)


def run_moving(seed: int, rule: str, path: Path, steps: int) -> MovingHistory:
    """A history from its seed, as `run_upkeep`."""
    with pytest.MonkeyPatch.context() as patch:
        if seed % 2:  # a few files a commit
            patch.setattr("crdt_mor.services.migration.BATCH_BYTES", 1 << 20)
        history = run_upkeep(seed, rule, path, steps, MovingHistory)
    assert isinstance(history, MovingHistory)
    return history

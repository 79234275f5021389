"""Random histories with cleans anywhere in them: what is kept is exact, what is not is refused, no row is lost."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import PartialUpdate, Scan, SnapshotExpiredError, Table, Transaction
from crdt_mor.errors import CheckpointExpiredError
from crdt_mor.payloads import Counter
from crdt_mor.planners.clean import RetentionPolicy
from crdt_mor.services.clean import Cleaner
from tests.inside import session_of, store_of, tail_of
from tests.simulated import Simulated
from tests.tiers import slow

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("day", pa.string())])
MERGES: list[dict[str, Any]] = [{}, {"ordering": "n"}, {"merge": {"n": Counter()}}, {"merge": PartialUpdate()}]
NONE = timedelta(0)


def rows(scan: Scan) -> list[tuple[Any, ...]]:
    return scan.to_polars().sort("day", "id").rows()


class Follower:
    """A follower that keeps a copy of the table by its changes, and scans it anew where these have expired."""

    def __init__(self, table: Table, consistency: Any) -> None:
        self.table = table
        self.consistency = consistency
        self.checkpoint: str | None = None
        self.copy: dict[tuple[str, int], int] = {}

    def follow(self) -> None:
        try:
            changes = self.table.changes(self.checkpoint, consistency=self.consistency)
            found = changes.to_polars()
        except CheckpointExpiredError:
            snapshot = self.table.scan(consistency=self.consistency)
            self.copy, self.checkpoint = self._rows(snapshot), snapshot.checkpoint
            return
        self.checkpoint = changes.checkpoint
        for row in found.iter_rows(named=True):
            if row["_change_type"] == "delete":
                self.copy.pop((row["day"], row["id"]), None)
            else:
                self.copy[row["day"], row["id"]] = row["n"]
        assert self.copy == self._rows(self.table.scan(consistency=self.consistency))

    def _rows(self, scan: Scan) -> dict[tuple[str, int], int]:
        return {(row["day"], row["id"]): row["n"] for row in scan.to_polars().iter_rows(named=True)}


class World:
    """A table, those that write to it, read it and clean it, and what each of them has to see."""

    def __init__(self, seed: int, simulated: Simulated) -> None:
        self.chance = random.Random(seed)
        self.environment = simulated.environment
        self.table = simulated.create(SCHEMA, key="id", partition_by="day", buckets=2, **self.chance.choice(MERGES))
        self.known: dict[str, Any] = {}
        self.writers: list[tuple[Transaction, Any]] = []
        self.readers: list[tuple[Scan, Any]] = []
        self.followers = [Follower(self.table, consistency) for consistency in ("latest", "stable")]
        self.cleaned = 0

    def step(self) -> None:
        self.environment.sleep(self.chance.choice([0.01, 1, 60, 600, 3000]))
        moves = [self.write, self.begin, self.end, self.compact, self.clean, self.read, self.follow]
        self.chance.choices(moves, [6, 2, 2, 4, 3, 2, 2])[0]()
        now = self.table.scan(as_of="now")
        self.known[now.as_of] = rows(now)
        self.check()

    def frame(self) -> pl.DataFrame:
        ids, day = self.chance.sample(range(8), 3), self.chance.choice(["mon", "tue"])
        return pl.DataFrame({"id": ids, "n": [self.chance.randrange(100) for _ in ids], "day": [day] * 3})

    def write(self) -> None:
        (self.table.delete if self.chance.random() < 0.2 else self.table.upsert)(self.frame())

    def begin(self) -> None:
        if len(self.writers) < 3:
            tx = self.table.transaction()
            tx.__enter__()
            tx.upsert(self.frame())
            self.writers.append((tx, rows(tx.scan())))

    def end(self) -> None:
        if self.writers:
            tx, _ = self.writers.pop(self.chance.randrange(len(self.writers)))
            tx.__exit__(None, None, None)

    def compact(self) -> None:
        if self.chance.random() < 0.7:
            self.table.maintenance.compact()
        else:
            self.table.maintenance.plans.schedule()

    def clean(self) -> None:
        keep = self.chance.choice([None, NONE, timedelta(hours=1)])
        commits = self.chance.choice([1, 2, 5]) if keep is None else self.chance.choice([None, 2])
        spare = timedelta(seconds=self.chance.choice([0, 0, 600]))
        session, ms = session_of(self.table), timedelta(milliseconds=1)
        session.tail()
        due = Cleaner(session, RetentionPolicy(None if keep is None else keep // ms, commits, spare // ms)).due()
        files = self.table.maintenance.clean(keep, commits=commits, readers=spare).files
        assert files == (0 if due is None else len(due.files)), "as much as maintain finds due"
        self.cleaned += files

    def read(self) -> None:
        scan = self.table.scan()
        self.readers.append((scan, rows(scan)))

    def follow(self) -> None:
        for follower in self.followers:
            follower.follow()

    def check(self) -> None:
        since = tail_of(self.table).retention.since
        for moment, expected in list(self.known.items()):
            if moment >= since:
                assert self.chance.random() > 0.2 or rows(self.table.scan(as_of=moment)) == expected
                continue
            with pytest.raises(SnapshotExpiredError, match=f"oldest={since}"):
                self.table.scan(as_of=moment)
            del self.known[moment]
        assert all(rows(tx.scan()) == expected for tx, expected in self.writers)
        for reader in list(self.readers):
            try:
                assert rows(reader[0]) == reader[1]
            except SnapshotExpiredError:
                self.readers.remove(reader)

    def finish(self) -> None:
        """Nothing is open and no history is kept: what the latest snapshot needs is all that is left."""
        while self.writers:
            self.end()
        for _ in range(2):
            self.table.maintenance.compact()
            self.cleaned += self.table.maintenance.clean(NONE, readers=NONE).files
        there = {stat.path for stat in store_of(self.table).walk("") if not stat.path.endswith("metadata")}
        assert there == set(self.table.inspect.files()["path"].to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "steps"), [(0, 20), *(slow(seed, 50) for seed in range(1, 4))])
def test_a_clean_takes_nothing_that_anybody_may_still_ask_for(seed: int, steps: int, simulated: Simulated) -> None:
    world = World(seed, simulated)
    for _ in range(steps):
        world.step()
    world.finish()
    assert world.cleaned

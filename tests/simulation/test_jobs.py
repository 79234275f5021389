"""Random histories of distributed writes: whatever tasks and drivers go through, a job is one commit or none.

Jobs are staged in parts, some of them twice and with other rows. Drivers complete them with receipts of one attempt at
each task, die at any change of the store, fall asleep there while other drivers, compactions and sweeps go on, come
again with the same or with other receipts, and late. The oracle knows which rows each call of a driver meant to commit:
for each job the table shows those of exactly one of its calls, or nothing, and a call that returns a commit of its own
has told the truth. Counters count each of them once.
"""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from crdt_mor import Commit, CrdtMorError, Table
from crdt_mor.errors import CommitUnknownError, WriterExpiredError
from crdt_mor.events.session import Session
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.parts import Receipt, WriteJob
from crdt_mor.payloads import Counter
from crdt_mor.store.local import LocalStore
from crdt_mor.testing.faults import InterruptedStore, ProcessDied
from tests.inside import completions_of, run_sweep, session_of, tail_of
from tests.tiers import seeds

SCHEMA = pa.schema([("id", pa.string()), ("attempt", pa.string()), ("n", pa.int64())])
TASKS = 2
SHARED = "shared"
"""A key that every attempt adds to."""

Said = dict[str, str]
"""The keys that a call of a driver meant to commit, each with the attempt that staged it."""


@dataclass
class Planned:
    """A job, the receipts of all attempts at its tasks, and what has become of it."""

    name: str
    job: WriteJob
    attempts: list[list[tuple[Receipt, Said]]] = field(default_factory=lambda: [[] for _ in range(TASKS)])
    calls: list[Said] = field(default_factory=list)
    told: list[Commit] = field(default_factory=list)
    truth: Said | None = None
    over: bool = False


class Jobs:
    """One table, its jobs, and everything that happened to them."""

    def __init__(self, random: Random, path: Path) -> None:
        self.random = random
        self.path = path
        self.table = Table.create(path, SCHEMA, key="id", buckets=2, merge={"n": Counter()})
        self.jobs: list[Planned] = []
        self.names = 0
        self.log: list[str] = []
        self.asleep = 0

    def step(self) -> None:
        r, x = self.random, self.random.random()
        if x < 0.08 or not self.jobs:
            self.jobs.append(Planned(f"j{len(self.jobs)}", self.table.jobs.plan("upsert", SCHEMA)))
            self.note("plan", self.jobs[-1].name)
        elif x < 0.4:
            self.stage(r.choice(self.jobs[-2:]))
        elif x < 0.85:
            self.complete(r.choice(self.jobs[-2:]))
        elif x < 0.89:
            self.note("compact")
            self.table.maintenance.compact()
        elif x < 0.9:
            self.give_up(r.choice(self.jobs[-2:]))
        elif x < 0.97:
            self.sweep()
        else:
            self.check()

    def stage(self, planned: Planned) -> None:
        """An attempt at a task: other keys in other file groups each time."""
        task = self.random.randrange(TASKS)
        self.names += 1
        attempt = f"{planned.name}.{task}.{self.names}"
        keys = [f"{planned.name}.{task}{k}" for k in self.random.sample("abcd", self.random.randint(0, 3))]
        said = dict.fromkeys([SHARED, *keys], attempt)
        rows = pa.table({"id": list(said), "attempt": [attempt] * len(said), "n": [1] * len(said)}, schema=SCHEMA)
        try:
            receipt = planned.job.stage(rows, task=task)
        except WriterExpiredError:
            self.note("stage", attempt, "expired")
            assert not planned.told
            planned.over = True
            return
        self.note("stage", attempt, keys, "late" if planned.told else "")
        assert not (planned.told and receipt.files)
        assert not planned.over
        planned.attempts[task].append((receipt, said))

    def complete(self, planned: Planned) -> None:
        """A driver that may die or sleep at any change of the store."""
        store = InterruptedStore(LocalStore(self.path))
        driver = Table._of(Session(store, SystemEnvironment(), session_of(self.table).config, 600_000), str(self.path))
        chosen = [self.random.choice(found) for found in planned.attempts if found]
        means: Said = {}
        for _, said in chosen:
            means |= said
        means = {key: attempt for key, attempt in means.items() if key != SHARED}
        means[SHARED] = str(len([said for _, said in chosen if SHARED in said]))
        number = len(planned.calls)
        planned.calls.append(means)
        x = self.random.random()
        if x < 0.5:
            store.arm(self.random.randint(1, 10), store.die, after=self.random.random() < 0.5)
        elif x < 0.8 and self.asleep < 2:
            store.arm(self.random.randint(1, 10), self.sleep, after=self.random.random() < 0.5)
        self.note("driver", planned.name, number, means)
        try:
            commit = driver.jobs.complete(planned.job, [receipt for receipt, _ in chosen])
        except ProcessDied:
            self.note("driver", planned.name, number, "died")
        except WriterExpiredError:
            self.note("driver", planned.name, number, "expired")
            assert not planned.told, self.story()
            planned.over = True
        except CommitUnknownError as error:
            self.note("driver", planned.name, number, "unknown")
            if "took the write over" not in str(error):
                raise
        else:
            self.note("driver", planned.name, number, commit)
            assert not planned.over, self.story()
            assert all(told.version == commit.version for told in planned.told), self.story()
            planned.told.append(commit)
            if not commit.repeated:
                assert planned.truth is None, self.story()
                planned.truth = means

    def sleep(self) -> None:
        """What goes on while a driver sleeps."""
        self.asleep += 1
        for _ in range(self.random.randint(1, 3)):
            self.step()
        self.asleep -= 1
        self.note("awake")

    def give_up(self, planned: Planned) -> None:
        self.note("give up", planned.name)
        self.table.jobs.abandon(planned.job)

    def sweep(self) -> None:
        self.note("sweep")
        run_sweep(self.table)

    def check(self) -> None:
        """What the table shows is what one call of each job meant, or nothing."""
        rows = {row["id"]: row for row in self.table.scan().to_arrow().to_pylist()}
        shared = rows.pop(SHARED, {"n": 0})["n"]
        assert all(row["n"] == 1 for row in rows.values()), self.story()
        value = tail_of(self.table)
        done = Multiset(c.nonce for c in completions_of(self.table, value) if c.action == "deltacommit")
        total = 0
        for planned in self.jobs:
            found = {key: row["attempt"] for key, row in rows.items() if key.startswith(f"{planned.name}.")}
            committed = done[planned.job.job.name]
            assert committed <= 1, self.story()
            calls = [planned.truth] if planned.truth is not None else planned.calls
            meant = [call for call in calls if found == {k: a for k, a in call.items() if k != SHARED}]
            assert meant if committed else not found, f"{planned.name} shows {found}\n{self.story()}"
            assert committed or not planned.told, self.story()
            if committed and len({call[SHARED] for call in meant}) == 1:
                total += int(meant[0][SHARED])
            elif committed:
                return  # two calls differ in nothing but how many tasks had no keys of their own
        assert shared == total, f"counted {shared} of {total}\n{self.story()}"

    def finish(self) -> None:
        """Everything is given up; then nothing is left but what commits name."""
        self.check()
        for planned in self.jobs:
            self.give_up(planned)
        for _ in range(2):
            self.sweep()
        value = tail_of(self.table)
        assert not value.pending
        assert not value.rolled_back
        named = {f.path for c in completions_of(self.table, value) for f in c.files}
        found = {p.name for p in self.path.iterdir() if p.is_file() and p.name != ".hoodie_partition_metadata"}
        assert found == named, f"{found ^ named}\n{self.story()}"
        self.check()
        self.table.maintenance.compact()
        self.check()

    def note(self, *what: object) -> None:
        self.log.append("  " * self.asleep + " ".join(map(str, what)))

    def story(self) -> str:
        return "\n".join(self.log)


def run(seed: int, path: Path, steps: int) -> None:
    """A history from its seed."""
    jobs = Jobs(Random(f"jobs {seed}"), path)
    for _ in range(steps):
        jobs.step()
    jobs.finish()


@pytest.mark.parametrize("seed", seeds(range(3), range(3, 6)))
def test_a_job_is_one_commit_or_none(seed: int, fast_path: Path) -> None:
    run(seed, fast_path / "t", steps=30)


@pytest.mark.parametrize("seed", seeds((), range(1000, 1008), range(1008, 1030)))
def test_long_histories_too(seed: int, fast_path: Path) -> None:
    run(seed, fast_path / "t", steps=80)


# --- planted bugs -----------------------------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]


def all_drivers_give_a_file_the_same_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("crdt_mor.write.open_write.driver_token", lambda number: "0-0-0")


def a_job_may_begin_again(patch: pytest.MonkeyPatch) -> None:
    def forgetful(*_: object) -> object:
        return None
        yield

    patch.setattr("crdt_mor.events.job.find_completion_by_nonce", forgetful)


@pytest.mark.slow
@pytest.mark.parametrize("plant", [all_drivers_give_a_file_the_same_name, a_job_may_begin_again])
def test_random_histories_find(plant: Plant, fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)

    def some_history() -> None:
        for seed in range(12):
            run(seed, fast_path / f"{seed}", steps=30)

    with pytest.raises((AssertionError, CrdtMorError)):
        some_history()

"""Random histories of one number: Hudi sets it by writes that begin early and complete late, we set it and add to it.

After each step the number is what all commits make of it in the order of their requested times: an addition that was
computed without a write which comes before it is found.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa
import pytest

from crdt_mor import Opening, Table, Transaction
from crdt_mor.errors import EarlierWritePendingError
from crdt_mor.log.steps import Steps
from crdt_mor.model.instant import InstantTime, from_ms
from crdt_mor.testing.simulation.hudi_writer import hudi_commits
from crdt_mor.write import open_write
from tests.inside import session_of
from tests.simulated import Simulated
from tests.simulation.foreign_commits import SCHEMA
from tests.tiers import slow

STEPS = 50
NOW = timedelta(0)


def rows(value: int) -> pa.Table:
    return pa.table({"k": ["a"], "v": [value]}, SCHEMA)


@dataclass
class History:
    """begun: the writes of Hudi's that are under way. blocks: ours. commits: by their times, what each makes of it."""

    seed: int
    world: Simulated = field(default_factory=Simulated)
    begun: list[InstantTime] = field(default_factory=list)
    blocks: list[tuple[InstantTime, Transaction]] = field(default_factory=list)
    commits: dict[InstantTime, Callable[[int], int]] = field(default_factory=dict)
    held_up: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        made = self.world.create(SCHEMA, key="k", buckets=1)
        self.commits[made.upsert(rows(0)).requested_at] = lambda _: 0
        self.handles = [made, *(self.opened() for _ in range(2))]
        self.folder = session_of(made).publisher.projector.folder

    def opened(self) -> Table:
        return Table("simulated", opening=Opening(store=self.world.store, environment=self.world.environment))

    @property
    def table(self) -> Table:
        return self.random.choice(self.handles)

    def step(self) -> None:
        self.world.environment.sleep(self.random.choice((0.01, 0.5, 30)))
        self.random.choice((self.hudi_begins, self.hudi_ends, self.add, self.add, self.begin, self.end, self.put))()
        expected = 0
        for _, change in sorted(self.commits.items()):
            expected = change(expected)
        assert self.opened().scan().to_arrow()["v"].to_pylist() == [expected]

    def hudi_begins(self) -> None:
        self.begun.append(from_ms(self.world.environment.now_ms()))
        self.world.store.put(f"{self.folder}/{self.begun[-1]}.deltacommit.requested", b"")
        self.world.environment.sleep(0.01)

    def hudi_ends(self) -> None:
        if self.begun:
            requested, value = self.begun.pop(self.random.randrange(len(self.begun))), self.random.randint(100, 999)
            hudi_commits(self.handles[0], rows(value), requested, from_ms(self.world.environment.now_ms()))
            self.commits[requested] = lambda _: value
            self.world.environment.sleep(0.01)

    def put(self) -> None:
        value = self.random.randint(1_000, 9_999)
        self.commits[self.table.upsert(rows(value)).requested_at] = lambda _: value

    def add(self) -> None:
        if self.blocks:
            return  # it would wait for a block
        try:
            self.commits[self.table.update({"v": "v + 1"}, wait=NOW).requested_at] = lambda value: value + 1
        except EarlierWritePendingError:
            assert self.begun
            self.held_up += 1

    def begin(self) -> None:
        if not self.blocks:
            block = self.table.transaction(isolation="serializable", wait=NOW)
            self.blocks.append((from_ms(self.world.environment.now_ms()), block.__enter__()))

    def end(self) -> None:
        """A block reads long after its begin: what Hudi has begun since comes later."""
        if self.blocks:
            began, tx = self.blocks.pop()
            try:
                tx.update({"v": "v + 10"})
            except EarlierWritePendingError as error:
                assert any(requested <= began for requested in self.begun)
                tx.__exit__(type(error), error, None)
                return
            tx.__exit__(None, None, None)
            assert tx.commit is not None
            self.commits[tx.commit.requested_at] = lambda value: value + 10


def run(seed: int) -> History:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
    return history


@pytest.mark.parametrize("seed", [1, *map(slow, (0, *range(2, 20)))])
def test_nothing_of_hudis_is_lost_by_an_update(seed: int) -> None:
    run(seed)


def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hudi's writes are looked for by nobody."""

    def never(*_: object) -> Steps[bool]:
        return False
        yield

    monkeypatch.setattr(open_write, "is_beside_hudi", never)
    with pytest.raises(AssertionError):
        run(1)

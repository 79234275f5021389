"""Random histories of rules: they are added, proven and dropped beside stale handles, blocks, jobs and compactions.

A model says which rules there are and which are proven, and so which writes are refused: those with a row that breaks a
rule that was there when they began. After each step every row fulfils every rule that is proven.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta

import polars as pl
import pytest

import crdt_mor as mor
from crdt_mor import Rules, Table, Transaction
from crdt_mor.errors import ConstraintViolationError, EarlierWritePendingError
from tests.simulated import Simulated
from tests.tiers import slow

SCHEMA = pl.Schema({"id": pl.Int64, "n": pl.Int64})
LIMITS = (10, 20)
"""The rules: `n` is below one of these."""

STEPS = 40


@dataclass
class History:
    """One table, handles of which each knows the version that it has seen last, and the model.

    rules: by its limit whether a rule is proven. blocks: those that have begun, and the limits that held then.
    """

    seed: int
    world: Simulated = field(default_factory=Simulated)
    rules: dict[int, bool] = field(default_factory=dict)
    blocks: list[tuple[Transaction, frozenset[int]]] = field(default_factory=list)
    refused: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        first = self.world.create(SCHEMA, key="id", buckets=2)
        self.handles = [first, *(self.opened() for _ in range(2))]

    def opened(self) -> Table:
        return mor.Table("simulated", opening=mor.Opening(store=self.world.store, environment=self.world.environment))

    def rows(self) -> pl.DataFrame:
        count = self.random.randint(1, 3)
        return pl.DataFrame(
            {"id": self.random.sample(range(8), count), "n": [self.random.choice((1, 5, 15, 25)) for _ in range(count)]}
        )

    def shown(self) -> list[int]:
        return self.opened().scan().to_polars()["n"].to_list()

    def step(self) -> None:
        self.world.environment.sleep(0.01)
        steps = [self.write, self.write, self.write, self.begin, self.end, self.add, self.add, self.drop, self.compact]
        self.random.choice(steps)()
        table = self.opened()
        assert {int(text.split()[-1]) for text in table.rules.check.values()} == set(self.rules)
        assert set(table.rules.unproven) == {f"check below{n}" for n, proven in self.rules.items() if not proven}
        proven = [limit for limit, is_proven in self.rules.items() if is_proven]
        assert all(n < limit for n in self.shown() for limit in proven)

    def write(self) -> None:
        table, rows = self.random.choice(self.handles), self.rows()
        is_job, breaks = self.random.random() < 0.3, self.breaks(rows, self.rules)
        try:
            if is_job:
                job = table.jobs.plan("upsert", SCHEMA)
                try:
                    table.jobs.complete(job, [job.stage(rows, task=0, environment=self.world.environment)])
                except ConstraintViolationError:
                    table.jobs.abandon(job)
                    raise
            else:
                table.upsert(rows)
        except ConstraintViolationError:
            assert breaks
            self.refused += 1
        else:
            assert not breaks

    def breaks(self, rows: pl.DataFrame, limits: dict[int, bool] | frozenset[int]) -> bool:
        return any(n >= limit for n in rows["n"] for limit in limits)

    def begin(self) -> None:
        if len(self.blocks) < 2:
            self.blocks.append((self.random.choice(self.handles).transaction().__enter__(), frozenset(self.rules)))

    def end(self) -> None:
        if self.blocks:
            tx, limits = self.blocks.pop(self.random.randrange(len(self.blocks)))
            rows = self.rows()
            try:
                tx.upsert(rows)
            except ConstraintViolationError as error:
                assert self.breaks(rows, limits)
                tx.__exit__(type(error), error, None)
            else:
                assert not self.breaks(rows, limits)
                tx.__exit__(None, None, None)

    def add(self) -> None:
        limit, validate = self.random.choice(LIMITS), self.random.random() < 0.6
        asked, is_broken = {f"below{limit}": f"n < {limit}"}, any(n >= limit for n in self.shown())
        try:
            self.random.choice(self.handles).add_rules(Rules(check=asked), validate=validate, wait=timedelta(0))
        except ConstraintViolationError:
            assert validate
            assert is_broken
        except EarlierWritePendingError:
            assert validate
            assert self.blocks
        else:
            assert not (validate and (is_broken or (self.blocks and not self.rules.get(limit))))
            self.rules[limit] = self.rules.get(limit, False) or validate

    def drop(self) -> None:
        if self.rules and self.random.random() < 0.5:
            limit = self.random.choice(sorted(self.rules))
            self.random.choice(self.handles).drop_rules(f"check below{limit}")
            del self.rules[limit]

    def compact(self) -> None:
        self.handles[0].maintenance.compact()


def run(seed: int) -> History:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
    return history


@pytest.mark.costly
@pytest.mark.parametrize("seed", [0, 1, *map(slow, range(2, 10))])
def test_rules_hold_beside_all_else(seed: int) -> None:
    assert run(seed).refused


def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are asked by nobody."""
    from crdt_mor.write.rules import RowRules

    monkeypatch.setattr(RowRules, "ask", lambda rules, rows: None)
    with pytest.raises(AssertionError):
        run(0)

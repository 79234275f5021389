"""Random histories in which Hudi's writer and ours take turns on one table, with writes of ours that span the turns.

What the table shows is a fold over the commits in the order of their requested times, whatever completed when. It is
held against our own scan of a table that is opened, and against hudi-rs, after every step.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow as pa

from crdt_mor import Table
from crdt_mor.api.transaction import Transaction
from crdt_mor.model.timeline_parts import Completion
from tests.inside import session_of
from tests.interop.hudi_turns import HudiTurns
from tests.interop.readers import hudi_rs, ours
from tests.interop.shapes import Maker

SCHEMA = pa.schema([pa.field("id", pa.string(), False), pa.field("p", pa.string(), False), ("n", pa.int64())])
DAYS = ("mon", "tue", "wed")
KEYS = tuple("abcdefgh")

State = dict[tuple[str, str], int]
"""The number of each row, by partition and key."""
Effect = Callable[[State], None]


def writes(rows: State) -> Effect:
    return lambda state: state.update(rows)


def removes(keys: list[tuple[str, str]]) -> Effect:
    def effect(state: State) -> None:
        for key in keys:
            state.pop(key, None)

    return effect


def replaces(days: tuple[str, ...], rows: State) -> Effect:
    """All rows of some partitions go, and others come."""

    def effect(state: State) -> None:
        for key in [key for key in state if key[0] in days]:
            del state[key]
        state.update(rows)

    return effect


def table_of(rows: State) -> pa.Table:
    listed = [{"id": key, "p": day, "n": n} for (day, key), n in rows.items()]
    return pa.Table.from_pylist(listed, SCHEMA)


@dataclass
class TurnHistory:
    """One table, two open handles of ours, and Hudi. effects: what each commit did, by its requested time."""

    random: Random
    root: Path
    stack: ExitStack
    effects: dict[str, Effect] = field(default_factory=dict)
    open: list[tuple[Transaction, State]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    number: int = 0

    def __post_init__(self) -> None:
        self.make, self.hudi = Maker(self.root, self.stack), HudiTurns(self.root)
        self.make.create(SCHEMA, key=["id", "p"], partition_by="p", buckets=self.random.choice([1, 3]))
        self.handles = [Table(self.root) for _ in range(2)]

    def step(self) -> None:
        acts = [self.upsert] * 3 + [self.delete, self.overwrite, self.job, self.begin, self.end, self.end, self.compact]
        act = self.random.choice([*acts, *[self.hudi_inserts] * 2, self.hudi_drops, self.hudi_overwrites])
        self.log.append(act.__name__)
        act()
        self.check()

    def check(self) -> None:
        state: State = {}
        for time in sorted(self.effects):
            self.effects[time](state)
        table = Table(self.root)
        shown = {(row["p"], row["id"]): row["n"] for row in table.scan().to_arrow().to_pylist()}
        assert shown == state, self.log
        assert ours(table) == hudi_rs(self.root), self.log

    # --- what is done -------------------------------------------------------------------------------------------------

    @property
    def table(self) -> Table:
        return self.random.choice(self.handles)

    def _rows(self, days: tuple[str, ...] = DAYS) -> State:
        self.number += 1
        return {(self.random.choice(days), key): self.number for key in self.random.sample(KEYS, 3)}

    def _days(self) -> tuple[str, ...]:
        return tuple(sorted(self.random.sample(DAYS, self.random.choice([1, 1, 2]))))

    def upsert(self) -> None:
        rows = self._rows()
        self.effects[self.table.upsert(table_of(rows)).requested_at] = writes(rows)

    def job(self) -> None:
        table, rows, more = self.table, self._rows(), self._rows()
        planned = table.jobs.plan("upsert", SCHEMA)
        receipts = [planned.stage(table_of(part), task=task) for task, part in enumerate([rows, more])]
        self.effects[table.jobs.complete(planned, receipts).requested_at] = writes(rows | more)

    def delete(self) -> None:
        rows = self._rows()
        self.effects[self.table.delete(table_of(rows).drop_columns(["n"])).requested_at] = removes(list(rows))

    def overwrite(self) -> None:
        table, rows = self.table, self._rows()
        table.overwrite(table_of(rows), partitions="dynamic")
        days = tuple({day for day, _ in rows})
        self.effects[self._newest(table).requested] = replaces(days, rows)

    def compact(self) -> None:
        self.table.maintenance.compact()

    def begin(self) -> None:
        """A write of ours begins, which ends in some later step."""
        rows = self._rows()
        tx = self.make.begin(self.table)
        tx.upsert(table_of(rows))
        self.open.append((tx, rows))

    def end(self) -> None:
        if self.open:
            tx, rows = self.open.pop(self.random.randrange(len(self.open)))
            self.make.end(tx)
            assert tx.commit is not None
            self.effects[tx.commit.requested_at] = writes(rows)

    def _newest(self, table: Table) -> Completion:
        """The overwrite that was committed last, whose place is its barrier."""
        completions = session_of(table).views.completions(session_of(table).tail())
        return [c for c in completions if c.overwriting is not None][-1]

    def hudi_inserts(self) -> None:
        rows = self._rows()
        self.effects[self.hudi.insert(table_of(rows))] = writes(rows)

    def hudi_drops(self) -> None:
        days = self._days()
        if self.hudi.has_groups(*(f"p={day}" for day in days)):
            self.effects[self.hudi.drop(*(f"p={day}" for day in days))] = replaces(days, {})

    def hudi_overwrites(self) -> None:
        days = self._days()
        rows = self._rows(days)
        if self.hudi.has_groups(*(f"p={day}" for day in days)):
            done = self.hudi.overwrite(table_of(rows), *(f"p={day}" for day in days))
            self.effects[done] = replaces(days, rows)


def run(seed: int, root: Path, steps: int = 25) -> TurnHistory:
    with ExitStack() as stack:
        history = TurnHistory(Random(seed), root, stack)
        for _ in range(steps):
            history.step()
        while history.open:
            history.end()
        history.check()
        history.compact()
        history.check()
        return history

"""Random histories of updates, renames, drops, columns that are added again and rules, beside writers of any age.

Each write goes by the names that the columns had when it began.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa

from crdt_mor import InvalidInputError, Rules, Table
from crdt_mor.api.transaction import Transaction
from crdt_mor.errors import EarlierWritePendingError
from tests.interop.shapes import Maker, keys

KEYS = 6
NAMES = ["id", "n", "v", "Größe", "net weight", "@t"]
"""Few, so that names are used again."""


def quoted(name: str) -> str:
    return '"' + name + '"'


@dataclass
class VerbHistory:
    """A table, and what its columns are called: the key, the number, and the text where there is one."""

    make: Maker
    seed: int
    ordering: str | None
    names: list[str] = field(default_factory=lambda: ["id", "n", "v"])
    past: set[str] = field(default_factory=set)
    """What columns were called before they were renamed: a write that has such a name is asked which one it means."""
    open: list[tuple[Transaction, list[str]]] = field(default_factory=list)
    count: int = 0
    rules: int = 0
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.seed} verbs")
        self.table = self.make.create(buckets=1, ordering=self.ordering)
        self.commit()

    def run(self, look: Callable[[Table], None]) -> None:
        """Steps by chance. look: at the table, after each of them."""
        steps = {
            self.commit: 6, self.begin: 4, self.end: 4, self.update: 4, self.rename: 4, self.drop: 2, self.add: 3,
            self.rule: 2, self.unrule: 1, self.compact: 2,
        }  # fmt: skip
        for _ in range(self.chance.randint(8, 16)):
            step = self.chance.choices([*steps], [*steps.values()])[0]
            step()
            self.done.append(f"{step.__name__} {self.names}")
            look(self.table)

    def batch(self, names: list[str]) -> pa.Table:
        chosen = self.chance.sample(range(KEYS), self.chance.randint(1, 4))
        self.count += 1
        numbers = [self.chance.randint(0, 3000) * 1000 + self.count for _ in chosen]
        columns = [pa.array(keys(*chosen)), pa.array(numbers), pa.array([f"{self.seed}-{self.count}"] * len(chosen))]
        return pa.table(columns[: len(names)], names)

    def say(self, tx: Transaction, names: list[str]) -> None:
        for _ in range(self.chance.randint(1, 2)):
            data = self.batch(names)
            if self.chance.random() < 0.3:
                tx.delete(data.select(names[:2] if self.ordering else names[:1]))
            else:
                tx.upsert(data)

    def commit(self) -> None:
        self.begin()
        tx, _ = self.open.pop()
        self.make.end(tx)

    def begin(self) -> None:
        tx = self.make.begin(self.table)
        self.open.append((tx, [*self.names]))
        self.say(*self.open[-1])

    def end(self) -> None:
        if self.open:
            self.make.end(self.open.pop(self.chance.randrange(len(self.open)))[0])

    def update(self) -> None:
        """Of the text, else of the number, unless versions are ordered by it."""
        number = quoted(self.names[1])
        given = {self.names[2]: "'updated'"} if len(self.names) > 2 else {self.names[1]: f"{number} + 1"}
        with suppress(EarlierWritePendingError):
            self.table.update(given, where=f"{number} > 1000000", wait=timedelta(0))

    def rename(self) -> None:
        place = self.chance.randrange(len(self.names))
        new = self.chance.choice([name for name in NAMES if name not in self.names])
        self.table.alter(rename={self.names[place]: new})
        self.past.add(self.names[place])
        self.names[place] = new

    def drop(self) -> None:
        if len(self.names) > 2:
            with suppress(InvalidInputError):  # a rule needs it
                self.table.alter(drop=self.names[2])
                self.names.pop()

    def add(self) -> None:
        """A write of one event, as another writer might add a column of this name that means another one."""
        unused = [name for name in NAMES if name not in {*self.names, *self.past}]
        if len(self.names) == 2 and unused:
            self.names.append(self.chance.choice(unused))
            self.table.upsert(self.batch(self.names), schema_mode="merge")

    def rule(self) -> None:
        """One that each row fulfils, now and later."""
        checks = {"positive": f"{quoted(self.names[1])} >= 0"}
        checks |= {"said": f"length({quoted(self.names[2])}) > 0"} if len(self.names) > 2 else {}
        name = self.chance.choice([*checks])
        if name not in self.table.rules.check:
            self.table.add_rules(Rules(check={name: checks[name]}), validate=False)
            self.rules += 1

    def unrule(self) -> None:
        if self.table.rules.check:
            self.table.drop_rules(f"check {self.chance.choice([*self.table.rules.check])}")

    def compact(self) -> None:
        self.table.maintenance.compact(logs_only=self.chance.random() < 0.4)

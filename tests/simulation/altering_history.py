"""A random history of a table whose columns get other names beside writers, and a plain dictionary of what they mean.

Transactions and jobs are open on several handles while columns are added, renamed and dropped, and names are used
again. To the oracle a column is a number that never changes; each write knows numbers by the names that it began with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

from crdt_mor import InvalidInputError, Opening, Table, Transaction
from crdt_mor.errors import SchemaMismatchError
from crdt_mor.parts import Receipt, WriteJob
from crdt_mor.store import MemoryStore

KEYS = ["a", "b", "c"]
NAMES = ["n", "m", "Größe", "net weight", "N.B."]
"""Few, so that names meet."""

Names = dict[str, int]
"""The numbers of columns, by the names that people see."""


@dataclass
class Write:
    """A write under way: by which names it knows columns, those that it adds, and what it says, in its order.

    former: the numbers of columns by the names that they had before it began, of each name the last one.
    added: columns that came to the table since it began. said: by key the values of columns, which are numbers or, as
    long as the write has not been committed, the names of those that it adds.
    """

    names: Names
    former: Names = field(default_factory=dict)
    tx: Transaction | None = None
    job: WriteJob | None = None
    receipts: list[Receipt] = field(default_factory=list)
    adds: set[str] = field(default_factory=set)
    said: list[tuple[str, dict[int | str, int]]] = field(default_factory=list)
    is_disturbed: bool = False


@dataclass
class AlteringHistory:
    """One table, its handles, and what its columns mean."""

    random: Random
    done: list[tuple[str, list[tuple[str, dict[int, int]]]]] = field(default_factory=list)
    names: Names = field(default_factory=lambda: {"k": 0, "n": 1, "m": 2})
    former: Names = field(default_factory=dict)
    moments: list[tuple[str, Names, dict[str, dict[int, int]]]] = field(default_factory=list)
    open: list[Write] = field(default_factory=list)
    columns: int = 3
    altered: int = 0
    refused: int = 0
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        schema = pa.schema([("k", pa.string()), ("n", pa.int64()), ("m", pa.int64())])
        table = Table.create("t", schema, key="k", buckets=1, opening=Opening(store=MemoryStore()))
        self.handles = [table, *(Table("t", opening=Opening(store=table._store)) for _ in range(2))]

    @property
    def table(self) -> Table:
        return self.random.choice(self.handles)

    def run(self, steps: int) -> None:
        kinds = {self.begin: 4, self.say: 5, self.commit: 4, self.alter: 4, self.compact: 1, self.look: 2}
        for _ in range(steps):
            self.random.choices([*kinds], [*kinds.values()])[0]()
        while self.open:
            self.commit()
        self.look()
        self.look_back()

    # --- what can happen --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        if len(self.open) == 3:
            return
        write = Write(dict(self.names), dict(self.former))
        if self.random.random() < 0.3:
            schema = pa.schema(
                [(name, pa.int64() if write.names[name] else pa.string()) for name in self.shown(write.names)]
            )
            write.job = self.table.jobs.plan("upsert", schema)
        else:
            write.tx = self.table.transaction().__enter__()
        self.note("begin", write.names)
        self.open.append(write)

    def shown(self, names: Names) -> list[str]:
        return [self.key(names), *(name for name, number in names.items() if number)]

    def key(self, names: Names) -> str:
        return next(name for name, number in names.items() if number == 0)

    def say(self) -> None:
        """A row, of the columns that the write knows; now and then of one more."""
        if not self.open:
            return
        r, write = self.random, self.random.choice(self.open)
        free = [name for name in NAMES if name not in write.names and name not in write.adds]
        free = [name for name in free if write.former.get(name) not in write.names.values()]  # no renamed column's
        if write.tx is not None and free and r.random() < 0.4:
            write.adds.add(r.choice(free))
        given = {name: r.randint(0, 99) for name, number in write.names.items() if number}
        more = {name: r.randint(100, 199) for name in sorted(write.adds)}
        key = r.choice(KEYS)
        row = pa.table({self.key(write.names): [key]} | {name: [value] for name, value in (given | more).items()})
        if write.tx is not None:
            try:
                write.tx.upsert(row, schema_mode="merge")
            except InvalidInputError as refusal:
                raise AssertionError(self.story()) from refusal
        elif write.job is not None:
            write.receipts.append(write.job.stage(row, task=len(write.receipts)))
        said: dict[int | str, int] = {write.names[name]: value for name, value in given.items()}
        said.update(more)
        write.said.append((key, said))
        self.note("say", key, given | more)

    def commit(self) -> None:
        if not self.open:
            return
        write = self.open.pop(self.random.randrange(len(self.open)))
        try:
            if write.tx is not None:
                write.tx.__exit__(None, None, None)
                commit = write.tx.commit
            else:
                assert write.job is not None
                commit = self.table.jobs.complete(write.job, write.receipts)
        except SchemaMismatchError as refusal:
            self.note("refused", write.adds, refusal)
            if not (write.is_disturbed and "write again" in str(refusal)):
                raise AssertionError(self.story()) from refusal
            self.refused += 1
            return
        assert commit is not None
        for name in sorted(write.adds):
            if name not in self.names:
                self.names[name] = self.columns
                self.columns += 1
                self.disturb()
        by_name = self.names
        said = [(key, {by_name[c] if isinstance(c, str) else c: v for c, v in row.items()}) for key, row in write.said]
        self.done.append((commit.requested_at, said))
        self.note("commit", commit.requested_at, self.names)
        self.remember()

    def alter(self) -> None:
        """A rename, a drop, or two names that are exchanged; some of them cannot be."""
        r = self.random
        old, new = r.choice([*self.names]), r.choice(NAMES)
        droppable = [name for name, number in self.names.items() if number]
        rename: dict[str, str] = {old: new}
        drop: list[str] = []
        if r.random() < 0.3 and len(droppable) > 1:
            rename, drop = {}, [r.choice(droppable)]
        elif new in self.names and r.random() < 0.5:
            rename = {old: new, new: old}
        after = {rename.get(name, name): number for name, number in self.names.items() if name not in drop}
        try:
            self.table.alter(rename=rename, drop=drop)
        except InvalidInputError:
            assert len(after) < len(self.names) - len(drop), f"{rename} {drop}\n{self.story()}"
            return
        assert len(after) == len(self.names) - len(drop), f"{rename} {drop}\n{self.story()}"
        self.altered += 1
        self.former.update((name, self.names[name]) for name in (*rename, *drop) if rename.get(name) != name)
        self.names = after
        self.disturb()
        self.note("alter", rename, drop)
        self.remember()

    def disturb(self) -> None:
        for write in self.open:
            write.is_disturbed = True

    def compact(self) -> None:
        self.table.maintenance.compact()
        self.note("compact")

    # --- what must be -----------------------------------------------------------------------------------------------

    def expected(self) -> dict[str, dict[int, int]]:
        """The rows by key: of each the last write, whole, in the order in which the writes began."""
        rows: dict[str, dict[int, int]] = {}
        for _, said in sorted(self.done, key=lambda done: done[0]):
            rows |= dict(said)
        return rows

    def remember(self) -> None:
        self.moments.append((self.handles[0].scan().as_of, dict(self.names), self.expected()))

    def look(self) -> None:
        self.compare(self.table.scan(), self.names, self.expected())

    def look_back(self) -> None:
        """Every moment, under the names of now and under those of then."""
        for as_of, then, rows in self.moments:
            self.compare(self.table.scan(as_of=as_of), self.names, rows)
            scan = self.table.scan(as_of=as_of, names="then")
            assert {*scan.schema.names} == {*then}, f"{as_of} {scan.schema.names} {then}\n{self.story()}"
            self.compare(scan, then, rows)

    def compare(self, scan: Any, names: Names, rows: dict[str, dict[int, int]]) -> None:
        found = {row.pop(self.key(names)): row for row in scan.to_arrow().to_pylist()}
        wanted = {key: {name: row.get(number) for name, number in names.items() if number} for key, row in rows.items()}
        assert found == wanted, f"found={found} wanted={wanted}\n{self.story()}"

    def note(self, *what: object) -> None:
        self.log.append(" ".join(map(str, what)))

    def story(self) -> str:
        """What has happened."""
        return "\n".join(self.log)

"""A random history of a place at which one table after another is made, and the handles of all of them.

At any operation of a handle on the store, the table may be removed and another made there, with settings and commits of
its own. The oracle keeps what was committed to each table; a place holds one of them at a time:

    - a handle of a table that is gone is refused, whatever it is asked for: it neither writes nor reads the next one
    - a table that is there shows its own commits, all of them and no others, and nobody who opened it is refused
    - who follows changes by checkpoints has what the table shows, or is told to begin anew
    - the timeline's folder holds versions of one table
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from crdt_mor import Commit, InvalidInputError, SnapshotExpiredError, Table, Transaction
from crdt_mor.errors import CheckpointExpiredError, TableNotFoundError, TableReplacedError
from crdt_mor.log.paths import VERSIONS
from crdt_mor.model.timeline import Timeline
from crdt_mor.parts import CompactionPlan, WriteJob
from crdt_mor.store.local import LocalStore
from tests.inside import session_of

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
KEYS = ["a", "b", "c"]
OPERATIONS = ("read", "view", "put", "copy", "stat", "list", "walk", "delete", "touch", "make_durable")
HANDLES_MAX = 4
OVERTAKEN = 0.02
"""How often the table is replaced just before an operation of a handle on the store."""

REFUSED = (TableReplacedError, TableNotFoundError, SnapshotExpiredError, CheckpointExpiredError, InvalidInputError)
"""What who holds something of a table that is gone may be told; of invalid input only that a plan is gone, or that a
checkpoint is ahead."""

T = TypeVar("T")
Shown = dict[str, int]


@dataclass
class Life:
    """One table: what was committed to it, by requested time, and whether it is there."""

    number: int
    written: list[tuple[str, dict[str, int | None]]] = field(default_factory=list)

    @property
    def rows(self) -> Shown:
        found: dict[str, int | None] = {}
        for _, said in sorted(self.written, key=lambda write: write[0]):
            found |= said
        return {key: value for key, value in found.items() if value is not None}


@dataclass
class Held:
    """Something of one table: a handle, an open transaction, a job, a plan."""

    life: Life
    what: Any
    said: dict[str, int | None] = field(default_factory=dict)


@dataclass
class Copy:
    """What somebody has who follows the changes."""

    checkpoint: str | None = None
    rows: Shown = field(default_factory=dict)


class Place:
    """A folder, the tables that were there one after the other, and everything that is held of any of them."""

    def __init__(self, random: Random, path: Path) -> None:
        self.random = random
        self.path = str(path)
        self.number = 0
        self.values = 0
        self.lives: dict[str, Life] = {}
        self.armed = False
        self.overtaken = False
        self.handles: list[Held] = []
        self.transactions: list[Held] = []
        self.jobs: list[Held] = []
        self.plans: list[Held] = []
        self.copies = [Copy(), Copy()]
        self.log: list[str] = []
        self.make()

    # --- tables come and go -----------------------------------------------------------------------------------------

    def make(self) -> None:
        self.number += 1
        self.life = Life(self.number)
        ordering, buckets = self.random.choice([None, None, "v"]), self.random.choice([1, 1, 2])
        table = Table.create(self.path, SCHEMA, key="k", ordering=ordering, buckets=buckets)
        self.lives[id_of(table)] = self.life
        self.handles.append(Held(self.life, table))
        for _ in range(self.random.choice([0, 0, 1, 4])):
            said = self.some()
            self.done(Held(self.life, table), said, table.upsert(frame(said)))
        self.note("made, with", self.life.rows)

    def replace(self) -> None:
        armed, self.armed, self.overtaken = self.armed, False, True
        shutil.rmtree(self.path)
        self.make()
        self.armed = armed

    def before_operation(self) -> None:
        if self.armed and threading.current_thread() is threading.main_thread() and self.random.random() < OVERTAKEN:
            self.armed = False
            self.note("overtaken")
            self.replace()

    # --- what can happen --------------------------------------------------------------------------------------------

    def step(self) -> None:
        choice = self.random.choice
        if len(self.handles) > HANDLES_MAX:
            self.handles.pop(0)
        happens: list[Callable[[], None]] = [
            self.open, self.write, self.write, self.scan, self.begin, self.commit, self.plan, self.execute, self.job,
            self.finish_job, self.follow, self.follow, self.check,
        ]  # fmt: skip
        if self.random.random() < 0.06:
            self.note("replaced")
            self.replace()
        choice(happens)()

    def open(self) -> None:
        table = self.ask(Held(self.life, None), lambda _: Table(self.path))
        if table is not None:
            self.handles.append(Held(self.lives[id_of(table)], table))

    def write(self) -> None:
        held, said = self.random.choice(self.handles), self.some()
        deletes = self.random.random() < 0.3
        if deletes:
            said = dict.fromkeys(said)
        write = (lambda t: t.delete(keys=list(said), plain=True)) if deletes else (lambda t: t.upsert(frame(said)))
        self.done(held, said, self.ask(held, write))

    def scan(self) -> None:
        held = self.random.choice(self.handles)
        found = self.ask(held, shown)
        assert found in (None, held.life.rows), self.story(f"table {held.life.number} showed {found}")

    def begin(self) -> None:
        held, said = self.random.choice(self.handles), self.some()

        def begun(table: Table) -> Transaction:
            tx = table.transaction().__enter__()
            tx.upsert(frame(said))
            return tx

        tx = self.ask(held, begun)
        if tx is not None:
            self.transactions.append(Held(held.life, tx, said))

    def commit(self) -> None:
        if (held := self.take(self.transactions)) is None:
            return

        def committed(tx: Transaction) -> Commit | None:
            tx.__exit__(None, None, None)
            return tx.commit

        self.done(held, held.said, self.ask(held, committed))

    def plan(self) -> None:
        held = self.random.choice(self.handles)
        plan = self.ask(held, lambda table: table.maintenance.plans.schedule())
        if plan is not None:
            self.plans.append(Held(held.life, plan))

    def execute(self) -> None:
        if (held := self.take(self.plans)) is None:
            return
        by = self.random.choice(self.handles)
        plan: CompactionPlan = held.what
        both = by if by.life is held.life else Held(Life(0), by.what)  # a plan of one table, a handle of another
        self.ask(both, lambda table: table.maintenance.compact(plan))

    def job(self) -> None:
        held = self.random.choice(self.handles)
        job = self.ask(held, lambda table: table.jobs.plan("upsert", SCHEMA))
        if job is not None:
            self.jobs.append(Held(held.life, job))

    def finish_job(self) -> None:
        if (held := self.take(self.jobs)) is None:
            return
        by = self.random.choice(self.handles)
        both = Held(held.life if by.life is held.life else Life(0), by.what)
        job: WriteJob = held.what
        said = self.some()
        receipt = self.ask(held, lambda _: job.stage(frame(said), task=0))
        if receipt is not None:
            self.done(both, said, self.ask(both, lambda table: table.jobs.complete(job, [receipt])))

    def follow(self) -> None:
        copy, held = self.random.choice(self.copies), self.random.choice(self.handles)
        changes = self.ask(held, lambda table: windows(table, copy.checkpoint), foreign=copy.checkpoint is not None)
        if changes is None:
            copy.checkpoint, copy.rows = None, {}
            return
        copy.checkpoint, found = changes
        for kind, key, value in found:
            copy.rows.pop(key, None)
            if kind == "upsert":
                copy.rows[key] = value
        assert copy.rows == held.life.rows, self.story(f"a follower has {copy.rows}")

    def check(self) -> None:
        """Who opens the table now finds it whole."""
        found = shown(Table(self.path))
        assert found == self.life.rows, self.story(f"the table shows {found}")
        here = id_of(Table(self.path))
        for file in (Path(self.path) / VERSIONS).iterdir():
            of = Timeline.decode(file.read_bytes(), str(file)).table_id
            assert of == here, self.story(f"a version of another table: {file.name}")

    # --- inside -----------------------------------------------------------------------------------------------------

    def ask(self, held: Held, use: Callable[[Any], T], *, foreign: bool = False) -> T | None:
        """What a handle answers, or None where it is refused, which it has to be if its table was gone before.

        foreign: it is given something that may be of another table, so that it may refuse although it is there.
        """
        here, self.overtaken, self.armed = held.life is self.life, False, True
        try:
            found = use(held.what)
        except REFUSED as error:
            if isinstance(error, InvalidInputError) and not (foreign or "the plan is missing" in str(error)):
                raise
            if here and not self.overtaken and not foreign:
                raise AssertionError(self.story(f"table {held.life.number} is there, and was refused")) from error
            return None
        finally:
            self.armed = False
        assert here or found is None, self.story(f"table {held.life.number} is gone, and answered {found}")
        return found

    def done(self, held: Held, said: dict[str, int | None], commit: Commit | None) -> None:
        if commit is not None:
            held.life.written.append((commit.requested_at, said))
            self.note("table", held.life.number, "committed", said, commit.version)

    def take(self, some: list[Held]) -> Held | None:
        return some.pop(self.random.randrange(len(some))) if some else None

    def some(self) -> dict[str, int | None]:
        self.values += 1
        return dict.fromkeys(self.random.sample(KEYS, self.random.choice([1, 2])), self.values)

    def note(self, *what: object) -> None:
        self.log.append(" ".join(str(part) for part in what))

    def story(self, end: str) -> str:
        return "\n".join([*self.log, end, f"there is table {self.life.number}, which has {self.life.rows}"])


def id_of(table: Table) -> str:
    found = session_of(table).known_tail().table_id
    assert found is not None
    return found


def frame(said: dict[str, int | None]) -> pa.Table:
    return pa.Table.from_pylist([{"k": key, "v": value} for key, value in said.items()], SCHEMA)


def shown(table: Table) -> Shown:
    return {row["k"]: row["v"] for row in table.scan().to_arrow().to_pylist()}


def windows(table: Table, checkpoint: str | None) -> tuple[str, list[tuple[str, str, int]]]:
    changes = table.changes(checkpoint)
    return changes.checkpoint, [(row["_change_type"], row["k"], row["v"]) for row in changes.to_arrow().to_pylist()]


@contextmanager
def watched(place: Place) -> Iterator[None]:
    """Each operation on the store may come just after the table was replaced."""
    with pytest.MonkeyPatch.context() as patch:
        for name in OPERATIONS:
            original = getattr(LocalStore, name)

            def operation(store: LocalStore, *given: Any, original: Any = original, **named: Any) -> Any:
                place.before_operation()
                return original(store, *given, **named)

            patch.setattr(LocalStore, name, operation)
        yield


def run(seed: int, path: Path, steps: int) -> Place:
    """A history from its seed."""
    place = Place(Random(seed), path)
    with watched(place):
        for _ in range(steps):
            place.step()
        place.check()
    return place

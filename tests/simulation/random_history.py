"""A random history of one real table, and beside it a plain list of what was committed.

Several transactions are open at once on several handles, each with a wall clock of its own; they write, delete, grow
the schema, overwrite all rows or those of partitions, commit, roll back and repeat their tokens. Small writes are
posted and committed in groups (`tests.simulation.groups`). Compactions, also of logs alone, are planned, executed late
and twice, and cancelled. The oracle (`crdt_mor.testing`) knows none of that: it folds the commits that had completed,
without what an overwrite has replaced. What a scan shows must be that fold, for the latest snapshot and for every
earlier one, before and after any compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import cycle
from operator import and_
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, Protocol

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Commit, Opening, Payload, Scan, Table, Transaction
from crdt_mor.ground.clock import Environment, SystemEnvironment
from crdt_mor.merge.oracle import Contribution, Row, fold
from crdt_mor.merge.rule import MergeRule
from crdt_mor.model.declared import declared_of
from crdt_mor.model.instant import InstantTime
from crdt_mor.parts import CompactionPlan
from crdt_mor.payloads import PartialUpdate
from crdt_mor.store import Store
from crdt_mor.write.open_write import OpenWrite
from tests.inside import run_sweep
from tests.simulation.followers import Follower, apply, same, shown
from tests.simulation.groups import Groups
from tests.simulation.payload_columns import COLUMNS, meaning, names, types

RULES = {
    "latest": MergeRule(),
    "ordering": MergeRule("ordering", ordering="v"),
    "partial": MergeRule("columns"),
    "partial, keep": MergeRule("columns", nulls="keep"),
    "partial, ordering": MergeRule("columns", "v"),
    "payloads": MergeRule("columns", whole=True),
    "partial, payloads": MergeRule("columns"),
}
MOVABLE = [name for name, rule in RULES.items() if not rule.has_orders]
"""The rules of tables that can be moved."""

TRIALS_MAX = 5
"""Columns with payloads in one table: few, so that histories stay short to read."""
KEYS = ["a", "b", "é"]
PARTS = ["x", "y"]
OPEN_MAX = 4

HEIGHTS: dict[str, Callable[[Scan], int]] = {
    "polars": lambda scan: scan.to_polars().height,
    "arrow": lambda scan: scan.to_arrow().num_rows,
    "stream": lambda scan: sum(batch.num_rows for batch in scan.to_reader()),
    "parts": lambda scan: sum(frame.height for part in scan.parts(size=1) for frame in part.frames()),
    "count": Scan.count,
}
"""The outputs of a scan, and how many rows each has where no column is asked for."""

Kind = Literal["delete", "tombstone", "row"]
Statement = tuple[str, Kind, tuple[tuple[str, object], ...]]

SET_NULL: Final = "<null>"
"""In a statement of a table with nulls that leave values: a null that is written as null."""


def contribution(time: str, statement: Statement, completed: str) -> Contribution:
    key, kind, row = statement
    nulls = frozenset(name for name, value in row if value is SET_NULL)
    values = tuple((name, None if name in nulls else value) for name, value in row)
    return Contribution(time, key, kind, values, completed, nulls)


class Saying(Protocol):
    """A write that is being made: the columns that it knows, and what it has said so far."""

    columns: dict[str, pa.DataType]
    said: list[Statement]
    nulls: tuple[str, ...]


class SkewedEnvironment(SystemEnvironment):
    """A machine whose wall clock is off."""

    def __init__(self, ahead_ms: int) -> None:
        super().__init__()
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


@dataclass
class Done:
    """A commit, as the oracle sees it. covered: as of the commit of an overwrite."""

    commit: Commit
    writes: list[Contribution]

    def voids(self, other: Done, key: str) -> bool:
        """Whether this overwrite replaces what another commit wrote to a key, however late that one completes."""
        covered = self.commit.covered
        if covered is None or other.commit.requested_at >= self.commit.requested_at:
            return False
        partition = key.rpartition("/")[0]
        return covered == ("*",) or any(path.removeprefix("p=") == partition for path in covered)


@dataclass
class Open:
    """A transaction under way, with its statements so far, and the commits before its begin.

    only, only_key: the declared partition or key.
    """

    tx: Transaction
    columns: dict[str, pa.DataType]
    before: list[Done]
    token: tuple[str, int] | None = None
    said: list[Statement] = field(default_factory=list)
    nulls: tuple[str, ...] = ()
    brings: set[str] = field(default_factory=set)
    overwrites: bool = False
    only: str | None = None
    only_key: str | None = None

    @property
    def begun(self) -> InstantTime | None:
        """The requested time; None: it has not begun yet."""
        write = self.tx._write
        assert write is None or isinstance(write, OpenWrite)
        return None if write is None else write.begun.requested


@dataclass
class History:
    """One table, its handles, and everything that ever happened to it."""

    random: Random
    rule: str
    partitioned: bool
    path: Path
    narrow_order: bool = False
    key_names_partition: bool = False
    """Whether the partition is a part of the key, so that the same keys are apart without partitions, too."""
    done: list[Done] = field(default_factory=list)
    open: list[Open] = field(default_factory=list)
    plans: list[CompactionPlan] = field(default_factory=list)
    columns: dict[str, pa.DataType] = field(default_factory=dict)
    created: set[str] = field(default_factory=set)
    trials: list[str | tuple[str, ...]] = field(default_factory=list)
    numbers: int = 0
    log: list[str] = field(default_factory=list)
    layouts: Random = field(default_factory=Random)
    """Chance of its own, for the orders of rows, so that a seed's history is the same whatever they are."""
    outputs: Iterator[str] = field(default_factory=lambda: cycle(HEIGHTS))
    """Which output of a scan is next counted without columns."""
    groups: Groups = field(init=False)

    @property
    def is_ordered(self) -> bool:
        """Whether the table has an ordering column, v."""
        return RULES[self.rule].ordering is not None

    def __post_init__(self) -> None:
        self.layouts = Random(repr(self.random.getstate()))
        self.groups = Groups(Random(repr(self.random.getstate()) + " groups"))
        order = pa.int32() if self.narrow_order else pa.int64()
        self.columns = {"k": pa.string(), "v": order, "a": pa.float64(), "b": pa.string(), "w": pa.int32()}
        if self.partitioned or self.key_names_partition:
            self.columns = {"p": pa.string(), **self.columns}
        if "payloads" in self.rule:
            self.trials = self.random.sample(list(COLUMNS), TRIALS_MAX)
            self.columns |= types(self.trials)
        self.created = set(self.columns)
        members: dict[str | tuple[str, ...], Payload | str] = {}
        members |= {names(trial): COLUMNS[trial].payload for trial in self.trials}
        merge = {
            "partial": PartialUpdate(),
            "partial, keep": PartialUpdate(nulls="keep"),
            "partial, ordering": PartialUpdate(),
            "payloads": members,
            "partial, payloads": PartialUpdate(columns=members),
        }.get(self.rule)
        self.create(
            pa.schema(list(self.columns.items())),
            key=["p", "k"] if self.key_names_partition else "k",
            ordering="v" if self.is_ordered else None,
            partition_by="p" if self.partitioned else (),
            hive_style=self.random.random() < 0.5,
            buckets=self.random.choice([1, 2]),
            merge=merge,
        )
        self.followers = [Follower(c, i) for c in ("latest", "stable") for i in (False, True)]
        self.handles = [self.handle(ahead_ms) for ahead_ms in (0, 20_000, -40_000)]

    def create(self, schema: pa.Schema, **settings: Any) -> None:
        """Make the table."""
        Table.create(str(self.path), schema, **settings)

    def handle(self, ahead_ms: int) -> Table:
        """The table, opened by a machine whose wall clock is so far ahead."""
        return Table(str(self.path), opening=Opening(environment=SkewedEnvironment(ahead_ms)))

    def opened_over(self, store: Store, environment: Environment) -> Table:
        """The table, opened over a store and by a clock of somebody's own."""
        return Table(self.handles[0].uri, opening=Opening(store=store, environment=environment))

    @property
    def table(self) -> Table:
        return self.random.choice(self.handles)

    # --- what can happen ------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """A group now and then, and a step."""
        if self.groups.are_due():
            self.groups.happen(self)
        self.step()

    def step(self) -> None:
        r, x = self.random, self.random.random()
        if x < 0.04 and len(self.open) < OPEN_MAX:
            self.begin_overwrite()
        elif x < 0.3 and len(self.open) < OPEN_MAX:
            self.begin()
        elif x < 0.4 and self.open:
            self.say(r.choice(self.open))
        elif x < 0.65 and self.open:
            self.commit(self.open.pop(r.randrange(len(self.open))))
        elif x < 0.69 and self.open:
            self.roll_back(self.open.pop(r.randrange(len(self.open))))
        elif x < 0.8:
            self.schedule()
        elif x < 0.95 and self.plans:
            self.compact(r.choice(self.plans))
        elif x < 0.97 and self.plans:
            self.cancel(self.plans.pop(r.randrange(len(self.plans))))
        elif x < 0.98:
            self.sweep()
        else:
            self.check()
        self.groups.note_carried(self)
        if r.random() < 0.15:
            self.follow(r.choice(self.followers))

    def begin(self) -> None:
        only = self.partition_declared()
        found = self.opened(only, self.key_declared(only))
        self.note("begin", found, found.only or "")
        for _ in range(self.random.choice([1, 1, 2])):
            self.say(found)

    def partition_declared(self) -> str | None:
        """The partition that a transaction which begins declares; None: it declares none."""
        return None

    def key_declared(self, only: str | None) -> str | None:
        """The key that a transaction which begins declares; None: it declares none."""
        return None

    def opened(self, only: str | None = None, only_key: str | None = None) -> Open:
        token = None
        if self.random.random() < 0.3:
            self.numbers += 1
            token = (f"app{self.numbers}", 1)
        tx = self.table.transaction(token=token, partitions=None if only is None else [only])
        if only_key is not None:
            tx._declare = lambda _: declared_of(None, None, False, [only_key])
        found = Open(tx, dict(self.columns), list(self.done), token, only=only, only_key=only_key)
        found.tx.__enter__()
        self.groups.note_carried(self)
        found.before = list(self.done)
        self.open.append(found)
        return found

    def begin_overwrite(self) -> None:
        """One that is under way for a while, as others are: only what it has staged by then is its own."""
        r, found = self.random, self.opened()
        found.overwrites = True
        x = r.random()
        if x < 0.2:
            found.tx.truncate()
        elif x < 0.4 and self.partitioned:
            found.tx.delete_partitions(r.sample(PARTS, r.randint(1, 2)))
        else:
            given = list(found.columns)
            rows = [self.row(found, given) for _ in range(r.randint(0, 4))]
            how = r.choice([None, "dynamic", sorted({str(row["p"]) for row in rows})]) if self.partitioned else None
            written = found.columns | types(self.trials, written=True)
            frame = pa.Table.from_pylist(rows, pa.schema([(c, written[c]) for c in given]))
            found.tx.overwrite(frame, partitions=how)
            found.said += [(self.key(row), "row", tuple(row.items())) for row in rows]
        self.note("overwrite", found, found.tx._overwrite, found.said)

    def say(self, found: Open) -> None:
        if found.overwrites:
            return
        x = self.random.random()
        if x < 0.55:
            self.upsert(found)
        elif x < 0.83:
            self.delete(found)
        elif x < 0.93:
            self.delete_where(found)
        else:
            self.look(found)

    def look(self, found: Open) -> None:
        """What a transaction reads is what it began with."""
        show(found.tx.scan(meta=True), self.expected(found.before), self)

    def upsert(self, found: Open) -> None:
        r = self.random
        grows = r.random() < 0.15
        grown = self.grow(found) if grows else []
        frame, said = self.batch(found, grown)
        found.tx.upsert(frame, schema_mode="merge" if grows else "strict", nulls=found.nulls)
        found.brings.update(grown)
        found.said += said
        self.note("upsert", found, frame.to_pylist())

    def batch(self, found: Saying, grown: Sequence[str] = ()) -> tuple[pa.Table, list[Statement]]:
        """Rows to upsert, of any columns that the rule allows, and what they say."""
        r, given = self.random, list(found.columns)
        if self.rule.startswith("partial"):
            together = {c: r.random() < 0.5 for trial in self.trials for c in names(trial)}
            together |= {c: all(together[n] for n in names(t)) for t in self.trials for c in names(t)}
            always = ("k", "p", *(["v"] if self.is_ordered else []), *grown)
            given = [c for c in given if c in always or together.get(c, r.random() < 0.5)]
        elif r.random() < 0.5:  # columns that came after the table's creation may be left out
            given = [c for c in given if c in self.created or c in grown or r.random() < 0.5]
        rows = [self.row(found, given) for _ in range(r.randint(1, 4))]
        written = found.columns | types(self.trials, written=True)
        frame = pa.Table.from_pylist(rows, pa.schema([(c, written[c]) for c in given]))
        found.nulls = ()
        if self.rule == "partial, keep" and r.random() < 0.4:
            found.nulls = tuple(c for c in ("v", "b") if c in given)
            rows = [{c: SET_NULL if v is None and c in found.nulls else v for c, v in row.items()} for row in rows]
        return frame, [(self.key(row), "row", tuple(row.items())) for row in rows]

    def grow(self, found: Open) -> list[str]:
        """The batch that follows has a new column, or a wider one. Few names, so that two may add the same at once."""
        name = self.random.choice(["w", "c0", "c1", "c2"])
        found.columns[name] = pa.int64() if name == "w" else found.columns.get(name, pa.int32())
        return [name]

    def learn(self, columns: dict[str, pa.DataType]) -> None:
        for name, kind in columns.items():
            if kind == pa.int64() or name not in self.columns:
                self.columns[name] = kind

    def row(self, found: Saying, given: Sequence[str]) -> dict[str, object]:
        r = self.random
        row: dict[str, object] = {"p": r.choice(PARTS), "k": r.choice(KEYS), "a": float(r.randint(0, 9))}
        row["v"] = r.randint(-1, 3) if self.is_ordered else r.choice([None, 0, 1, 2, 3])
        row["b"] = r.choice([None, f"b{len(self.done)}.{len(found.said)}"])
        row["w"] = r.choice([None, 2**31 + 5 if found.columns["w"] == pa.int64() else 7])
        for trial in self.trials:
            value = None if r.random() < 0.2 else COLUMNS[trial].write(r)
            row |= zip(names(trial), value or (None, None), strict=True) if isinstance(trial, tuple) else {trial: value}
        return {c: row[c] if c in row else r.choice([None, len(self.done)]) for c in given}

    def delete(self, found: Open) -> None:
        frame, plain, said = self.deletes(found)
        if self.key_columns == ["k"] and not self.is_ordered and self.random.random() < 0.3:
            found.tx.delete(keys=frame["k"].to_pylist())
        else:
            found.tx.delete(frame, plain=plain)
        found.said += said
        self.note("delete", found, frame.to_pylist(), plain)

    def deletes(self, found: Saying) -> tuple[pa.Table, bool, list[Statement]]:
        """Keys to delete, whether plainly, and what that says."""
        r = self.random
        rows = [self.row(found, list(found.columns)) for _ in range(r.randint(1, 3))]
        if self.is_ordered:
            names = [*self.key_columns, "v"]
            rows = list({self.key(row): row for row in rows}.values())
        else:
            names = self.key_columns
        plain = not self.is_ordered or r.random() < 0.4
        frame = pa.Table.from_pylist(
            [{c: row[c] for c in names} for row in rows], pa.schema([(c, found.columns[c]) for c in names])
        )
        kind: Kind = "delete" if plain else "tombstone"
        return frame, plain, [(self.key(row), kind, () if plain else (("v", row["v"]),)) for row in rows]

    def delete_where(self, found: Open) -> None:
        """Decided on the snapshot that the transaction began with, whatever has been committed since."""
        found.tx.delete(where=pl.col("v") > 1)
        for key, row in self.expected(found.before).items():
            value = row["v"]
            if isinstance(value, int) and value > 1:
                ordered = self.is_ordered
                found.said.append((key, "tombstone" if ordered else "delete", (("v", value),) if ordered else ()))
        self.note("delete where v > 1", found)

    def commit(self, found: Open) -> None:
        begun = found.begun
        assert begun is not None
        found.tx.__exit__(None, None, None)
        commit = found.tx.commit
        assert commit is not None
        assert not commit.repeated
        assert (commit.covered is not None) == found.overwrites == (commit.requested_at != begun)
        self.learn({c: found.columns[c] for c in found.brings})
        self.add(commit, begun, found.said)
        self.note("commit", found, commit)
        if found.overwrites:
            still = {plan.barrier for plan in self.table.maintenance.plans.open()}
            self.plans = [plan for plan in self.plans if plan.barrier in still]
        if found.token is not None:
            self.took(found.token, commit)

    def add(self, commit: Commit, begun: str, said: Sequence[Statement]) -> None:
        """Note a commit for the oracle. begun: the requested time of its rows."""
        self.groups.note_carried(self)  # it has completed before
        writes = [contribution(f"{begun}.{i:03d}", statement, commit.completed_at) for i, statement in enumerate(said)]
        done = Done(commit, writes)
        done.writes = [w for w in writes if not any(other.voids(done, w.key) for other in self.done)]
        self.done.append(done)

    def took(self, token: tuple[str, int], commit: Commit) -> None:
        """A commit has a token, which is now known for a repeat of it."""
        again = self.table.upsert(pa.table({"nonsense": [1]}), token=token)
        assert again.repeated
        assert (again.version, again.requested_at) == (commit.version, commit.requested_at)

    def roll_back(self, found: Open) -> None:
        found.tx.__exit__(RuntimeError, RuntimeError(), None)
        assert found.tx.commit is None
        self.note("roll back", found)

    def schedule(self) -> None:
        least, logs_only = self.random.choice([1, 1, 2]), self.random.random() < 0.4
        plan = self.table.maintenance.plans.schedule(
            log_files_min=least, logs_only=logs_only, rewrite=None if logs_only else self.relayout()
        )
        if plan is not None:
            self.plans.append(plan)
            self.note("plan", plan)

    def relayout(self) -> Literal["order"] | None:
        """Now and then ask for another order of rows in base files, and whether to rewrite those that have another.

        Plans that are open keep the order that they were made with.
        """
        r = self.layouts
        if r.random() < 0.4:
            columns = r.sample(["k", "v", "a", "b", "w"], r.choice([0, 1, 1, 2, 3]))
            changes = {
                "crdt_mor.cluster_by": ",".join(columns) or None,
                "crdt_mor.cluster_order": r.choice([None, "linear", "z-order"]),
            }
            self.table.set_properties(changes)
            self.note("another order", changes)
        return r.choice([None, "order"])

    def compact(self, plan: CompactionPlan) -> None:
        """Executors come and go; some finish only the files, some come when all is done."""
        self.note("execute", plan.barrier)
        if self.random.random() < 0.4:
            self.table.maintenance.plans.execute(plan)
            return
        done = self.table.maintenance.compact(plan)
        assert [c.barrier for c in done] == [plan.barrier]
        if self.random.random() < 0.5:
            assert self.table.maintenance.compact(plan) == done
        self.plans.remove(plan)
        self.check_all()

    def cancel(self, plan: CompactionPlan) -> None:
        assert self.table.maintenance.plans.cancel(plan.barrier)
        if self.random.random() < 0.5:
            assert self.table.maintenance.compact(plan) == []
        self.note("cancel", plan.barrier)

    def sweep(self) -> None:
        run_sweep(self.table)
        self.note("sweep")

    def finish(self) -> None:
        """Everything ends; then all of it is compacted, which no answer may show."""
        while self.open:
            self.commit(self.open.pop())
        self.check_all()
        self.table.maintenance.compact()
        self.plans.clear()
        self.sweep()
        self.check_all()
        for follower in self.followers:
            self.follow(follower)

    def follow(self, follower: Follower) -> None:
        follower.go_on(self)

    # --- what must hold -------------------------------------------------------------------------------------------

    @property
    def key_columns(self) -> list[str]:
        return ["p", "k"] if "p" in self.columns else ["k"]

    def key(self, row: dict[str, object]) -> str:
        return "/".join(str(row[c]) for c in self.key_columns)

    def expected(self, done: Sequence[Done]) -> dict[str, Row]:
        overwrites = [d for d in done if d.commit.covered is not None]
        writes = (w for d in done for w in d.writes if not any(o.voids(d, w.key) for o in overwrites))
        return fold(writes, RULES[self.rule], self.columns, {names(trial): meaning(trial) for trial in self.trials})

    def check(self) -> None:
        """The latest snapshot, its count, and one of the past."""
        self.groups.note_carried(self)
        expected = self.expected(self.done)
        show(self.table.scan(meta=True), expected, self)
        assert self.table.scan().count() == len(expected), self.story()
        self.check_lookup(expected)
        self.check_stable()
        if self.done:
            self.check_as_of(self.random.choice(self.done))
            self.check_diff(self.random.choice(self.done), self.random.choice(self.done))

    def check_lookup(self, expected: dict[str, Row]) -> None:
        """A key alone is found as it is among all others, wherever the base file has it, and one that is not is not."""
        wanted = {name: self.layouts.choice({"k": KEYS, "p": PARTS}[name]) for name in reversed(self.key_columns)}
        key = self.key(dict[str, object](wanted))
        condition = reduce(and_, (pl.col(name) == value for name, value in wanted.items()))
        show(self.table.scan(filter=condition, meta=True), {k: row for k, row in expected.items() if k == key}, self)

    def check_all(self) -> None:
        self.check()
        for done in self.done:
            self.check_as_of(done)

    def check_as_of(self, done: Done) -> None:
        c = done.commit
        points: list[Commit | int | str] = [c, c.version, c.completed_at]
        point = self.random.choice(points)
        seen = [d for d in self.done if d.commit.completed_at <= c.completed_at]
        if point == c.version:  # which other commits may share
            seen = [d for d in self.done if d.commit.version <= c.version]
        show(self.table.scan(as_of=point, meta=True), self.expected(seen), self)

    def check_stable(self) -> None:
        """A prefix of the table's order, as long as the oldest open transaction allows."""
        scan = self.table.scan(consistency="stable", meta=True)
        pending = [found.begun for found in self.open if found.begun is not None]
        assert all(scan.as_of <= requested for requested in pending)
        assert not pending or scan.as_of == min(pending)
        show(scan, self.expected([d for d in self.done if shown(d, "requested", scan.as_of)]), self)

    def check_diff(self, a: Done, b: Done) -> None:
        """The difference of two snapshots turns the one into the other."""
        ends = [[d for d in self.done if d.commit.completed_at <= end.commit.completed_at] for end in (a, b)]
        copy, wanted = (self.expected(end) for end in ends)
        apply(self.table.diff(a.commit, b.commit), copy, self, images=True)
        same(copy, wanted, self, f"diff {a.commit.version} {b.commit.version}")

    def note(self, *what: object) -> None:
        self.log.append(" ".join(f"tx{id(w) % 9973}" if isinstance(w, Open) else str(w) for w in what))

    def story(self) -> str:
        return "\n".join([f"rule={self.rule} partitioned={self.partitioned} trials={self.trials}", *self.log])


def show(scan: Scan, expected: dict[str, Row], history: History) -> None:
    """A scan shows exactly these rows, each once; a column that it does not know yet is null in them.

    Without a column it still shows how many there are.
    """
    rows = scan.to_arrow().to_pylist()
    found = {history.key(row): {n: row[n] for n in row if n in history.columns} for row in rows}
    assert len(found) == len(rows), f"a key twice: {rows}\n{history.story()}"
    times = {history.key(row): row["_hoodie_commit_time"] for row in rows}
    want_times = {key: str(row["_hoodie_commit_time"])[:17] for key, row in expected.items()}
    names = next((list(row) for row in found.values()), list(history.columns))
    want = {key: {n: row.get(n) for n in names} for key, row in expected.items()}
    assert found == want, f"{scan}\nfound {found}\nwanted {want}\n{history.story()}"
    assert times == want_times, f"{scan}\nfound {times}\nwanted {want_times}\n{history.story()}"
    output = next(history.outputs)
    height = HEIGHTS[output](scan.narrowed(columns=[]))
    assert height == len(expected), f"{height} rows without columns, {output}, not {len(expected)}\n{history.story()}"


def run(seed: int, rule: str, path: Path, steps: int, kind: type[History] | None = None) -> History:
    """A history from its seed."""
    random = Random(f"{seed} {rule}")
    history = (kind or History)(random, rule, random.random() < 0.25, path, narrow_order=random.random() < 0.3)
    with pytest.MonkeyPatch.context() as patch:
        if seed % 2:  # a base of a few rows is one of many row groups, merged part by part
            patch.setattr("crdt_mor.write.base_files.ROW_GROUP_ROWS", 2)
            patch.setattr("crdt_mor.write.base_files.CLUSTERED_ROW_GROUP_ROWS", 1)
            patch.setattr("crdt_mor.merge.parts.SCAN_CUT_ROWS_MIN", 1)
            patch.setattr("crdt_mor.merge.parts.SCAN_PART_ROWS_MIN", 2)
            patch.setattr("crdt_mor.merge.compaction.PART_BASE_ROWS_MIN", 2)
        if seed % 3 == 0:  # a log of a few rows has several blocks, which play the base together while there is none
            patch.setattr("crdt_mor.write.log_files.BLOCK_ROWS_MAX", 2)
            patch.setattr("crdt_mor.merge.visible.PLAYS_BASE_BYTES_MIN", 1)
        for _ in range(steps):
            history.go_on()
        history.finish()
    return history

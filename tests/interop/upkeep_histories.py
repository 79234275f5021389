"""Random histories with every service, seen by somebody after each step.

Writes overlap, are given up by hand while their writers go on, and end in any order; overwrites replace all rows, or
those of partitions, meanwhile. Others post small writes, which are committed together with one of ours. Between them
are compactions, done and planned, log compactions, cleans, erasures, archiving, upkeep by policy and sweeps; savepoints
are made and dropped, and the table is restored to them, or to a commit. After each step every view that is kept must be
what it was, and every other one refused; then `look` is called, for other readers. A `MovingHistory` also has its rows
in another order now and then, and moves to another address.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, SnapshotExpiredError, Table
from crdt_mor.api.transaction import Transaction
from crdt_mor.errors import ErasureUnfinishedError, UnsupportedFeatureError, WriterExpiredError
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.log.paths import ERASURES
from crdt_mor.payloads import Counter, PartialUpdate
from crdt_mor.results import MigrationProgress
from tests.inside import completions_of, session_of, store_of, tail_of
from tests.interop.readers import Rows, ours
from tests.interop.shapes import NO_TIME, SCHEMA, Maker, keys, swept
from tests.posting import in_a_crowd, post

KINDS: dict[str, dict[str, object]] = {
    "default": {},
    "ordering column": {"ordering": "n"},
    "partitions": {"key": ["id", "v"], "partition_by": "v", "hive_style": True},
    "PartialUpdate": {"merge": PartialUpdate()},
    "payloads": {"merge": {"n": Counter()}},
}
"""Kinds of tables, each with two file groups a partition; no two ordering values in a history are equal."""

CUSTOM = ("PartialUpdate", "payloads")
"""Those whose logs Hudi's readers refuse to merge."""

WRITES = ("commit", "group", "end", "overwrite", "overwrite partitions", "truncate")
STEPS = {
    "commit": 7, "begin": 4, "end": 5, "overwrite": 1, "overwrite partitions": 1, "truncate": 1,
    "give up": 1, "end what was given up": 1, "compact": 4, "compact logs": 2,
    "plan": 1, "clean": 3, "erase": 2, "archive": 4, "maintain": 1, "sweep": 1,
    "savepoint": 2, "drop savepoint": 1, "restore": 2,
}  # fmt: skip
KEYS = 6
SAVED_MAX = 2
GROUPS_SHARE = 0.3
"""How often a commit follows a group."""

POLICIES = {
    "crdt_mor.readers": "0s",
    "crdt_mor.archive.commits": "2",
    "crdt_mor.compaction.log_files": "3",
    "crdt_mor.log_compaction.log_files": "2",
}


def soon_over(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Versions go as soon as there are newer ones, completions are sealed one by one, every other history is wide."""
    monkeypatch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 1)
    monkeypatch.setattr("crdt_mor.log.publish.EXPIRE_EVERY", 1)
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 1)
    if seed % 2:
        monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_BYTES_MAX", 1)
        monkeypatch.setattr("crdt_mor.write.log_files.BLOCK_ROWS_MAX", 2)


class UpkeepHistory:
    """A table whose history is a function of the seed, and what each of its commits showed."""

    def __init__(self, make: Maker, seed: int, kind: str) -> None:
        self.make, self.seed, self.kind = make, seed, kind
        self.chance = random.Random(f"{seed} {kind}")
        self.groups = random.Random(f"{seed} {kind} groups")
        self.grouped = 0
        """How many writes were committed in groups."""
        self.choices = STEPS
        self.table = make.create(**{"buckets": 2, **KINDS[kind]})
        self.table.set_properties(POLICIES)
        self.pending: list[Transaction] = []
        self.given_up: list[Transaction] = []
        self.count = 0
        self.views: dict[str, Rows] = {}
        self.saved: dict[str, tuple[str, Rows]] = {}
        self.gone: list[str] = []
        self.steps: list[str] = []
        self.is_partitioned = kind == "partitions"
        self.archived = 0
        self.restored = 0

    def run(self, steps: int, look: Callable[[UpkeepHistory], None]) -> None:
        """So many steps, and then everything ends."""
        self._step("commit", look)
        for _ in range(steps):
            self._step(self.chance.choices([*self.choices], [*self.choices.values()])[0], look)
        while self.pending:
            self._step("end", look)
        if self.saved:
            self._step("restore", look)
        while self.saved:
            self._step("drop savepoint", look)
        ending = ("sweep", *(3 * ("commit", "compact")), "archive", "clean to the last commit")
        for name in ending:
            self._step(name, look)
        if not self.dropped:  # commits that the last compaction alone has superseded
            for name in ending:
                self._step(name, look)

    @property
    def story(self) -> str:
        return f"seed={self.seed} kind={self.kind} {', '.join(self.steps)}"

    @property
    def dropped(self) -> int:
        """How many commits the value has dropped."""
        return tail_of(self.table).retention.dropped_count

    def _step(self, name: str, look: Callable[[UpkeepHistory], None]) -> None:
        if name == "commit" and self.views and self.groups.random() < GROUPS_SHARE:
            self._step("group", look)
        before = ours(self.table)
        if not self._do(name):
            return
        self.steps.append(name)
        now = ours(self.table)
        if name not in (*WRITES, "erase", "restore", "move"):
            assert now == before, f"the rows are others\n{self.story}"
        assert ours(Table(self.make.root)) == now, self.story
        retention = tail_of(self.table).retention
        for at, rows in self.views.items():
            if at < retention.since and at not in {saved for saved, _ in self.saved.values()}:
                with pytest.raises(SnapshotExpiredError):
                    ours(self.table, as_of=at)
                continue
            try:
                assert ours(self.table, as_of=at) == rows, f"the view as of {at} is another\n{self.story}"
            except SnapshotExpiredError:
                assert any(at < since for _, since in retention.groups), f"as_of={at}\n{self.story}"
        for saved, (_, rows) in self.saved.items():
            assert ours(self.table, as_of=saved) == rows, f"what {saved} shows is another\n{self.story}"
        for at in self.gone:
            with pytest.raises(SnapshotExpiredError):
                ours(self.table, as_of=at)
        if name in (*WRITES, "move"):
            self.views[max(at for at in self.table.inspect.timeline()["completed_at"].to_pylist() if at)] = now
        look(self)

    def _do(self, name: str) -> bool:
        """One step; False if there was nothing to do."""
        table, chance = self.table, self.chance
        match name:
            case "commit":
                self._write(tx := self.make.begin(table))
                self.make.end(tx)
            case "group":
                self._group()
            case "begin":
                self.pending.append(self.make.begin(table))
                self._write(self.pending[-1])
            case "end" if self.pending:
                self.make.end(self.pending.pop(chance.randrange(len(self.pending))))
            case "overwrite":
                table.overwrite(self._batch())
            case "overwrite partitions" if self.is_partitioned:
                table.overwrite(self._batch(), partitions="dynamic")
            case "truncate" if chance.random() < 0.5:
                table.truncate()
            case "give up" if self.pending:
                place = chance.randrange(len(self.pending))  # they are pending in the order in which they began
                table.maintenance.roll_back(table.inspect.pending()["requested_at"][place].as_py())
                self.given_up.append(self.pending.pop(place))
            case "end what was given up" if self.given_up:
                with pytest.raises(WriterExpiredError):
                    self.make.end(self.given_up.pop(0))
            case "compact":
                return bool(table.maintenance.compact())
            case "compact logs":
                return bool(table.maintenance.compact(logs_only=True))
            case "plan":
                return table.maintenance.plans.schedule(logs_only=chance.random() < 0.3) is not None
            case "clean":
                table.maintenance.clean(commits=chance.randint(1, 3), readers=NO_TIME)
            case "clean to the last commit":
                table.maintenance.clean(commits=1, readers=NO_TIME)
            case "erase" if not (self.pending and self.kind == "ordering column"):
                # Beside a pending write the plain delete of an erasure would stay in a log for a while, and Hudi's
                # readers forget the place of a plain delete once a lower ordering value follows it.
                where = f"id = 'k{chance.randrange(KEYS)}'"
                if self.pending and type(session_of(table).environment) is SystemEnvironment:
                    with pytest.raises(InvalidInputError, match=r"wait for a transaction block .* for itself"):
                        table.maintenance.erase(where=where)
                    return True
                with suppress(ErasureUnfinishedError, *([InvalidInputError] if self.saved else [])):
                    table.maintenance.erase(where=where)
            case "archive":
                archived = table.maintenance.archive(keep_commits=chance.randint(1, 2))
                self.archived += archived.instants
                return bool(archived.instants)
            case "maintain":
                done = table.maintenance.maintain(keep=timedelta(0), keep_commits=chance.randint(1, 3))
                refused = self.saved and store_of(table).list(ERASURES)  # one that savepoints hold up
                assert done.ok or refused, f"{done}\n{self.story}"
            case "sweep":
                swept(table)
            case "savepoint" if len(self.saved) < SAVED_MAX:
                made = table.maintenance.savepoint(f"s{len(self.steps)}")
                self.saved[made.name] = made.at, ours(table)
            case "drop savepoint" if self.saved:
                table.maintenance.drop_savepoint(chance.choice([*self.saved]))
                self.saved = {name: self.saved[name] for name in (s.name for s in table.maintenance.savepoints())}
            case "restore":
                return self._restore()
            case _:
                return False
        return True

    def _restore(self) -> bool:
        """To the newest savepoint, or to a commit; False where that is refused."""
        points: list[tuple[str, str, Rows]] = [(at, at, rows) for at, rows in [*self.views.items()][-4:-1]]
        points += [(name, at, rows) for name, (at, rows) in [*self.saved.items()][-1:]] * 2
        if not points:
            return False
        to, at, rows = self.chance.choice(points)
        try:
            done = self.table.maintenance.restore(to)
        except (SnapshotExpiredError, UnsupportedFeatureError, InvalidInputError):
            erasing = bool(store_of(self.table).list(ERASURES))
            assert to == at or erasing, f"not restored to {to}\n{self.story}"
            return False
        assert ours(self.table) == rows, self.story
        if done.instants or done.pending or done.plans:
            self.restored += 1
            self.gone += [time for time in self.views if time > done.to]
            self.views = {time: shown for time, shown in self.views.items() if time <= done.to}
            self.given_up += self.pending
            self.pending = []
        return True

    def _write(self, tx: Transaction) -> None:
        for _ in range(self.chance.randint(1, 2)):
            data, is_delete = self._statement()
            (tx.delete if is_delete else tx.upsert)(data)

    def _group(self) -> None:
        """Others post writes, and are not heard of again; one of ours commits them. By chance of its own."""
        before, self.chance = self.chance, self.groups
        try:
            for _ in range(self.chance.randint(1, 3)):
                data, is_delete = self._statement()
                post(self.table, data, "DELETE" if is_delete else "UPSERT")
            data, is_delete = self._statement()
            table = in_a_crowd(self.table)
            commit = (table.delete if is_delete else table.upsert)(data)
        finally:
            self.chance = before
        members = next(c.members for c in completions_of(table) if c.version == commit.version)
        assert len(members) > 1, self.story
        self.grouped += len(members)

    def _statement(self) -> tuple[pa.Table, bool]:
        """Rows to upsert, or keys to delete, and whether they are that."""
        data = self._batch()
        if self.chance.random() < 0.4:
            config = self.table.config
            ordering = [config.ordering] if config.ordering else []
            return data.select(dict.fromkeys([*config.key, *config.partition_by, *ordering])), True
        if self.kind == "PartialUpdate":
            return data.select(["id", *self.chance.choice([["n"], ["v"], ["n", "v"]])]), False
        return data, False

    def _batch(self) -> pa.Table:
        chance = self.chance
        chosen = chance.sample(range(KEYS), chance.randint(1, 4))
        self.count += 1
        n = [chance.randint(0, 3000) * 1000 + self.count for _ in chosen]
        texts = ["x", "y"] if self.kind == "partitions" else [f"{self.seed}-{self.count}"]
        return pa.table({"id": keys(*chosen), "n": n, "v": [chance.choice(texts) for _ in chosen]}, SCHEMA)

    # --- what Hudi's readers are to say ---------------------------------------------------------------------------

    @property
    def is_refused(self) -> bool:
        """Whether Hudi's readers refuse the table now: the mode is `CUSTOM`, and there are logs."""
        return self.kind in CUSTOM and has_logs(self.table)


def has_logs(table: Table) -> bool:
    """Whether a file group has logs; a table that has moved without rows has no files."""
    return bool({*table.inspect.files()["kind"].to_pylist()} - {"base"})


# --- histories that move ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Left:
    """A table that has moved: where it is, and what each view of it shows."""

    table: Table
    path: Path
    is_read_by_hudi: bool
    rows: Rows
    views: dict[str, Rows]

    def require_the_same(self, story: str) -> None:
        """It still answers as it did."""
        assert ours(self.table) == ours(Table(self.path)) == self.rows, story
        for at, rows in self.views.items():
            assert ours(self.table, as_of=at) == rows, f"as_of={at}\n{story}"


class MovingHistory(UpkeepHistory):
    """A history whose table also gets its rows in another order, and moves to other addresses with other settings."""

    def __init__(self, make: Maker, seed: int, kind: str) -> None:
        super().__init__(make, seed, kind)
        self.choices = {**STEPS, "order": 3, "move": 3}
        self.left: list[Left] = []

    def run(self, steps: int, look: Callable[[UpkeepHistory], None]) -> None:
        super().run(steps, look)
        self._step("maintain", look)  # it finishes erasures, beside which no table moves
        self._step("move", look)
        self._step("commit", look)
        for left in self.left:
            left.require_the_same(self.story)

    def _do(self, name: str) -> bool:
        match name:
            case "order":
                columns = self.chance.choice(["n", "v", "v,n", None])
                order = self.chance.choice(["linear", "z-order", None])
                self.table.set_properties({"crdt_mor.cluster_by": columns, "crdt_mor.cluster_order": order})
                return bool(self.table.maintenance.compact(rewrite="order"))
            case "move":
                return self._move()
            case _:
                return super()._do(name)

    def _move(self) -> bool:
        """Go on at another address; False where rows are being erased, which a copy would keep."""
        if store_of(self.table).list(ERASURES):
            return False
        old, path = self.table, self.make.root
        new = path.with_name(f"t{len(self.left) + 1}")
        kind, wanted = self.kind, self._wanted()
        old.maintenance.migrate(new, on_progress=self._beside, **wanted)
        self.make.root, self.table = new, Table(new)
        assert values(self.table) == values(old), self.story
        since = tail_of(old).retention
        whole = max([since.since, *(at for _, at in since.groups)])
        read = kind not in CUSTOM or not has_logs(old)
        views = {at: rows for at, rows in self.views.items() if at >= whole}
        self.left.append(Left(old, path, read, ours(old), views))
        self.left[-1].require_the_same(self.story)
        self.gone = [*self.gone[-1:], *[*self.views][-1:]]
        self.views, self.saved = {}, {}
        return True

    def _wanted(self) -> dict[str, Any]:
        """What is to be another in the new table; `kind` says of what kind it will be."""
        chance, wanted = self.chance, dict[str, Any]()
        wanted["buckets"] = chance.choice([1, 2, 3])
        if chance.random() < 0.4:
            wanted["cluster_by"] = chance.choice(["n", ["v", "n"]])
        if "v" in str(KINDS[self.kind].get("key")):
            self.is_partitioned = chance.random() < 0.5
            wanted["partition_by"] = "v" if self.is_partitioned else ()
        elif chance.random() < 0.4:
            self.kind = chance.choice(["default", "PartialUpdate", "payloads"])
            wanted["merge"] = KINDS[self.kind].get("merge", "latest")
        return wanted

    def _beside(self, progress: MigrationProgress) -> None:
        """Writers go on while the table moves; when it is closed, what they have begun ends."""
        if progress.phase == "copy" and progress.done == progress.parts:
            for _ in range(self.chance.randint(0, 2)):
                UpkeepHistory._do(self, self.chance.choice([*WRITES, "begin", "compact", "clean"]))
        while progress.phase == "settle" and self.pending:
            self.make.end(self.pending.pop())


def values(table: Table) -> list[dict[str, object]]:
    """What users see of a table, without what is Hudi's."""
    rows = table.scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (str(row["id"]), str(row["v"])))

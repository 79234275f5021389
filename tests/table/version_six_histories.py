"""Random histories of tables of Hudi's from before version 8, beside the rows that must be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.table.version_six import VersionSix, gone_block, rollback_block, row_block


@dataclass
class Group:
    """A file group: its slice, how many logs that has, and the rows that are committed; `planned`: by a compaction."""

    slice: int
    number: int
    rows: dict[str, int]
    planned: dict[str, int] | None = None


@dataclass
class History:
    """What one writer of Hudi's does to a table, with failures, and beside it what must be read.

    keeps_all: it neither cleans nor archives.
    """

    random: Random
    table: VersionSix = field(default_factory=VersionSix)
    groups: dict[str, Group] = field(default_factory=dict)
    time: int = 10
    failed: list[tuple[int, str]] = field(default_factory=list)
    plans: dict[int, str] = field(default_factory=dict)
    active: list[int] = field(default_factory=list)
    keeps_all: bool = False

    def step(self) -> None:
        self.time += 10
        acts = [
            self.insert,
            *[self.write] * 5,
            self.fail,
            self.fail,
            self.plan,
            self.compact,
            self.archive,
            self.replace,
        ]
        self.random.choice(acts)()

    @property
    def expected(self) -> dict[str, int]:
        return {key: value for group in self.groups.values() for key, value in group.rows.items()}

    def done(self, *paths: str, action: str = "deltacommit", replaced: tuple[str, ...] = ()) -> None:
        self.table.commit(self.time, *paths, action=action, replaced=replaced)
        self.active.append(self.time)

    def insert(self) -> None:
        name, rows = f"g{self.time}", {f"g{self.time}-{i}": self.time for i in range(3)}
        if self.random.random() < 0.5:
            self.done(self.table.base(self.time, rows, name))
        else:
            self.done(self.table.log(self.time, row_block(self.time, rows), group=name))
        self.groups[name] = Group(self.time, 1, rows)

    def blocks(self, name: str) -> tuple[list[bytes], dict[str, int]]:
        """Blocks of a write to a group, and the rows that are there after it."""
        group = self.groups[name]
        keys = [f"{name}-{self.random.randint(0, 4)}" for _ in range(2)]
        rows, gone = {keys[0]: self.time}, keys[1:] if keys[1] != keys[0] and self.random.random() < 0.5 else []
        after = {key: value for key, value in (group.rows | rows).items() if key not in gone}
        return [row_block(self.time, rows), *([gone_block(self.time, gone)] if gone else [])], after

    def append(self, name: str, blocks: list[bytes]) -> str:
        group = self.groups[name]
        group.number += self.random.random() < 0.4
        return self.table.log(group.slice, *blocks, number=group.number, group=name)

    def some_group(self) -> str | None:
        return self.random.choice([*self.groups]) if self.groups else None

    def write(self) -> None:
        self.roll_back()
        if (name := self.some_group()) is not None:
            blocks, self.groups[name].rows = self.blocks(name)
            self.done(self.append(name, blocks))

    def fail(self) -> None:
        """A write that dies, with what it has put by then."""
        self.roll_back()
        if (name := self.some_group()) is not None:
            self.table.begin(self.time)
            self.append(name, self.blocks(name)[0])
            self.failed.append((self.time, name))
            if self.random.random() < 0.3:
                self.table.base(self.time, {"never": 1}, f"never{self.time}")

    def roll_back(self) -> None:
        """Undo what failed, as each write does first."""
        for time, name in self.failed:
            if name in self.groups:
                self.append(name, [rollback_block(self.time - 5, time)])
            self.table.store.delete(f"never{time}_1-2-3_202401010000{time:05}.parquet")
            self.table.forget(time)
        self.failed = []

    def plan(self) -> None:
        self.roll_back()
        name = self.some_group()
        if name is not None and self.groups[name].planned is None:
            group = self.groups[name]
            self.table.plan(self.time, group.slice, name)
            self.plans[self.time], group.planned = name, dict(group.rows)
            group.slice, group.number = self.time, 1

    def compact(self) -> None:
        for number, (planned, name) in enumerate(self.plans.items()):
            rows = self.groups[name].planned
            assert rows is not None
            base = self.table.base(planned, rows, name)
            self.table.commit(planned, base, action="commit", completed=self.time + 2 + number)
            self.active = sorted([*self.active, planned])
            self.groups[name].planned = None
            self.clean(name, planned)
        self.plans = {}

    def clean(self, name: str, slice_: int) -> None:
        """Remove what a compaction has superseded, or leave it for now."""
        if self.random.random() < 0.5 and not self.keeps_all:
            for stat in self.table.store.walk(""):
                if f"{name}_" in stat.path and f"_202401010000{slice_:05}" not in stat.path:
                    self.table.store.delete(stat.path)

    def archive(self) -> None:
        self.roll_back()
        self.compact()
        if not self.keeps_all:
            self.table.forget(*self.active[:-2])
            self.active = self.active[-2:]

    def replace(self) -> None:
        self.roll_back()
        self.compact()
        if (name := self.some_group()) is not None:
            new, rows = f"r{self.time}", {f"r{self.time}-0": self.time}
            self.done(self.table.base(self.time, rows, new), action="replacecommit", replaced=(name,))
            for stat in self.table.store.walk(""):  # so that it may be archived
                if f"{name}_" in stat.path and not self.keeps_all:
                    self.table.store.delete(stat.path)
            del self.groups[name]
            self.groups[new] = Group(self.time, 1, rows)

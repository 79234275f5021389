"""Updates of one row by many processes are exact, also where processes are killed and repeat what they tried."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import ClassVar

import pyarrow as pa
import pytest

from crdt_mor import Opening, Table
from tests import waiting
from tests.crash.scene import Scene
from tests.crash.updating import SCHEMA, SHARED
from tests.interop.readers import hudi_rs, ours
from tests.tiers import long, slow

EXPIRY_MS = 3_000


@dataclass
class Updating(Scene):
    """A table of plain numbers, and the processes that add to them. kills: how many were killed."""

    module: ClassVar[str] = "tests.crash.updating"
    kills: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "table"
        expiry = timedelta(milliseconds=self.expiry_ms)
        self.table = Table.create(self.path, SCHEMA, key="id", buckets=2, opening=Opening(writer_expiry=expiry))

    def run(self, names: list[str], commits: int, kills: int, random: Random) -> None:
        """All processes add so many times; some are killed at random moments, and started again at once."""
        self.table.upsert(pa.table({"id": [SHARED, *names], "n": [0] * (len(names) + 1)}, schema=SCHEMA))
        for name in names:
            self.start("update", name, str(commits))
        for _ in range(kills):
            victim = random.choice(names)
            self.wait_for("work", partial(self.is_at_work, victim, len(self.log(victim))))
            waiting.let_run(random.random() * 0.02)
            if self.workers[victim].poll() is None:
                self.kill(victim)
                self.kills += 1
                self.start("update", victim, str(commits))
        self.wait_for("end", self.have_ended, waiting.PATIENCE_S * 5)
        self.end()

    def is_at_work(self, name: str, seen: int) -> bool:
        """Whether a process has noted more than it had, or has done all."""
        return len(self.log(name)) > seen or self.workers[name].poll() is not None

    def have_ended(self) -> bool:
        """Whether all processes have done all."""
        return all(worker.poll() == 0 for worker in self.workers.values())


@pytest.mark.parametrize(
    ("processes", "commits", "kills"), [slow(4, 15, 0), slow(4, 15, 12), long(8, 10, 4), long(8, 100, 100)]
)
def test_every_update_of_one_row_counts_once(tmp_path: Path, processes: int, commits: int, kills: int) -> None:
    scene = Updating(tmp_path, EXPIRY_MS)
    names = [f"u{number}" for number in range(processes)]
    try:
        scene.run(names, commits, kills, Random(1))
    finally:
        scene.end()
    rows = dict(scene.table.scan().to_polars().rows())
    assert rows == {SHARED: processes * commits, **dict.fromkeys(names, commits)}
    assert scene.kills >= kills // 2
    scene.give_up_the_dead()
    scene.table.maintenance.compact()
    assert dict(scene.table.scan().to_polars().rows()) == rows
    assert hudi_rs(scene.path) == ours(scene.table)

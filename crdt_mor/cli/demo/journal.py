"""The journals: the batches that each process wrote, with the times of their commits.

The table is checked against them, so this module knows nothing about storage or merges.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from crdt_mor import Commit
from crdt_mor.cli.demo.story import seconds


@dataclass(frozen=True, slots=True)
class Entry:
    requested_at: str
    completed_at: str
    process: str
    what: str
    path: Path

    @property
    def begin(self) -> float:
        return seconds(self.requested_at)

    @property
    def end(self) -> float:
        return seconds(self.completed_at)

    def batch(self) -> pl.DataFrame:
        return pl.read_ipc(self.path)

    def overlaps(self, other: Entry) -> bool:
        return self.requested_at < other.completed_at and other.requested_at < self.completed_at


def note(folder: Path, process: str, what: str, commit: Commit, batch: pl.DataFrame) -> None:
    batch.write_ipc(folder / f"{commit.requested_at}_{commit.completed_at}_{process}_{what}.arrow", compression="lz4")


def read(folder: Path) -> list[Entry]:
    result = []
    for path in sorted(folder.glob("*.arrow")):
        requested_at, completed_at, process, what = path.stem.split("_", 3)
        result.append(Entry(requested_at, completed_at, process, what, path))
    return result

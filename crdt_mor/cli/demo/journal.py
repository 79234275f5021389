"""What each process says it wrote: the batch itself, beside the times of its commit.

The table is checked against these, so nothing here knows how the table stores or merges. One Arrow file a commit; its
name holds the times, the process and a word on what it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from crdt_mor import Commit
from crdt_mor.cli.demo.story import seconds


@dataclass(frozen=True, slots=True)
class Entry:
    """One commit of one process."""

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
        """The rows that were written, with the columns that the commit wrote."""
        return pl.read_ipc(self.path)

    def overlaps(self, other: Entry) -> bool:
        """Whether both were under way at some moment."""
        return self.requested_at < other.completed_at and other.requested_at < self.completed_at


def note(folder: Path, process: str, what: str, commit: Commit, batch: pl.DataFrame) -> None:
    """Note a commit."""
    batch.write_ipc(folder / f"{commit.requested_at}_{commit.completed_at}_{process}_{what}.arrow", compression="lz4")


def read(folder: Path) -> list[Entry]:
    """All entries, in requested order."""
    result = []
    for path in sorted(folder.glob("*.arrow")):
        requested_at, completed_at, process, what = path.stem.split("_", 3)
        result.append(Entry(requested_at, completed_at, process, what, path))
    return result

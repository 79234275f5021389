"""The overlaps of a run, from the journals' times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from crdt_mor.cli.demo.journal import Entry
from crdt_mor.cli.demo.story import KEY, seconds


@dataclass(frozen=True, slots=True)
class Compaction:
    barrier: str
    completed_at: str

    @property
    def begin(self) -> float:
        return seconds(self.barrier)

    @property
    def end(self) -> float:
        return seconds(self.completed_at)


@dataclass(frozen=True, slots=True)
class Overlaps:
    commits: int
    overlapping: int  # commits that overlapped another
    most_at_once: int
    compactions: int
    across_compactions: int  # commits open across a compaction
    shared_rows: int  # rows of several processes
    overtaken_cells: int  # plain tail numbers that lost to a later encryption


def count(entries: Sequence[Entry], compactions: Sequence[Compaction]) -> Overlaps:
    return Overlaps(
        commits=len(entries),
        overlapping=sum(any(entry.overlaps(other) for other in entries if other is not entry) for entry in entries),
        most_at_once=_most_at_once(entries),
        compactions=len(compactions),
        across_compactions=sum(bool(crossed(entry, compactions)) for entry in entries),
        shared_rows=_shared_rows(entries),
        overtaken_cells=sum(_overtaken(entry, later) for entry, later in overtakings(entries)),
    )


def crossed(entry: Entry, compactions: Sequence[Compaction]) -> list[Compaction]:
    return [c for c in compactions if entry.requested_at < c.barrier and c.completed_at < entry.completed_at]


def overtakings(entries: Sequence[Entry]) -> list[tuple[Entry, Entry]]:
    late = [entry for entry in entries if entry.what.startswith("late-")]
    passes = [entry for entry in entries if entry.process == "encrypt"]
    return [
        (slow, quick)
        for slow in late
        for quick in passes
        if slow.requested_at < quick.requested_at and quick.completed_at < slow.completed_at
    ]


def _overtaken(slow: Entry, quick: Entry) -> int:
    return slow.batch().join(quick.batch(), on=KEY, how="semi")["tailnum"].count()


def _most_at_once(entries: Sequence[Entry]) -> int:
    steps = sorted([(entry.requested_at, 1) for entry in entries] + [(entry.completed_at, -1) for entry in entries])
    most = now = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


def _shared_rows(entries: Sequence[Entry]) -> int:
    writers = pl.concat([entry.batch().select(KEY).with_columns(process=pl.lit(entry.process)) for entry in entries])
    return writers.group_by(KEY).agg(pl.col("process").n_unique()).filter(pl.col("process") > 1).height

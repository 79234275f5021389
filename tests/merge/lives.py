"""The life of a file slice: commits that arrive in any order, and compactions beside the writes that are pending."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import NamedTuple

import polars as pl

from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge.blocks import COMMIT_TIME, RECORD_KEY, Columns, DataBlock, DeleteBlock, Slice
from crdt_mor.merge.compaction import compact_logs, compact_stable
from crdt_mor.merge.kernel import merge
from crdt_mor.merge.rule import MergeRule
from tests.tiers import long, slow

LENGTHS = [(2, ("", "base", "logs")), slow(3, ("", "base", "logs")), long(4, ("", "base"))]
"""Lengths of histories, and the compactions after each arrival."""


class Event(NamedTuple):
    """A row that gives columns, a tombstone, or a plain delete, which has no ordering value."""

    kind: str
    lsn: int = 0
    columns: tuple[str, ...] = ()


History = tuple[Event, ...]
Block = DataBlock | DeleteBlock
Row = tuple[int, str | None, str | None]


def stamp(time: int) -> str:
    return f"{time:017d}"


class Life:
    """A file slice. Its commits arrive in turn."""

    def __init__(self, commits: Sequence[Sequence[Block]], rule: MergeRule, columns: Columns) -> None:
        self.commits, self.rule, self.columns = commits, rule, columns
        self.pending = {*range(len(self.commits))}
        self.files = Slice()

    def arrive(self, time: int) -> None:
        self.pending.remove(time)
        blocks = sorted([*self.files.blocks, *self.commits[time]], key=lambda block: block.instant)
        self.files = Slice(self.files.base, self.files.base_latest, tuple(blocks))

    def compact(self, kind: str) -> None:
        pending = [stamp(time) for time in sorted(self.pending)]
        if kind == "logs":
            carry = compact_logs(self.files, self.rule, self.columns, pending)
            assert carry is not None
            self.files = Slice(self.files.base, self.files.base_latest, tuple(carry))
        elif kind == "base":
            compacted = compact_stable(self.files, self.rule, self.columns, pending)
            rows, out = pl.concat(part() for part in compacted.parts), io.BytesIO()
            rows.write_parquet(out)
            base = ParquetSource.in_memory(out.getvalue())
            self.files = Slice(base, str(rows[COMMIT_TIME].max() or ""), tuple(compacted.carry()))

    def rows(self, order: str) -> dict[int, Row]:
        frames = merge(self.files, self.rule, self.columns, select=[RECORD_KEY, order, "a", "b"])
        return {int(key): (lsn, a, b) for frame in frames for key, lsn, a, b in frame.rows()}


@dataclass(frozen=True)
class Case:
    """A merge rule and its meaning: the row of a history in the order of requested times.

    blocks_of: the log blocks of the commit at a time. order: the ordering column.
    """

    events: Sequence[Event]
    meaning: Callable[[History], Row | None]
    blocks_of: Callable[[Sequence[History], int], Iterable[Block]]
    rule: MergeRule
    columns: Columns
    order: str

    def check(self, length: int, moments: Sequence[str]) -> None:
        """Compare all histories, in every order of arrival and with every choice of compactions."""
        histories = list(product(self.events, repeat=length))
        expected = {key: row for key, history in enumerate(histories) if (row := self.meaning(history)) is not None}
        commits = [[*self.blocks_of(histories, time)] for time in range(length)]
        for arrival in permutations(range(length)):
            for compactions in product(moments, repeat=length):
                life = Life(commits, self.rule, self.columns)
                for time, kind in zip(arrival, compactions, strict=True):
                    life.arrive(time)
                    life.compact(kind)
                assert life.rows(self.order) == expected, f"arrival={arrival} compactions={compactions}"

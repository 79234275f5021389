"""The tables that are measured: one shape each, made through the public API alone.

load      `rows` rows in one append; compacted, unless the shape says never
commits   `logs` of them, each `percent` % of the rows: 90 % updates, 5 % inserts, 5 % deletes, in one transaction
straggler one more transaction of 1 % of the rows, begun before half of the commits and a compaction of them, and
          committed after it ("late"); or begun after that compaction ("timely"): the same table without a straggler
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

import crdt_mor as mor
from crdt_mor.payloads import Counter

Numbers = npt.NDArray[np.int64]

TEN = pa.schema(
    [
        ("id", pa.string()),
        *((name, pa.int64()) for name in ("stamp", "n0", "n1")),
        *((name, pa.float64()) for name in ("x0", "x1", "x2")),
        *((name, pa.string()) for name in ("city", "color", "note")),
    ]
)
MORE = (("n2", pa.int64()), ("n3", pa.int64()), ("x3", pa.float64()), ("x4", pa.float64()), ("tag", pa.string()))
DISTINCT = {"city": 500, "color": 20, "tag": 5000}
"""How many values the columns of repeating text have; `note` differs in every row."""

PATCHED = ("id", "n0", "x0", "city")
"""What an update gives of a row in a table of partial updates."""


@dataclass(frozen=True)
class World:
    """The shape of a table."""

    rows: int = 1_000_000
    columns: Literal[10, 15] = 10
    logs: int = 10
    percent: int = 1
    keys: Literal["padded", "uuid"] = "padded"
    spread: Literal["uniform", "skewed"] = "uniform"
    groups: int = 1
    partitions: int = 0
    merge: Literal["latest", "ordering", "partial", "counter"] = "latest"
    straggler: Literal["", "late", "timely"] = ""
    compacted: bool = True

    @property
    def schema(self) -> pa.Schema:
        """The user's columns; the first is the key, and `part` names the partition."""
        more = [*MORE] * (self.columns == 15) + [("part", pa.string())] * (self.partitions > 0)
        return pa.schema([*TEN, *(pa.field(*field) for field in more)])

    def data(self, numbers: Numbers, seed: int) -> pa.Table:
        """Rows with the keys of these numbers."""
        chance, count = np.random.default_rng(seed), len(numbers)
        made: dict[str, pl.Series] = {}
        for field in self.schema:
            if field.name == "id":
                values = key_text(numbers, self.keys)
            elif field.name == "part":
                values = pl.Series(numbers % self.partitions).cast(pl.String)
            elif field.name in DISTINCT:
                values = pl.Series(chance.integers(0, DISTINCT[field.name], count)).cast(pl.String)
            elif pa.types.is_string(field.type):
                values = pl.Series(chance.integers(0, 1 << 50, count)).cast(pl.String)
            elif pa.types.is_integer(field.type):
                values = pl.Series(chance.integers(0, 1 << 40, count))
            else:
                values = pl.Series(chance.random(count))
            made[field.name] = values
        return pl.DataFrame(made).to_arrow().cast(self.schema)

    def picked(self, chance: np.random.Generator, count: int) -> Numbers:
        """So many different keys of the load: all alike, or most of them among the first."""
        if self.spread == "uniform":
            return chance.choice(self.rows, count, replace=False).astype(np.int64)
        drawn = (self.rows * chance.random(12 * count) ** 4).astype(np.int64)
        return chance.permutation(np.unique(drawn))[:count]


def key_text(numbers: Numbers, kind: str) -> pl.Series:
    """Keys as text: ten digits, or the text of a UUID."""
    if kind == "padded":
        return pl.Series(numbers).cast(pl.String).str.zfill(10)
    halves = [_mixed(numbers.astype(np.uint64) * np.uint64(2) + np.uint64(half)) for half in (0, 1)]
    data = np.stack(halves, axis=1).tobytes()
    sixteen = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(numbers), [None, pa.py_buffer(data)])
    text = pl.Series(pl.from_arrow(sixteen.cast(pa.binary()))).bin.encode("hex").to_frame("k")
    cuts = [(0, 8), (8, 4), (12, 4), (16, 4), (20, 12)]
    return text.select(pl.concat_str([pl.col("k").str.slice(*cut) for cut in cuts], separator="-"))["k"]


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """splitmix64: a permutation of the numbers that looks like chance."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def create(world: World, path: Path) -> mor.Table:
    """The table, still empty, with upkeep by `maintain` alone."""
    merges: dict[str, Any] = {"partial": mor.PartialUpdate(), "counter": {"n0": Counter()}}
    ordering = "stamp" if world.merge == "ordering" else None
    table = mor.Table.create(
        path, world.schema, key="id", buckets=world.groups, partition_by=("part",) * (world.partitions > 0),
        ordering=ordering, merge=merges.get(world.merge),
    )  # fmt: skip
    table.set_properties({"crdt_mor.maintain": "off"})
    return table


def change(world: World, tx: mor.Transaction, number: int, count: int) -> None:
    """What one commit does, `count` rows of it."""
    chance = np.random.default_rng(1000 + number)
    twentieth = max(1, count // 20)
    keys = world.picked(chance, count - twentieth)
    updated, deleted = keys[twentieth:], keys[:twentieth]
    inserted = world.rows + number * twentieth + np.arange(twentieth)
    updates, inserts = world.data(updated, 2 * number + 1), world.data(inserted, 2 * number + 2)
    if world.merge == "partial":
        tx.upsert(updates.select(PATCHED))
        tx.upsert(inserts)
    else:
        tx.upsert(pa.concat_tables([updates, inserts]))
    named = ["id", *["stamp"] * (world.merge == "ordering"), *["part"] * (world.partitions > 0)]
    tx.delete(world.data(deleted, 5000 + number).select(named))


def build(world: World, path: Path) -> None:
    """Make the table."""
    table = create(world, path)
    table.append(world.data(np.arange(world.rows), 0))
    if world.compacted:
        table.maintenance.compact()
    first = world.logs // 2 if world.straggler else 0
    with ExitStack() as stack:
        straggler = table.transaction()
        if world.straggler == "late":
            stack.enter_context(straggler)
        commits(world, table, range(first))
        if world.straggler:
            table.maintenance.compact()
            if world.straggler == "timely":
                stack.enter_context(straggler)
            change(world, straggler, world.logs, world.rows // 100)
    commits(world, table, range(first, world.logs))


def commits(world: World, table: mor.Table, numbers: range) -> None:
    """The ordinary commits of these numbers."""
    for number in numbers:
        with table.transaction() as tx:
            change(world, tx, number, world.rows * world.percent // 100)


class Worlds:
    """Tables by shape, each made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[World, Path] = {}

    def path(self, world: World) -> Path:
        """Where the table of this shape is."""
        if world not in self._made:
            path = self._folder / f"world{len(self._made)}"
            build(world, path)
            self._made[world] = path
        return self._made[world]

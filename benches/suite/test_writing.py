"""The writer's side: from Arrow to committed log blocks, and compaction. No time is asserted.

write       one upsert of rows in random order into an empty table: hashed, sorted, encoded, synced and committed;
            beside polars sorting the same Arrow table by its key and writing one Parquet file, with snappy as log
            blocks have it
compaction  plan and execute, of a fresh copy of the table in each round; its floor: the same bytes decoded, all
            columns, and as many rows encoded with zstd at level 1 as base files have it, by polars or by pyarrow

Our files are synced, as a commit must, and the floor's are not. Before each of our rounds everything older is synced,
so that we do not sync what the peers left behind.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import crdt_mor as mor
from benches.suite.conftest import Scale
from benches.suite.rounds import SLOW, Bar, Peer, measure, write_down
from benches.suite.sources import Sources
from benches.suite.worlds import World, create
from crdt_mor.format.base_file import repeating_columns, write_parquet
from crdt_mor.merge.kernel import to_arrow


@dataclass(frozen=True)
class Case:
    """A table, and what writing it may cost."""

    name: str
    world: World = field(default_factory=World)
    percent: int = 100
    bars: Mapping[str, Bar] = field(default_factory=dict)


OF_POLARS = {"polars, sorted": Bar(at_least=0.7)}
WRITES = [
    Case("write-1M-1group", bars=OF_POLARS),
    Case("write-1M-4groups", World(groups=4), bars=OF_POLARS),
    Case("write-1M-8groups", World(groups=8), bars=OF_POLARS),
    Case("write-1M-uuid", World(keys="uuid"), bars=OF_POLARS),
    Case("write-100k-1group", percent=10, bars=OF_POLARS),
]
COMPACTIONS = [
    Case("compact-1M-10x1%-1group", bars={"floor": Bar(1.6)}),
    Case("compact-1M-10x1%-8groups", World(groups=8), bars={"floor": Bar(1.6)}),
    Case("compact-1M-10x5%-1group", World(percent=5), bars={"floor": Bar(1.6)}),
    Case("compact-1M-10x1%-ordering", World(merge="ordering"), bars={"floor": Bar(1.6)}),
]


def sorted_file(data: pa.Table, path: Path, sync: bool) -> None:
    """polars writing the rows sorted by their key."""
    frame = pl.DataFrame(pl.from_arrow(data)).sort("id")
    with path.open("wb") as file:
        frame.write_parquet(file, compression="snappy", statistics=False, row_group_size=131_072)
        if sync:
            file.flush()
            os.fsync(file.fileno())


@pytest.mark.parametrize("case", WRITES, ids=lambda case: case.name)
def test_write(case: Case, scale: Scale, benchmark: Any, tmp_path: Path) -> None:
    world = scale.sized(case.world)
    count = world.rows * case.percent // 100
    data = world.data(np.random.default_rng(3).permutation(count), 0)
    target = tmp_path / "table"

    def fresh() -> None:
        create(world, target)
        os.sync()

    def ours() -> None:
        mor.Table(target).upsert(data)

    fresh()
    ours()
    written = mor.Table(target).scan().to_polars()
    assert written.sort("id").equals(pl.DataFrame(pl.from_arrow(data)).sort("id"))
    shutil.rmtree(target)
    peers = {
        "polars, sorted": Peer({"": lambda: sorted_file(data, tmp_path / "sorted.parquet", sync=False)}),
        "polars, synced": Peer({"": lambda: sorted_file(data, tmp_path / "synced.parquet", sync=True)}, SLOW),
    }
    times = measure(benchmark, ours, peers, scale.small, before=fresh, after=lambda: shutil.rmtree(target))
    bars = scale.bars(case.bars)
    write_down(benchmark, times, peers, bars, kind="write", case=case.name, rows=count, bytes=data.nbytes)


Encode = Callable[[pl.DataFrame], bytes | memoryview]


def read_and_write(sources: Sources, rows: Mapping[str, int], encode: Encode, to: Path) -> None:
    """Decode all that each file group has, and write as many rows as its compaction does."""
    for group in sources.groups:
        files = [sources.bases[group]] if group in sources.bases else []
        files += [block.file for block in sources.blocks if block.group == group]
        frame = pl.scan_parquet(files, glob=False).collect()
        (to / group).write_bytes(encode(frame.head(rows[group])))


def by_polars(frame: pl.DataFrame) -> bytes:
    """A file like a base file, by polars."""
    import io

    sink = io.BytesIO()
    frame.write_parquet(sink, compression="zstd", compression_level=1, row_group_size=131_072)
    return sink.getvalue()


def by_pyarrow(frame: pl.DataFrame) -> bytes | memoryview:
    """A base file as tables have them."""
    return write_parquet(to_arrow(frame), repeating=repeating_columns(frame))


@pytest.mark.parametrize("case", COMPACTIONS, ids=lambda case: case.name)
def test_compaction(case: Case, scale: Scale, benchmark: Any, tmp_path: Path) -> None:
    sources = scale.sources(case.world)
    target, parts = tmp_path / "table", tmp_path / "parts"
    parts.mkdir()

    def fresh() -> None:
        shutil.copytree(sources.table, target)
        os.sync()

    def ours() -> None:
        mor.Table(target).maintenance.compact()

    fresh()
    before = mor.Table(target).scan().to_polars().sort("id")
    ours()
    after = mor.Table(target)
    assert after.scan().to_polars().sort("id").equals(before), "compaction changed the rows"
    rows = {row["file_id"]: row["rows"] for row in after.inspect.files().to_pylist() if row["kind"] == "base"}
    assert sum(rows.values()) == before.height
    shutil.rmtree(target)
    ways = {
        encode.__name__: partial(read_and_write, sources, rows, encode, parts) for encode in (by_polars, by_pyarrow)
    }
    peers = {"floor": Peer(ways)}
    times = measure(benchmark, ours, peers, scale.small, before=fresh, after=lambda: shutil.rmtree(target))
    count = sum(rows.values())
    write_down(benchmark, times, peers, scale.bars(case.bars), kind="compaction", case=case.name, rows=count)

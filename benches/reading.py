"""What a read need not read: rows, columns, buckets, memory.

    a condition    that 1 % of the rows meet, on one file slice of 5,000,000 rows and ten log files: rows side by side
                   in the base file (statistics skip row groups), and scattered all over it (they cannot)
    columns        2 of 15 of the same slice, and all
    a key          looked up in a table of 16 buckets
    changes        after the last of 100 commits, beside the bytes of that commit and of the table
    memory         at its peak while tables of 8 and of 32 file slices are streamed, in a process of its own

The floor is polars scanning the same base file and log blocks, with the same condition and columns, merging nothing.

    python benches/reading.py          # about two minutes
    python benches/reading.py --small
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pyarrow as pa

import crdt_mor as mor
from benches.suite import timing
from crdt_mor.format.log import BlockKind, read_log
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge import base_rows, contributions
from crdt_mor.store.local import LocalStore

ROUNDS = 7
LOGS = 10
NUMBERS, TEXTS = 8, 4
COLUMNS = ["id", "at", "chance", *(f"n{i}" for i in range(NUMBERS)), *(f"t{i}" for i in range(TEXTS))]
SCHEMA = pa.schema([(name, pa.string() if name[0] == "t" else pa.int64()) for name in COLUMNS])
CHANCE = np.random.default_rng(7)
MIB = 1 << 20


def rows(ids: np.ndarray) -> pl.DataFrame:
    """Rows of 15 columns: `at` grows with the key, `chance` is evenly spread over 0 to 9999."""
    count = len(ids)
    return pl.DataFrame(
        {
            "id": ids,
            "at": ids * 10,
            "chance": CHANCE.integers(0, 10_000, count),
            **{f"n{i}": CHANCE.integers(0, 1 << 40, count) for i in range(NUMBERS)},
            **{f"t{i}": pl.Series(CHANCE.integers(0, 10**6, count)).cast(pl.String) for i in range(TEXTS)},
        }
    )


def table_of(path: Path, count: int, buckets: int, touched: int) -> mor.Table:
    """`count` rows compacted, then ten commits that update `touched` rows each."""
    table = mor.Table.create(path, SCHEMA, key="id", buckets=buckets)
    table.set_properties({"crdt_mor.maintain": "off"})
    for part in np.array_split(np.arange(count), 5):
        table.upsert(rows(part))
    table.maintenance.compact()
    for _ in range(LOGS):
        table.upsert(rows(np.sort(CHANCE.choice(count, touched, replace=False))))
    return table


def floor_of(table: mor.Table, folder: Path) -> Callable[[pl.Expr | None, Sequence[str]], pl.DataFrame]:
    """A scan of all base files and log blocks as they are, the blocks as files of their own."""
    sources: list[Path] = []
    for number, file in enumerate(table.inspect.files().to_pylist()):
        path = Path(table.uri) / file["path"]
        if file["kind"] == "base":
            sources.append(path)
            continue
        for block in read_log(path.read_bytes(), str(path)):
            if block.kind is BlockKind.PARQUET:
                sources.append(folder / f"{number}-{block.offset}.parquet")
                sources[-1].write_bytes(block.content)

    def scan(condition: pl.Expr | None, columns: Sequence[str]) -> pl.DataFrame:
        rows = pl.scan_parquet(sources, glob=False)
        return (rows if condition is None else rows.filter(condition)).select(columns).collect()

    return scan


def seconds(*works: Callable[[], object]) -> list[float]:
    found: list[float] = timing.seconds(*works, rounds=ROUNDS, chance=CHANCE)
    return found


def conditions_and_columns(folder: Path, count: int) -> None:
    """One file slice with ten logs, against the floor."""
    path = folder / "slice"
    table = table_of(path, count, 1, count // 250)
    floor = floor_of(table, folder)
    side_by_side = pl.col("at").is_between(count * 4, count * 4 + count // 10)
    print(f"{count:,} rows of {len(COLUMNS)} columns in one file slice, {LOGS} logs of {count // 250:,} rows\n")
    print(f"{'':32} {'rows':>10} {'ours ms':>9} {'floor ms':>9} {'ratio':>7}")
    cases: dict[str, tuple[pl.Expr | None, list[str]]] = {
        "1 % of the rows, side by side": (side_by_side, COLUMNS),
        "1 % of the rows, scattered": (pl.col("chance") < 100, COLUMNS),
        "1 %, scattered, 3 of 15 columns": (pl.col("chance") < 100, ["id", "n0", "t0"]),
        "2 of 15 columns": (None, ["id", "n0"]),
        "all columns": (None, COLUMNS),
    }
    for name, (condition, columns) in cases.items():
        scan = table.scan(columns=columns, filter=condition)
        height = scan.to_polars().height
        ours, theirs = seconds(scan.to_polars, lambda c=condition, n=columns: floor(c, n))  # type: ignore[misc]
        print(f"{name:32} {height:10,} {1e3 * ours:9.1f} {1e3 * theirs:9.1f} {ours / theirs:6.2f}x")
    shutil.rmtree(path)


def one_key(folder: Path, count: int) -> None:
    """A row by its key, among 16 buckets."""
    table = table_of(folder / "keys", count, 16, count // 250)
    scan = table.scan(filter=pl.col("id") == count // 2)
    assert scan.count() == 1
    said = scan.explain()
    opened = said.merging.slices + said.passing.slices
    size = said.merging.bytes + said.passing.bytes
    found, every = seconds(scan.to_polars, lambda: table.scan(filter=pl.col("id") + 0 == count // 2).to_polars())
    print(f"\none key of {count:,} in 16 buckets with {LOGS} logs each")
    print(f"  file slices opened   {opened} of {said.total.slices}")
    print(f"  bytes of their files {size:,} of {said.total.bytes:,}")
    print(f"  ms                   {1e3 * found:.1f}; where the key cannot be told, {1e3 * every:.1f}")


def changes(folder: Path, count: int) -> None:
    """What the last of 100 small commits changed; bytes are those of the files that are opened."""
    path = folder / "changes"
    table = table_of(path, count, 4, count // 1000)
    for _ in range(100 - LOGS):
        last = table.upsert(rows(np.sort(CHANCE.choice(count, count // 1000, replace=False))))
    instants = table.inspect.timeline().sort_by("completed_at").to_pylist()
    since = instants[-2]["completed_at"]
    opened: list[int] = []
    with counting(opened):
        height = table.changes(since).to_arrow().num_rows
    assert height == last.rows == count // 1000
    taken, images, every = seconds(
        lambda: mor.Table(path).changes(since).to_arrow(),
        lambda: mor.Table(path).changes(since, images=True).to_arrow(),
        lambda: mor.Table(path).scan().to_arrow(),
    )
    size = sum(table.inspect.files()["bytes"].to_pylist())
    print(f"\nthe last of 100 commits of {height:,} rows each, on {count:,} rows in 4 file groups")
    print(f"  bytes opened         {sum(opened):,}; the commit has {instants[-1]['bytes']:,}, the table {size:,}")
    taken, images, every = 1e3 * taken, 1e3 * images, 1e3 * every
    print(f"  ms                   {taken:.1f}; with images {images:.1f}; the whole table {every:.1f}")
    shutil.rmtree(path)


@contextmanager
def counting(opened: list[int]) -> Iterator[None]:
    """Note the sizes of the data files that are opened inside the block, base files as a whole."""
    view, scan = LocalStore.view, contributions.scan

    def viewing(store: LocalStore, path: str) -> memoryview | None:
        data = view(store, path)
        opened.append(len(data or b""))
        return data

    def scanning(source: ParquetSource, columns: Any) -> pl.LazyFrame:
        opened.extend(Path(source.address).stat().st_size for source in [source] if source.address is not None)
        return scan(source, columns)

    with patch.object(LocalStore, "view", viewing), patch.object(base_rows, "scan", scanning):
        yield


def memory(folder: Path, count: int) -> None:
    """Tables of 8 and of 32 file slices of one size, each streamed by a process of its own."""
    print("\nmemory at its peak while a table is streamed, above that of the imports")
    for slices in (8, 32):
        path = folder / f"memory{slices}"
        table = table_of(path, count * slices, slices, count // 16)
        decoded = sum(frame.estimated_size() for frame in table.scan().frames())
        asked = [sys.executable, __file__, "--stream", str(path)]
        done = subprocess.run(asked, stdout=subprocess.PIPE, check=True, text=True)
        height, before, peak = map(int, done.stdout.split())
        assert height == count * slices
        print(
            f"  {slices:2} file slices, {height:9,} rows: {(peak - before) / MIB:5,.0f} MiB of "
            f"{decoded / MIB:5,.0f} MiB decoded"
        )
        shutil.rmtree(path)


def stream(path: str) -> None:
    """What the process of `memory` does: it prints rows, and its peaks before and after in bytes."""
    table = mor.Table(path)
    table.scan(limit=1).to_arrow()
    before = peak_bytes()
    height = sum(batch.num_rows for batch in table.scan().to_reader())
    print(height, before, peak_bytes())


def peak_bytes() -> int:
    """The most memory that this process ever had."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a size of seconds")
    parser.add_argument("--stream", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.stream:
        stream(arguments.stream)
        return
    count = 100_000 if arguments.small else 5_000_000
    with tempfile.TemporaryDirectory() as folder:
        conditions_and_columns(Path(folder), count)
        one_key(Path(folder), count // 5)
        changes(Path(folder), count // 5)
        memory(Path(folder), count // 25)


if __name__ == "__main__":
    main()

"""Cost of a mirror: the refresh after commits to 1, 10 and all file slices, beside other ways to the same rows.

The table has a base file per bucket and no logs; then a commit of one row touches a slice. Peers in the same run: a
full compaction, and the snapshot written anew as Parquet. CPU seconds are of this process, the median of three tables.

    python benches/mirror.py [--slices 1000] [--rows 1000000]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
import pyarrow.parquet as pq

import crdt_mor as mor

TIMES = 3

Format = Literal["delta", "iceberg"]


@dataclass(frozen=True)
class Cost:
    """CPU seconds, and new objects and bytes."""

    cpu_s: float
    objects: int
    size: int


def rows_of(count: int) -> pl.DataFrame:
    ids = np.arange(count)
    return pl.DataFrame({"id": ids, "n": ids % 1000, "price": ids / 8, "text": [f"text {n % 500}" for n in ids]})


def table_of(folder: Path, slices: int, rows: pl.DataFrame, touched: int) -> mor.Table:
    """A table with logs in so many slices. Both mirrors show it without them."""
    table = mor.Table.create(str(folder), rows.schema, key="id", buckets=slices)
    table.overwrite(rows)
    table.mirror("delta")
    table.mirror("iceberg")
    while (missing := touched - changed(table)) > 0:
        table.upsert(rows.sample(missing if missing < slices // 2 else rows.height).with_columns(n=pl.lit(-1)))
    return table


def changed(table: mor.Table) -> int:
    files = table.inspect.files()
    return len({file["file_id"] for file in files.to_pylist() if file["kind"] == "log"})


def spent(work: Callable[[], tuple[int, int]]) -> Cost:
    began = time.process_time()
    objects, size = work()
    return Cost(time.process_time() - began, objects, size)


def refreshed(table: mor.Table, format_: Format) -> tuple[int, int]:
    done = table.mirror(format_)
    return done.objects, done.bytes


def compacted(table: mor.Table) -> tuple[int, int]:
    done = table.maintenance.compact()
    return sum(one.file_groups for one in done), sum(one.bytes for one in done)


def written_anew(table: mor.Table, folder: Path) -> tuple[int, int]:
    path = folder / "snapshot.parquet"
    pq.write_table(table.scan().to_arrow(), path, compression="zstd")
    return 1, path.stat().st_size


def measure(slices: int, rows: pl.DataFrame, touched: int) -> dict[str, list[Cost]]:
    found: dict[str, list[Cost]] = {}
    for _ in range(TIMES):
        with tempfile.TemporaryDirectory() as folder:
            table = table_of(Path(folder, "t"), slices, rows, touched)
            ways: dict[str, Callable[[], tuple[int, int]]] = {
                "delta mirror": partial(refreshed, table, "delta"),
                "iceberg mirror": partial(refreshed, table, "iceberg"),
                "snapshot as Parquet": partial(written_anew, table, Path(folder)),
                "full compaction": partial(compacted, table),
            }
            for name, work in ways.items():
                found.setdefault(name, []).append(spent(work))
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--slices", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--small", action="store_true", help="20 slices, 2,000 rows")
    asked = parser.parse_args()
    slices, count = (20, 2_000) if asked.small else (asked.slices, asked.rows)
    rows = rows_of(count)
    print(f"{slices:,} slices, {count:,} rows")
    print(f"{'slices with logs':>16}  {'way':20} {'CPU s':>7} {'objects':>8} {'bytes':>12}")
    for touched in sorted({1, 10, slices}):
        for name, costs in measure(slices, rows, touched).items():
            median = statistics.median(cost.cpu_s for cost in costs)
            print(f"{touched:16,}  {name:20} {median:7.3f} {costs[0].objects:8,} {costs[0].size:12,}")


if __name__ == "__main__":
    main()

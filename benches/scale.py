"""Tables that are larger than those of the suite: many rows, many file groups, and what their compaction costs.

large      20,000,000 rows in 16 file groups under ten logs of 1 %: reads of two columns and of all ten, streamed,
           each reader in a process of its own: seconds, processor time, peak memory above its imports
wide       5,000 file groups of 200 rows: a load, an upsert into every group, opening, a scan, a compaction
compact    4,000,000 rows in 4 file groups under ten logs of 5 %: our compaction of the table, and Hudi's own, in
           Spark, of a copy, where Maven is there to fetch it; megabytes are those of the files that they read
groups     10 to 100,000 partitions of one file group: operations on one partition, the first scan of a process

python benches/scale.py                  # a quarter of an hour, 12 GB of disk
python benches/scale.py --only wide
python benches/scale.py --small
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

import crdt_mor as mor
from benches.scale_groups import groups
from benches.suite import worlds
from benches.suite.memory_probe import ask
from benches.suite.peers import Query
from benches.suite.sources import lay_open
from benches.suite.worlds import World
from tests.interop.readers import HudiSpark, spark_is_possible

PIECE = 2_500_000
"""Rows of a load that are in memory at once."""

READERS = ("ours", "floor", "DuckDB", "hudi-rs")


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("large", "wide", "compact", "groups"))
    parser.add_argument("--small", action="store_true", help="seconds, to see that it runs")
    args = parser.parse_args()
    parts = {"large": large, "wide": wide, "compact": compact, "groups": groups}
    for name, part in parts.items():
        if args.only in (None, name):
            with tempfile.TemporaryDirectory(prefix="scale-") as folder:
                part(Path(folder), args.small)


def large(folder: Path, small: bool) -> None:
    """Reads of a table of many rows."""
    world = World(rows=50_000 if small else 20_000_000, groups=16)
    load(world, folder / "t")
    sources = lay_open(world, folder / "t")
    print(f"\n{world.rows:,} rows, {world.groups} file groups, {world.logs} logs of {world.percent} %\n")
    print("| reader | columns | s | CPU s | peak MiB |\n|---|---|---|---|---|")
    for columns in (("n0", "city"), tuple(world.schema.names)):
        for reader in READERS:
            rounds = [ask(reader, sources, Query(columns, output="batches")) for _ in range(1 if small else 3)]
            best = min(rounds, key=lambda found: found["cpu"])
            figures = f"{best['wall']:.2f} | {best['cpu']:.2f} | {best['peak']:,.0f}"
            print(f"| {reader} | {len(columns)} | {figures} |", flush=True)


def wide(folder: Path, small: bool) -> None:
    """Commits, reads and a compaction of a table of many file groups."""
    groups = 50 if small else 5_000
    world = World(rows=200 * groups, groups=groups, logs=0, compacted=False)
    batch = world.data(np.arange(0, world.rows, 20), 1)
    path = folder / "t"
    print(f"\n{world.rows:,} rows, {groups:,} file groups\n\n| work | s | CPU s |\n|---|---|---|")
    timed("load", lambda: worlds.build(world, path))
    table = mor.Table(path)
    timed(f"upsert of {batch.num_rows:,} rows into every group", lambda: table.upsert(batch))
    timed("open", lambda: mor.Table(path))
    timed("scan, two logs each", lambda: table.scan().to_polars())
    timed("compaction", table.maintenance.compact)
    timed("scan, compacted", lambda: table.scan().to_polars())


def compact(folder: Path, small: bool) -> None:
    """Compactions of two copies of one table, after one of a small table, for which no time is taken."""
    world = World(rows=20_000 if small else 4_000_000, groups=4, percent=5)
    for name, shape in (("warm", replace(world, rows=20_000)), ("ours", world)):
        load(shape, folder / name)
        shutil.copytree(folder / name, folder / f"hudi-{name}")
    read = sum(mor.Table(folder / "ours").inspect.files()["bytes"].to_pylist()) / 1e6
    print(f"\n{world.rows:,} rows, {world.groups} file groups, {world.logs} logs of {world.percent} %, {read:,.0f} MB")
    print("\n| work | s | CPU s |\n|---|---|---|")
    mor.Table(folder / "warm").maintenance.compact()
    wall, cpu = timed("our compaction", mor.Table(folder / "ours").maintenance.compact)
    print(f"\nours: {read / wall:.0f} MB/s, {read / cpu:.0f} MB a second of processor time")
    if not spark_is_possible():
        print("no Maven here to fetch Hudi's Spark bundle with")
        return
    spark = HudiSpark(folder)
    try:
        compact_by_hudi(spark, folder / "hudi-warm")
        start = time.perf_counter()
        compact_by_hudi(spark, folder / "hudi-ours")
        wall = time.perf_counter() - start
    finally:
        spark.close()
    print(f"Hudi's, in Spark with two cores: {wall:.2f} s, {read / wall:.0f} MB/s")
    found = [mor.Table(folder / name).scan().count() for name in ("ours", "hudi-ours")]
    if found[0] != found[1]:
        raise SystemExit(f"the two compactions left different tables. ours={found[0]} hudi={found[1]}")


def compact_by_hudi(spark: HudiSpark, path: Path) -> None:
    """Let Hudi schedule a compaction of a table, and execute it."""
    settings = ["datasource.write.recordkey.field=id", "metadata.enable=false", "compact.inline.max.delta.commits=1"]
    options = ",".join(f"hoodie.{setting}" for setting in settings)
    spark.sql(f"call run_compaction(op => 'scheduleAndExecute', path => '{path}', options => '{options}')")
    if set(mor.Table(path).inspect.files()["kind"].to_pylist()) != {"base"}:
        raise SystemExit(f"Hudi left logs. path={path}")


def load(world: World, path: Path) -> None:
    """The table of a shape, loaded piece by piece, compacted, and changed by its commits."""
    table = worlds.create(world, path)
    for first in range(0, world.rows, PIECE):
        table.append(world.data(np.arange(first, min(first + PIECE, world.rows)), first))
    table.maintenance.compact()
    worlds.commits(world, table, range(world.logs))


def timed(what: str, work: Callable[[], object]) -> tuple[float, float]:
    """Do some work once, print its seconds and its processor time, and return them."""
    wall, cpu = time.perf_counter(), time.process_time()
    done = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    del done
    print(f"| {what} | {wall:.2f} | {cpu:.2f} |", flush=True)
    return wall, cpu


if __name__ == "__main__":
    main()

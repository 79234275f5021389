"""A first load and other writes: what they cost beside a floor and a peer.

The first table is of a first load from a Parquet file: seconds, those of all cores among them, and the most memory.
Each way is a process of its own, which takes the rows from the same file of ten columns, in no order of keys:

    create_from           a table of ours, partitioned by nothing, in four buckets: sorted, made durable, one commit
    create and upsert     the same table by `Table.create` and one upsert, which holds all rows in memory
    polars, unsorted      `scan_parquet(...).sink_parquet(...)`: the floor of anything that decodes and encodes the rows
    polars, sorted        the same by way of `sort(key)`: the floor of anything that leaves files in the order of keys
    delta-rs              `write_deltalake` of the file's batches, where `deltalake` is installed; nothing is sorted

The second one is of writes of rows in memory, and of compactions, each in turns with its floors, in processor time,
with one thread of polars. A floor sorts the rows by their key and encodes the ten columns into as many files, with the
encodings, codec and statistics of ours, by the same writer; it knows nothing of tables. The floor of a compaction
decodes all columns of the same base files and log blocks instead of sorting.

    by polars             sorted by `DataFrame.sort`
    by the best           sorted in the least time that we know, as our writers do it

    python benches/load.py                 # 1,000,000 and 8,000,000 rows; writes of 1,000,000 rows
    python benches/load.py --rows 20000000
    python benches/load.py --only writes
    python benches/load.py --small
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

os.environ["POLARS_MAX_THREADS"] = "1"  # of this process, in which writes are measured; the ways have all cores

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import crdt_mor as mor
from benches.suite.sources import lay_open
from benches.suite.worlds import World, build, create
from crdt_mor.format.base_file import ROW_GROUP_ROWS, incompressible_columns, repeating_columns, write_parquet
from crdt_mor.merge.kernel import text_order
from crdt_mor.write.log_files import BLOCK_ROWS_MAX

WAYS = {
    "create_from": "import crdt_mor as mor; mor.Table.create_from({to!r}, {file!r}, key='id')",
    "create and upsert": (
        "import crdt_mor as mor; rows = mor.read_files({file!r}); mor.Table.create({to!r}, rows, key='id').upsert(rows)"
    ),
    "polars, unsorted": "import polars as pl; pl.scan_parquet({file!r}).sink_parquet({to!r})",
    "polars, sorted": "import polars as pl; pl.scan_parquet({file!r}).sort('id').sink_parquet({to!r})",
    "delta-rs": (
        "import deltalake, pyarrow.dataset as ds; rows = ds.dataset({file!r}).scanner().to_reader(); "
        "deltalake.write_deltalake({to!r}, rows)"
    ),
}
MEASURED = """
import re, time
import numpy, polars, pyarrow, pyarrow.dataset, crdt_mor  # not part of what is measured
most = lambda: int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1])
before = most()
start, cpu = time.perf_counter(), time.process_time()
{work}
print(time.perf_counter() - start, time.process_time() - cpu, most() - before)
"""


def write_source(path: Path, rows: int) -> None:
    """A file of ten columns; its keys are in no order."""
    rng, step = np.random.default_rng(0), 500_000
    numbers = rng.permutation(rows)
    writer: pq.ParquetWriter | None = None
    for start in range(0, rows, step):
        part = numbers[start : start + step]
        frame = pl.DataFrame({"id": part}).select(
            (pl.lit("key-") + pl.col("id").cast(pl.String).str.zfill(12)).alias("id"),
            *(pl.Series(f"i{n}", rng.integers(0, 1_000_000, len(part))) for n in range(3)),
            *(pl.Series(f"f{n}", rng.random(len(part))) for n in range(3)),
            *((pl.col("id") % (1_000 * (n + 1))).cast(pl.String).alias(f"s{n}") for n in range(3)),
        )
        table = frame.to_arrow()
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def loads(counts: list[int]) -> None:
    """The first table: a first load, each way in a process of its own."""
    ways = [way for way in WAYS if way != "delta-rs" or importlib.util.find_spec("deltalake")]
    every_core = {name: value for name, value in os.environ.items() if name != "POLARS_MAX_THREADS"}
    print(f"{'rows':>12}  {'way':<18} {'seconds':>8} {'of CPU':>8} {'rows/s':>10} {'MiB':>6}")
    for rows in counts:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            file = Path(folder, "source.parquet")
            write_source(file, rows)
            for way in ways:
                work = WAYS[way].format(file=str(file), to=str(Path(folder, way.replace(" ", "_").replace(",", ""))))
                code = [sys.executable, "-c", MEASURED.format(work=work)]
                done = subprocess.run(code, check=True, capture_output=True, text=True, env=every_core)
                seconds, cpu, kib = map(float, done.stdout.split())
                figures = f"{seconds:>8.2f} {cpu:>8.2f} {rows / seconds:>10,.0f} {kib / 1024:>6,.0f}"
                print(f"{rows:>12,}  {way:<18} {figures}", flush=True)


# --- writes beside the floor ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Write:
    """A write that is measured. chunks: in how many pieces Arrow has its rows, as a reader of Parquet leaves them."""

    name: str
    does: str
    world: World
    chunks: int = 1


WRITES: Final = (
    Write("upsert into 16 file groups", "upsert", World(groups=16)),
    Write("the same, the rows in 16 chunks", "upsert", World(groups=16), chunks=16),
    Write("append to a new table", "append", World()),
    Write("create_from", "create_from", World(), chunks=16),
    Write("compaction of ten logs of 1 %", "compact", World()),
    Write("compaction of 4 groups, ten logs of 5 %", "compact", World(percent=5, groups=4)),
)
ROUNDS: Final = 7
SMALL_ROWS: Final = 20_000

Sort = Callable[[pl.DataFrame], pl.DataFrame]


def by_best(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows sorted by their key, in the least time that we know."""
    return frame.rechunk()[text_order(frame["id"])]


def by_polars(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows sorted by their key."""
    return frame.sort("id")


def encode(frame: pl.DataFrame, files: int, to: Path, *, log_block: bool) -> None:
    """Sorted rows as so many Parquet files, which are encoded as blocks of logs, or as base files."""
    for number, rows in enumerate(frame.iter_slices(-(-frame.height // files))):
        most = BLOCK_ROWS_MAX if log_block else ROW_GROUP_ROWS
        with Path(to, f"floor{number}").open("wb") as file:
            for part in rows.iter_slices(-(-rows.height // max(1, round(rows.height / most)))):
                repeating = repeating_columns(part)
                numbers = () if log_block else incompressible_columns(part, repeating)
                table = part.to_arrow(compat_level=pl.CompatLevel.newest())
                file.write(write_parquet(table, repeating=repeating, uncompressed=numbers, log_block=log_block))


@dataclass(frozen=True)
class Prepared:
    """A write and its floors. fresh: what is done before each round. size: the bytes of the rows in Arrow."""

    fresh: Callable[[], object]
    ours: Callable[[], object]
    floors: Mapping[str, Callable[[], object]]
    size: int


def prepared_compaction(world: World, folder: Path) -> Prepared:
    """A compaction of a copy of the table. Nothing is left to sort for its floor."""
    source, table = folder / "source", folder / "table"
    build(world, source)
    files = lay_open(world, source)
    paths = [*files.bases.values(), *(block.file for block in files.blocks)]
    shown = mor.Table(source).scan().to_polars().sort("id")

    def floor() -> None:
        pl.scan_parquet(paths, glob=False).collect()
        encode(shown, world.groups, folder, log_block=False)

    def ours() -> object:
        return mor.Table(table).maintenance.compact()

    return Prepared(partial(shutil.copytree, source, table), ours, {"best": floor}, shown.to_arrow().nbytes)


def prepared_write(write: Write, world: World, folder: Path) -> Prepared:
    """A write of rows in any order to a new table."""
    table = folder / "table"
    data = world.data(np.random.default_rng(3).permutation(world.rows), 0)
    step = -(-world.rows // write.chunks)
    rows = pa.concat_tables(pa.Table.from_batches(data.slice(i, step).to_batches()) for i in range(0, world.rows, step))

    def ours() -> object:
        if write.does == "create_from":
            return mor.Table.create_from(table, rows, key="id", buckets=world.groups)
        opened = mor.Table(table)
        return opened.append(rows) if write.does == "append" else opened.upsert(rows)

    def floor(sort: Sort) -> None:
        frame = pl.DataFrame(pl.from_arrow(rows))
        encode(sort(frame), world.groups, folder, log_block=write.does != "create_from")

    def fresh() -> None:
        if write.does != "create_from":
            create(world, table)

    return Prepared(fresh, ours, {"polars": partial(floor, by_polars), "best": partial(floor, by_best)}, data.nbytes)


def seconds(call: Callable[[], object]) -> float:
    """The processor time of a call, of all threads."""
    gc.collect()
    start = time.process_time()
    call()
    return time.process_time() - start


def writes(some: list[Write], rounds: int, rows: int) -> None:
    """The second table: writes beside their floors."""
    print("\n| write | MB/s a core | floor, by polars | by the best | × polars | × best |\n|---|---|---|---|---|---|")
    for write in some:
        with tempfile.TemporaryDirectory(dir=".") as name:
            folder, world = Path(name).absolute(), replace(write.world, rows=rows)
            compacts = write.does == "compact"
            it = prepared_compaction(world, folder) if compacts else prepared_write(write, world, folder)
            found = in_turns(it, folder / "table", rounds)
        rates, ratios = ["–", "–"], ["–", "–"]
        for i, times in enumerate(found.get(floor) for floor in ("polars", "best")):
            if times is not None:
                rates[i] = f"{it.size / 1e6 / min(times):.0f}"
                ratios[i] = f"{statistics.median(a / b for a, b in zip(found['ours'], times, strict=True)):.2f}"
        rate = f"{it.size / 1e6 / min(found['ours']):.0f}"
        print(f"| {' | '.join([write.name, rate, *rates, *ratios])} |", flush=True)


def in_turns(it: Prepared, table: Path, rounds: int) -> dict[str, list[float]]:
    """The seconds of a write and of its floors, in rounds in which each runs once, in any order; without the first."""
    calls: dict[str, Callable[[], object]] = {"ours": it.ours, **it.floors}
    found: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        shutil.rmtree(table, ignore_errors=True)
        it.fresh()
        os.sync()
        for name in np.random.default_rng(number).permutation(list(calls)):
            found[name].append(seconds(calls[name]))
    return {name: times[1:] for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 8_000_000])
    parser.add_argument("--only", choices=["loads", "writes"])
    parser.add_argument("--named", default="", help="a part of the names of the writes to measure")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    if options.only != "writes":
        loads([SMALL_ROWS] if options.small else options.rows)
    if options.only != "loads":
        rows = SMALL_ROWS if options.small else World.rows
        writes([some for some in WRITES if options.named in some.name], 1 if options.small else options.rounds, rows)


if __name__ == "__main__":
    main()

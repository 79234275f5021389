"""A first load from a Parquet file: seconds, those of all cores among them, and the most memory, beside a peer.

Each way is a process of its own, which takes the rows from the same file of ten columns, in no order of keys:

    create_from           a table of ours, partitioned by nothing, in four buckets: sorted, made durable, one commit
    create and upsert     the same table by `Table.create` and one upsert, which holds all rows in memory
    polars, unsorted      `scan_parquet(...).sink_parquet(...)`: the floor of anything that decodes and encodes the rows
    polars, sorted        the same by way of `sort(key)`: the floor of anything that leaves files in the order of keys
    delta-rs              `write_deltalake` of the file's batches, where `deltalake` is installed; nothing is sorted

    python benches/load.py                 # 1,000,000 and 8,000,000 rows
    python benches/load.py --rows 20000000
    python benches/load.py --small
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 8_000_000])
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    ways = [way for way in WAYS if way != "delta-rs" or importlib.util.find_spec("deltalake")]
    print(f"{'rows':>12}  {'way':<18} {'seconds':>8} {'of CPU':>8} {'rows/s':>10} {'MiB':>6}")
    for rows in [20_000] if options.small else options.rows:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            file = Path(folder, "source.parquet")
            write_source(file, rows)
            for way in ways:
                work = WAYS[way].format(file=str(file), to=str(Path(folder, way.replace(" ", "_").replace(",", ""))))
                done = subprocess.run(
                    [sys.executable, "-c", MEASURED.format(work=work)], check=True, capture_output=True, text=True
                )
                seconds, cpu, kib = map(float, done.stdout.split())
                figures = f"{seconds:>8.2f} {cpu:>8.2f} {rows / seconds:>10,.0f} {kib / 1024:>6,.0f}"
                print(f"{rows:>12,}  {way:<18} {figures}", flush=True)


if __name__ == "__main__":
    main()

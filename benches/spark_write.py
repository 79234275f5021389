"""Upserts through Spark, beside Spark writing the same rows to plain Parquet.

    small     10,000 rows: what a micro-batch costs
    large     1,000,000 rows
    cores     the large one with one and with two

`upsert` shuffles by file group first, `df.write` does not, and the driver joins what several tasks staged of one group.
The floor writes files that no reader could merge, so the difference is what keys, merging and a commit cost.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import crdt_mor as mor
from benches.spark_engines import DRIVER_MEMORY, session
from benches.suite import timing

ROUNDS = 7
COLUMNS = 10
BUCKETS = 4
CHANCE = np.random.default_rng(7)


def measure(spark: Any, folder: Path, count: int, rounds: int) -> list[float]:
    """Seconds of `upsert`, `df.write` and plain Parquet, medians."""
    from crdt_mor.readers.spark import upsert

    numbers = [f"cast(rand({i}) * 1000000000 as long) as n{i}" for i in range(COLUMNS // 2)]
    texts = [f"cast(cast(rand({i + 9}) * 1e6 as int) as string) as t{i}" for i in range(COLUMNS - len(numbers) - 1)]
    frame = spark.range(count, numPartitions=4).selectExpr("id", *numbers, *texts).cache()
    frame.count()
    names = [f.name for f in frame.schema]
    schema = pa.schema([(name, pa.string() if name[0] == "t" else pa.int64()) for name in names])
    tables = [mor.Table.create(folder / str(i), schema, key="id", buckets=BUCKETS) for i in range(2)]
    found: list[float] = timing.seconds(
        lambda: upsert(frame, tables[0].uri),
        lambda: frame.write.format("crdt_mor").mode("append").save(tables[1].uri),
        lambda: frame.write.mode("append").parquet(str(folder / "parquet")),
        rounds=rounds,
        chance=CHANCE,
    )
    for table in tables:
        assert table.scan(columns=["id"]).count() == count
    frame.unpersist()
    return found


def run(jars: list[str], small: bool) -> None:
    """All of it, and what it took."""
    runs = [(2, 1_000)] if small else [(2, 10_000), (2, 1_000_000), (1, 1_000_000)]
    print(f"{COLUMNS} columns, {BUCKETS} file groups; seconds, medians, and rows/s")
    print(f"{'cores':>5} {'rows':>10} {'upsert':>22} {'df.write':>22} {'plain Parquet':>22} {'upsert / floor':>15}")
    for cores, count in runs:
        settings = {"spark.driver.memory": DRIVER_MEMORY, "spark.sql.shuffle.partitions": "4"}
        spark = session(f"local[{cores}]", jars, settings)
        folder = Path(tempfile.mkdtemp(prefix="crdt-mor-bench-"))
        try:
            found = measure(spark, folder, count, 1 if small else ROUNDS if count < 100_000 else 3)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            spark.stop()
        cells = " ".join(f"{seconds:9.2f} {count / seconds:10,.0f}/s" for seconds in found)
        print(f"{cores:>5} {count:>10,} {cells} {found[0] / found[2]:>13.2f} x", flush=True)

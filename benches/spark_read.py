"""Reading in Spark: our source beside Spark's own Parquet reader, into the noop sink, which takes every row.

    compacted    all is in base files; Spark's reader reads the very same files, and the same columns of them
    logs         five commits of 1 % of the rows each on top; the base files alone are the floor
    a condition  that 1 % of the rows meet, by the option `filter`; Spark's reader pushes its own down

Beside them the same rows in plain Parquet files that Spark wrote. Rounds are interleaved; the ratio is the median of
the rounds' ratios.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

import crdt_mor as mor
from benches.spark_engines import DRIVER_MEMORY, session
from crdt_mor.model.policies import plural

CHANCE = np.random.default_rng(7)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        *((f"n{i}", pa.int64()) for i in range(3)),
        ("price", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        *((f"t{i}", pa.string()) for i in range(3)),
    ]
)
COLUMNS = "id long, n0 long, n1 long, n2 long, price double, at timestamp, day date, t0 string, t1 string, t2 string"


def rows(ids: np.ndarray) -> pl.DataFrame:
    """Rows of ten columns; `n0` is 0 to 9999 and grows with the key."""
    count = len(ids)
    return pl.DataFrame(
        {
            "id": ids,
            "n0": ids * 10_000 // (ids.max() + 1),
            "n1": CHANCE.integers(0, 1 << 40, count),
            "n2": CHANCE.integers(0, 1000, count),
            "price": CHANCE.random(count),
            "at": pl.Series(CHANCE.integers(17 * 10**14, 175 * 10**13, count)).cast(pl.Datetime("us", "UTC")),
            "day": pl.Series(CHANCE.integers(19_000, 20_000, count)).cast(pl.Int32).cast(pl.Date),
            **{f"t{i}": pl.Series(CHANCE.integers(0, 10 ** (3 + 3 * i), count)).cast(pl.String) for i in range(3)},
        }
    )


def table_of(path: Path, count: int) -> mor.Table:
    """`count` rows in four base files."""
    table = mor.Table.create(path, SCHEMA, key="id", buckets=4)
    for part in np.array_split(np.arange(count), 4):
        table.upsert(rows(part))
    table.maintenance.compact()
    return table


def seconds(rounds: int, works: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """The times of some works, in rounds in which each runs once, in random order; the first round is not counted."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name in CHANCE.permutation(list(works)):
            start = time.perf_counter()
            works[name]().write.format("noop").mode("overwrite").save()
            if number:
                found[name].append(time.perf_counter() - start)
    return found


def compare(count: int, rounds: int, floor: str, works: dict[str, Callable[[], Any]]) -> None:
    """Print what each work took, beside the floor of the same round."""
    times = seconds(rounds, works)
    for name, taken in times.items():
        ratio = statistics.median(a / b for a, b in zip(taken, times[floor], strict=True))
        middle = statistics.median(taken)
        print(f"  {name:60} {middle:7.2f} s {count / middle / 1e6:7.2f} M rows/s {ratio:6.2f}x")


def run(jars: list[str], small: bool) -> None:
    """All of it, and what it took."""
    count, rounds = (50_000, 1) if small else (3_000_000, 5)
    with tempfile.TemporaryDirectory() as folder:
        table = table_of(Path(folder, "table"), count)
        base = [str(path) for path in Path(table.uri).glob("*.parquet")]
        size = sum(os.path.getsize(path) for path in base)
        print(f"{count:,} rows of {len(SCHEMA)} columns in {len(base)} base files, {size / (1 << 20):.0f} MiB\n")
        for cores in (1, 2):
            on(cores, jars, table, base, count, rounds)
        for _ in range(5):
            table.upsert(rows(np.sort(CHANCE.choice(count, count // 100, replace=False))))
        on(2, jars, table, base, count, rounds, "ours, five logs on each base file")


def on(
    cores: int,
    jars: list[str],
    table: mor.Table,
    base: list[str],
    count: int,
    rounds: int,
    name: str = "ours, compacted",
) -> None:
    """Everything on so many cores."""
    spark = session(f"local[{cores}]", jars, {"spark.driver.memory": DRIVER_MEMORY})
    plain = f"{table.uri}-plain"
    spark.read.schema(COLUMNS).parquet(*base).write.mode("overwrite").parquet(plain)

    def parquet(*paths: str) -> Any:
        return spark.read.schema(COLUMNS).parquet(*paths)

    def ours(**options: str) -> Any:
        return spark.read.format("crdt_mor").options(**options).schema(COLUMNS).load(table.uri)

    print(plural(cores, "core"))
    same, condition = "Spark's Parquet reader, the same base files", "n0 >= 4950 AND n0 < 5050"
    whole = {
        same: lambda: parquet(*base),
        "Spark's Parquet reader, plain files of its own": lambda: parquet(plain),
        name: ours,
    }
    compare(count, rounds, same, whole)
    some = {
        f"a condition, {same}": lambda: parquet(*base).where(condition),
        f"a condition, {name}": lambda: ours(filter=condition),
    }
    compare(count // 100, rounds, next(iter(some)), some)
    spark.stop()

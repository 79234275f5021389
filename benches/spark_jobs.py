"""What a team does to a table through Spark: a load, upserts, aggregates, and three jobs on the same keys at once.

    load         the rows of one frame, of which no two have one key
    upsert       1 % of the rows, half of them new
    aggregate    the sum of one column by another
    three jobs   threads of one session, each some upserts of the same keys, one after the other; an upsert that is
                 refused because of another job's is an abort, and is not tried again

Parquet's upsert adds files, with no regard to keys: it is the floor, and has no third job.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from benches.spark_engines import DRIVER_MEMORY, Delta, Engine, Ours, Parquet, session

JOBS = 3
DECIDED_BY_ANOTHER = "DELTA_CONCURRENT"
"""What the name of an error of Delta's begins with where another commit is in the way."""


def rows(spark: Any, first: int, count: int, seed: int) -> Any:
    """Rows of ten columns, with keys from `first` on."""
    numbers = [f"cast(rand({seed + i}) * 1000000000 as long) as n{i}" for i in range(4)]
    texts = [f"cast(cast(rand({seed + i + 9}) * 1e6 as int) as string) as t{i}" for i in range(4)]
    frame = spark.range(first, first + count, numPartitions=4)
    return frame.selectExpr("id", "id % 100 as kind", *numbers, *texts)


def kept(frame: Any) -> Any:
    """A frame whose rows are made once, so that no engine pays for that."""
    frame = frame.cache()
    frame.count()
    return frame


def taken(work: Callable[[], Any]) -> float:
    """Seconds of it."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def race(engine: Engine, frame: Any, upserts: int) -> tuple[int, float]:
    """How many upserts of all jobs were committed, and in how many seconds."""
    spark, committed, failures = frame.sparkSession, [0] * JOBS, []
    ready = threading.Barrier(JOBS + 1)

    def job(number: int) -> None:
        changed = frame.selectExpr("id", "kind", f"n0 + {number} as n0", *frame.columns[3:])
        with suppress(threading.BrokenBarrierError):
            ready.wait()
        for _ in range(upserts):
            try:
                engine.upsert(changed)
                committed[number] += 1
            except Exception as error:  # noqa: BLE001  whatever Delta's is called in Python
                if DECIDED_BY_ANOTHER not in str(error):
                    failures.append(error)
                    return

    threads = [threading.Thread(target=job, args=(number,)) for number in range(JOBS)]
    for thread in threads:
        thread.start()
    ready.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    assert not failures, f"{engine.name} on {spark.version}: {failures[0]}"
    return sum(committed), seconds


def run(jars: list[str], small: bool) -> None:
    """All of it, and what it took."""
    count, rounds, upserts = (20_000, 1, 1) if small else (1_000_000, 3, 4)
    spark = session("local[2]", jars, {"spark.driver.memory": DRIVER_MEMORY, "spark.sql.shuffle.partitions": "4"})
    some = count // 100
    print(f"{count:,} rows of ten columns, Spark {spark.version}; {JOBS} x {upserts} upserts of the same {some:,} keys")
    print(f"{'':16} {'load':>9} {'upsert':>9} {'aggregate':>10} {'committed':>10} {'aborted':>8} {'commits/s':>10}")
    loaded = kept(rows(spark, 0, count, 1))
    changes = kept(rows(spark, count - some // 2, some, 30))
    with tempfile.TemporaryDirectory(prefix="crdt-mor-bench-") as folder:
        home = Path(folder)
        warm(spark, home / "warm", changes, jars)
        for engine in engines_of(home, jars):
            load = taken(lambda: engine.load(loaded))  # noqa: B023  called at once
            upsert = statistics.median(taken(lambda: engine.upsert(changes)) for _ in range(rounds))  # noqa: B023
            if engine.merges:
                assert engine.rows(spark) == count + some - some // 2, engine.name
            read = statistics.median(taken(lambda: aggregate(engine, spark)) for _ in range(rounds))  # noqa: B023
            line = f"{engine.name:16} {load:7.2f} s {upsert:7.2f} s {read:8.2f} s"
            if engine.merges:
                committed, seconds = race(engine, changes, upserts)
                aborted = JOBS * upserts - committed
                line += f" {committed:>5} of {JOBS * upserts:<2} {aborted:>7} {committed / seconds:>10.2f}"
            print(line, flush=True)
    spark.stop()


def engines_of(home: Path, jars: list[str]) -> list[Engine]:
    """Tables below a folder, of Delta where its jars are there."""
    return [Ours(home), *([Delta(home)] if jars else []), Parquet(home)]


def warm(spark: Any, home: Path, frame: Any, jars: list[str]) -> None:
    """Each engine once, on a table that nobody looks at."""
    for engine in engines_of(home, jars):
        engine.load(frame)
        engine.upsert(frame)
        aggregate(engine, spark)


def aggregate(engine: Engine, spark: Any) -> None:
    """The sum of a column by another one."""
    assert len(engine.read(spark, "kind", "n0").groupBy("kind").sum("n0").collect()) == 100

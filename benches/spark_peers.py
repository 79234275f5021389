"""Our times through Spark as ratios to Delta's, of the same work in turns in one session: below 1, ours are shorter.

    first append     a table and its first ten rows
    second append    ten more rows
    write            1,000,000 rows of eight columns
    upsert           100,000 rows of a table of 5,000,000
    count, aggregate, one row    of a table of 1,000,000 rows and an append; of that of 5,000,000 after the upserts, by
                     the format, by its options `columns` and `filter`, and by the function `read`
    stream batch     a micro-batch of 1,000 rows, as Spark measures it

Needs pyspark of 4.0 or 4.2, as `python -m tests.spark.versions 4.2` installs it, Java 17 and Maven. In Spark 4.0 no
stream writes a table of ours.

    .venvs/spark-4.2/bin/python benches/spark_peers.py
    .venvs/spark-4.2/bin/python benches/spark_peers.py --small
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import crdt_mor as mor
from benches.spark_engines import DRIVER_MEMORY, Delta, Ours, delta_jars, session
from benches.suite import timing

Work = Callable[[], object]

BATCHES = 7
"""Of each stream. The first two are not counted."""

CHANCE = np.random.default_rng(7)


def rows(ids: Any, factor: int = 1) -> Any:
    """Rows of eight columns."""
    return ids.selectExpr(
        "cast(id as string) id", "concat('d', id % 10) day", f"id * {factor} n", "cast(id as double) / 3 x",
        "concat('text of ', id) s", "timestamp_seconds(id) at", "id % 7 a", "id % 11 b",
    )  # fmt: skip


class Peers:
    """Times both engines, and prints a line for each work."""

    def __init__(self, spark: Any, home: Path, rounds: int) -> None:
        self.spark, self._home, self._rounds = spark, home, rounds
        self._numbers = count()

    def pair(self) -> tuple[Ours, Delta]:
        """Tables that are not there yet."""
        folder = self._home / str(next(self._numbers))
        return Ours(folder, buckets=8), Delta(folder)

    def time(self, label: str, ours: Work, delta: Work) -> None:
        """Medians of both, in turns, after a round that is not counted."""
        self.show(label, *timing.seconds(ours, delta, rounds=self._rounds, chance=CHANCE))

    def show(self, label: str, ours: float, delta: float) -> None:
        print(f"{label:34} {ours / delta:6.2f} {ours:9.2f} s {delta:9.2f} s", flush=True)


def format_of(engine: Ours | Delta) -> str:
    return "crdt_mor" if isinstance(engine, Ours) else "delta"


def append(frame: Any, engine: Ours | Delta) -> None:
    """Rows into a table that is there."""
    frame.write.format(format_of(engine)).mode("append").save(engine.path)


def frame_of(spark: Any, engine: Ours | Delta, **options: str) -> Any:
    """A table by its format."""
    return spark.read.format(format_of(engine)).options(**options).load(engine.path)


def measure_writes(peers: Peers, count: int) -> None:
    ten, many = rows(peers.spark.range(0, 10, 1, 1)), rows(peers.spark.range(0, count, 1, 8))
    peers.time("first append", lambda: peers.pair()[0].load(ten), lambda: peers.pair()[1].load(ten))
    ours, delta = peers.pair()
    ours.load(ten)
    delta.load(ten)
    peers.time("second append", lambda: append(ten, ours), lambda: append(ten, delta))
    peers.time(f"write of {count:,} rows", lambda: peers.pair()[0].load(many), lambda: peers.pair()[1].load(many))


def sums(frame: Any) -> list[Any]:
    return sorted(frame.groupBy("day").sum("n").collect())


def one(frame: Any) -> list[Any]:
    return list(frame.where("id = '777'").collect())


def measure_appended(peers: Peers, count: int) -> None:
    """Reads of a table of two appends, by the format."""
    ours, delta = peers.pair()
    for engine in (ours, delta):
        engine.load(rows(peers.spark.range(0, count, 1, 8)))
        append(rows(peers.spark.range(count, count + count // 1000, 1, 1)), engine)

    def compare(label: str, work: Callable[[Any], object], **options: str) -> None:
        here, there = partial(frame_of, peers.spark, ours, **options), partial(frame_of, peers.spark, delta)
        assert work(here()) == work(there())
        peers.time(f"{label}, appends", lambda: work(here()), lambda: work(there()))

    compare("count", lambda frame: frame.count())
    compare("aggregate, option columns", sums, columns="day,n")
    compare("one row", one)


def measure_table(peers: Peers, count: int, changed: int) -> None:
    """An upsert into a large table, and reads of it."""
    from crdt_mor.readers.spark import read

    ours, delta = peers.pair()
    frame, some = (rows(peers.spark.range(0, count, *at)) for at in ((1, 8), (count // changed, 4)))
    for engine in (ours, delta):
        engine.load(frame)
    peers.time(f"upsert of {changed:,} into {count:,}", lambda: ours.upsert(some), lambda: delta.upsert(some))

    plain, of_delta = partial(frame_of, peers.spark, ours), partial(frame_of, peers.spark, delta)

    def native() -> Any:
        return read(peers.spark, ours.path)

    def compare(label: str, frame: Callable[[], Any]) -> None:
        assert (sums(frame()), one(frame())) == (sums(of_delta()), one(of_delta()))
        peers.time(f"count, {label}", lambda: frame().count(), lambda: of_delta().count())
        peers.time(f"aggregate, {label}", lambda: sums(frame()), lambda: sums(of_delta()))
        peers.time(f"one row, {label}", lambda: one(frame()), lambda: one(of_delta()))

    compare("format", plain)
    peers.time("aggregate, option columns", lambda: sums(plain(columns="day,n")), lambda: sums(of_delta()))
    peers.time("one row, option filter", lambda: one(plain(filter="id = '777'")), lambda: one(of_delta()))
    mor.Table(ours.path).maintenance.compact()
    compare("read after a compaction", native)
    ours.upsert(some)
    compare("read after an upsert", native)


def measure_stream(peers: Peers, count: int, folder: Path) -> None:
    """The same files as micro-batches into both."""
    frame = rows(peers.spark.range(0, count * BATCHES, 1, BATCHES))
    frame.write.parquet(str(folder / "files"))
    ours, delta = peers.pair()
    ours.create(frame)
    found = [
        statistics.median(_batches(peers.spark, frame.schema, folder, name, path))
        for name, path in (("crdt_mor", ours.path), ("delta", delta.path))
    ]
    peers.show(f"stream batch of {count:,} rows", *found)


def _batches(spark: Any, schema: Any, folder: Path, name: str, path: str) -> list[float]:
    """The seconds of each micro-batch but the first two."""
    files = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "files"))
    writer = files.writeStream.format(name).option("checkpointLocation", str(folder / f"of-{name}"))
    query = writer.trigger(availableNow=True).start(path)
    query.awaitTermination()
    progress = [one for one in query.recentProgress if one["numInputRows"]]
    assert len(progress) == BATCHES
    return [one["durationMs"]["triggerExecution"] / 1000 for one in progress[2:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a size of seconds")
    small = parser.parse_args().small
    if find_spec("pyspark") is None:
        print("skipped: pip install 'crdt-mor[spark]', and have Java 17")
        return
    jars = delta_jars()
    if not jars:
        return
    from crdt_mor.readers.spark.versions import SPARK, WRITES_STREAMS

    rounds, first, large, changed = (1, 1_000, 5_000, 100) if small else (5, 1_000_000, 5_000_000, 100_000)
    spark = session("local[2]", jars, {"spark.driver.memory": DRIVER_MEMORY, "spark.sql.shuffle.partitions": "8"})
    with tempfile.TemporaryDirectory(prefix="crdt-mor-bench-") as folder:
        home = Path(folder)
        peers = Peers(spark, home / "tables", rounds)
        print(f"Spark {spark.version}, {Delta(home).name}; medians of {rounds} rounds")
        print(f"{'':34} {'ratio':>6} {'crdt_mor':>11} {'Delta':>11}")
        measure_writes(peers, first)
        measure_appended(peers, first)
        measure_table(peers, large, changed)
        if SPARK >= WRITES_STREAMS:
            measure_stream(peers, 10 if small else 1_000, home)
    spark.stop()


if __name__ == "__main__":
    main()

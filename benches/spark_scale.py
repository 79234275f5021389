"""Tables of many file groups through Spark, on a driver and two executors of one core each, in processes of their own.

    10,000 file groups    1,250 partitions x 8 buckets, 2,000,000 rows
    20,000,000 rows       200 partitions x 8 buckets

Each engine has a driver of its own, so that the memory of one says nothing of another: the most that the driver's JVM,
its Python and the Python processes that plan for it have had together, without the executors. Planning is the time from
a frame to its tasks. Ours is loaded by `upsert`, which shuffles by file group; the rows of Delta and of plain
Parquet are shuffled by partition first, without which they would be a file for each task and partition.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import crdt_mor as mor
from benches.spark_engines import ROOT, Delta, Engine, Ours, Parquet, session

MASTER = "local-cluster[2,1,2048]"
EXECUTOR = "CoarseGrainedExecutorBackend"
BUCKETS = 8
SHAPES = {"10,000 file groups": (2_000_000, 1_250), "20,000,000 rows": (20_000_000, 200)}
SMALL = {"64 file groups": (2_000, 8)}
UPSERT_EVERY = 100
MIB = 1 << 20


def run(jars: list[str], small: bool) -> None:
    """All shapes and engines. A small run is one process, and says nothing of memory."""
    print("most MiB of the driver; s, tasks and live files of each work\n")
    for shape, (count, partitions) in (SMALL if small else SHAPES).items():
        print(f"{shape}: {count:,} rows, {partitions:,} partitions x {BUCKETS}")
        for name in ("ours", *(["delta"] if jars else []), "parquet"):
            asked = json.dumps({"engine": name, "count": count, "partitions": partitions, "jars": jars, "small": small})
            if small:
                measure(asked)
                continue
            command = [sys.executable, "-c", "import sys, benches.spark_scale as s; s.measure(sys.argv[1])", asked]
            environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
            subprocess.run(command, cwd=ROOT, env=environment, check=False)


def measure(asked: str) -> None:
    """One engine and one shape."""
    question = json.loads(asked)
    count, partitions = question["count"], question["partitions"]
    master = "local[2]" if question["small"] else MASTER
    spark = session(master, question["jars"], {"spark.driver.memory": "2g", "spark.executor.memory": "2g"})
    texts = [
        "id",
        f"concat('p', id % {partitions}) as part",
        "id * 7 as n",
        "id / 3 as price",
        "cast(id as string) as t",
    ]
    frame = spark.range(0, count, numPartitions=8).selectExpr(*texts)
    with tempfile.TemporaryDirectory(prefix="crdt-mor-bench-") as folder, most_memory() as memory:
        engine = ENGINES[question["engine"]](Path(folder))
        works: dict[str, Callable[[], Any]] = {
            "load": lambda: load(engine, frame),
            f"upsert 1/{UPSERT_EVERY}": lambda: engine.upsert(frame.where(f"id div {partitions} % {UPSERT_EVERY} = 0")),
            "plan": lambda: planned(engine.read(spark, "part", "n")),
            "aggregate": lambda: engine.read(spark, "part", "n").groupBy("part").sum("n").collect(),
            "one partition": lambda: engine.read(spark, "part", "n", where="part = 'p1'").groupBy().sum("n").collect(),
            "compact": lambda: compact(engine, spark),
            "aggregate after": lambda: engine.read(spark, "part", "n").groupBy("part").sum("n").collect(),
        }
        if not engine.merges:
            del works["compact"], works["aggregate after"]
        for name, work in works.items():
            seconds, tasks, answer = counted(spark, name, work)
            found = f", {answer:,} tasks planned" if name == "plan" else ""
            files, size = live(engine, spark)
            print(f"  {engine.name:14} {name:16} {seconds:8.2f} s {tasks:>6,} tasks {files:>7,} files "
                  f"{size / MIB:>8,.0f} MiB{found}", flush=True)  # fmt: skip
        if engine.merges:
            assert engine.rows(spark) == count, f"{engine.name} has lost rows"
        if not question["small"]:
            print(f"  {engine.name:14} driver           {memory[0] / MIB:8,.0f} MiB", flush=True)
    spark.stop()


def ours(folder: Path) -> Engine:
    return Ours(folder, "part", BUCKETS)


def delta(folder: Path) -> Engine:
    return Delta(folder, "part")


def parquet(folder: Path) -> Engine:
    return Parquet(folder, "part")


ENGINES: dict[str, Callable[[Path], Engine]] = {"ours": ours, "delta": delta, "parquet": parquet}


def load(engine: Engine, frame: Any) -> None:
    """The first rows, shuffled as is best for the engine."""
    if isinstance(engine, Ours):
        engine.create(frame)
        engine.upsert(frame)
    else:
        engine.load(frame.repartition("part"))


def compact(engine: Engine, spark: Any) -> None:
    """The engine's own upkeep of its files, over all of the table."""
    if isinstance(engine, Ours):
        from crdt_mor.readers.spark import compact

        compact(spark, engine.path)
    else:
        spark.sql(f"OPTIMIZE delta.`{engine.path}`").collect()


def live(engine: Engine, spark: Any) -> tuple[int, int]:
    """The files that a reader of now reads, and their bytes."""
    if isinstance(engine, Ours):
        files = mor.Table(engine.path).inspect.files()
        return files.num_rows, sum(files["bytes"].to_pylist())
    if isinstance(engine, Delta):
        row = spark.sql(f"DESCRIBE DETAIL delta.`{engine.path}`").first()
        return row["numFiles"], row["sizeInBytes"]
    sizes = [path.stat().st_size for path in Path(engine.path).rglob("*.parquet")]
    return len(sizes), sum(sizes)


def planned(frame: Any) -> int:
    """The tasks of a read of all rows, which is planned and not run."""
    return int(frame._jdf.queryExecution().toRdd().getNumPartitions())  # noqa: SLF001  Python has no other way


def counted(spark: Any, name: str, work: Callable[[], Any]) -> tuple[float, int, Any]:
    """Seconds of some work, the tasks that ended for it, and its answer."""
    context = spark.sparkContext
    context.setJobGroup(name, name)
    start = time.perf_counter()
    answer = work()
    seconds = time.perf_counter() - start
    tracker = context.statusTracker()
    jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(name)))
    stages = filter(None, map(tracker.getStageInfo, {stage for job in jobs for stage in job.stageIds}))
    return seconds, sum(stage.numCompletedTasks for stage in stages), answer


@contextmanager
def most_memory() -> Iterator[list[int]]:
    """The most bytes that this process and those below it have had together meanwhile, but for executors."""
    most, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            most[0] = max(most[0], sum(map(resident, driver(os.getpid()))))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield most
    finally:
        over.set()
        watcher.join()


def driver(pid: int) -> list[int]:
    """A process and those below it, but for executors."""
    try:
        if EXECUTOR.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            return []
        tasks = Path(f"/proc/{pid}/task").iterdir()
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []
    return [pid, *(found for child in children for found in driver(child))]


def resident(pid: int) -> int:
    """Bytes of memory that are a process' own; 0 where it is gone, or where this system does not say it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))

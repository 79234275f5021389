"""Processes that write a few rows again and again into one table in a bucket, for `benches/combining.py`.

A write is three rows: a new key of its writer's, a key that all writers write at about the same time, and one of eight
keys that are always the same. A writer whose engine raises an error counts it and tries the same write again after a
pause, as its user would have to. In the end the table is read: each acknowledged write has to be there, and once.
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from benches.bucket import BUCKET, asked
from benches.combining_engines import ENGINES, PACKAGES
from benches.stores import ROW

Figures = dict[str, Any]
FRESH = multiprocessing.get_context("forkserver")
FRESH.set_forkserver_preload(["benches.combining_real", "tests.simulation.crowd"])  # 32 processes start in a second

PAUSE_S, PAUSE_MAX_S = 0.05, 1.0
PATIENCE_S = 300  # beyond the time of a measure: an engine may go on trying for minutes


@dataclass(frozen=True)
class Told:
    """What a writer's process tells.

    acknowledged: the numbers of its writes. took: seconds of each but the first, failed tries among them. in_time: how
    many of these were acknowledged before the time was over. raised: the errors. cpu_s: processor time.
    """

    writer: int
    acknowledged: Sequence[int]
    took: Sequence[float]
    in_time: int
    raised: Sequence[str]
    cpu_s: float


def own_key(writer: int, number: int) -> str:
    return f"{writer}-{number}"


def rows_of(writer: int, number: int) -> pa.Table:
    """The rows of a write."""
    return pa.table({"id": [own_key(writer, number), f"shared-{number}", f"hot-{number % 8}"], "n": [number] * 3}, ROW)


def write_loop(engine: str, uri: str, port: int, writer: int, seconds: float, gate: Any, results: Any) -> None:
    """Write for a while, to a table that this process has written to before, which does not count."""
    write, chance, raised = ENGINES[engine].writer(uri, port), random.Random(writer), list[str]()
    is_written(write, rows_of(writer, 0), math.inf, chance, raised)
    raised.clear()
    acknowledged, took, in_time = [0], list[float](), 0
    gate.wait()
    cpu, end = time.process_time(), time.perf_counter() + seconds
    for number in itertools.count(1):
        rows, begun = rows_of(writer, number), time.perf_counter()
        if begun >= end:
            break
        if is_written(write, rows, end, chance, raised):
            acknowledged.append(number)
            took.append(time.perf_counter() - begun)
            in_time += time.perf_counter() < end
    results.put(Told(writer, acknowledged, took, in_time, raised, time.process_time() - cpu))


def is_written(
    write: Callable[[pa.Table], object], rows: pa.Table, end: float, chance: random.Random, raised: list[str]
) -> bool:
    """Whether a write was acknowledged, at its first try or at a later one that began before the end."""
    for tries in itertools.count():
        try:
            write(rows)
        except Exception as error:  # noqa: BLE001  each engine has its own
            raised.append(f"{type(error).__name__}: {error}")
        else:
            return True
        time.sleep(chance.random() * min(PAUSE_MAX_S, PAUSE_S * 2**tries))
        if time.perf_counter() >= end:
            return False
    raise AssertionError


def measured(engine: str, port: int, writers: int, seconds: float) -> Figures:
    """What some processes write together, what it costs, and what of it is in the table in the end."""
    uri = f"s3://{BUCKET}/{''.join(c if c.isalnum() else '_' for c in engine)}_{writers}"
    ENGINES[engine].create(uri, port)
    gate, results = FRESH.Barrier(writers + 1), FRESH.Queue()
    processes = [
        FRESH.Process(target=write_loop, args=(engine, uri, port, writer, seconds, gate, results), daemon=True)
        for writer in range(writers)
    ]
    for process in processes:
        process.start()
    gate.wait()
    before, begun = asked(port), time.perf_counter()
    told = [results.get(timeout=seconds + PATIENCE_S) for _ in processes]
    after, lasted = asked(port), time.perf_counter() - begun
    for process in processes:
        process.join()
    commits = sum(len(one.took) for one in told)
    raised = [error for one in told for error in one.raised]
    server_s = after["cpu"] - before["cpu"]
    return {
        "engine": engine, "writers": writers, "commits/s": sum(one.in_time for one in told) / seconds,
        **waits([took for one in told for took in one.took]), "acknowledged": commits, "raised": len(raised),
        **checked(engine, uri, port, told), "requests a commit": (after["requests"] - before["requests"]) / commits,
        "server's core": server_s / lasted, "cores": (server_s + sum(one.cpu_s for one in told)) / lasted,
        "most raised": Counter(error[:100] for error in raised).most_common(1)[0][0] if raised else "",
    }  # fmt: skip


def waits(took: Sequence[float]) -> Figures:
    """What half of the writers waited for at most, and what all but one in a hundred did."""
    ordered = sorted(took) or [float("nan")]
    return {"p50 s": statistics.median(ordered), "p99 s": ordered[int(len(ordered) * 0.99)]}


def checked(engine: str, uri: str, port: int, told: Sequence[Told]) -> Figures:
    """Acknowledged writes that the table lacks, and keys that it has more than once; of appends, writers' own keys."""
    there = Counter(ENGINES[engine].rows(uri, port)["id"].to_pylist())
    acknowledged = {own_key(one.writer, number) for one in told for number in one.acknowledged}
    may_repeat = () if ENGINES[engine].upserts else ("shared", "hot")
    twice = [key for key, count in there.items() if count > 1 and not key.startswith(may_repeat)]
    return {"lost": len(acknowledged - there.keys()), "twice": len(twice)}


def is_installed(engine: str) -> bool:
    package = PACKAGES.get(engine.partition(",")[0])
    return package is None or find_spec(package) is not None

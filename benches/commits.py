"""Small commits on the local disk: how many a second, beside the bare rate of what the disk must do for each.

The bare rate is "look at the tail, write, fsync, link, fsync the directory" in a loop, by as many processes, in the
same run, on the same disk, with objects as large as a version of the timeline. A commit that is alone needs that three
times, for its version, its log file and one file for Hudi's readers, and before them the name of its claim. Measured
with 1 and with 8 processes, on tables with 0, 1,000 and 10,000 earlier commits: the figures must not fall.

    python benches/commits.py            # about five minutes
    python benches/commits.py --small
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import crdt_mor as mor

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
SPAWN = multiprocessing.get_context("spawn")


def row(key: str, number: int) -> pa.Table:
    return pa.table({"id": [key], "n": [number]}, SCHEMA)


def commit_loop(path: str, name: str, seconds: float, gate: Any, results: Any) -> None:
    """Commit one row after another for a while, on a table that this process has opened and written to before."""
    table = mor.Table(path)
    table.upsert(row(name, -1))
    gate.wait()
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        table.upsert(row(name, count))
        count += 1
    results.put(count)


def bare_loop(path: str, name: str, seconds: float, gate: Any, results: Any) -> None:
    """Take numbered slots: the least that a durable put-if-absent of the next version does on a disk."""
    folder, size, slot, count = Path(path), 6_000, 0, 0
    temp = folder / f".{name}"
    gate.wait()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        while (folder / f"{slot:020d}").exists():
            slot += 1
        file = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(file, os.urandom(size))
        os.fsync(file)
        os.close(file)
        try:
            os.link(temp, folder / f"{slot:020d}")
        except FileExistsError:
            continue
        finally:
            temp.unlink()
        directory = os.open(folder, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
        count += 1
    results.put(count)


def rate(loop: Any, path: Path, processes: int, seconds: float) -> float:
    """Commits a second of all processes together."""
    gate, results = SPAWN.Barrier(processes), SPAWN.Queue()
    workers = [
        SPAWN.Process(target=loop, args=(str(path), f"writer-{i}", seconds, gate, results)) for i in range(processes)
    ]
    for worker in workers:
        worker.start()
    total = sum(results.get() for _ in workers)
    for worker in workers:
        worker.join()
    return float(total / seconds)


def grow_to(table: mor.Table, commits: int) -> None:
    """Commits until the table has so many, with a compaction now and then as in a table that is looked after."""
    have = sum(state == "completed" for state in table.inspect.timeline()["state"].to_pylist())
    for number in range(have, commits):
        table.upsert(row("earlier", number))
        if number % 500 == 499:
            table.maintenance.compact()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="seconds, to see that it runs")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    args = parser.parse_args()
    seconds, levels = (1.0, (0, 20)) if args.small else (5.0, (0, 1_000, 10_000))
    folder = Path(tempfile.mkdtemp(prefix="commits-"))
    figures = []
    try:
        table = mor.Table.create(folder / "table", SCHEMA, key="id", buckets=1)
        table.set_properties({"crdt_mor.maintain": "off"})
        for earlier in levels:
            grow_to(table, earlier)
            for processes in (1, 8):
                slots = folder / f"slots-{earlier}-{processes}"
                slots.mkdir()
                bare = rate(bare_loop, slots, processes, seconds)
                ours = rate(commit_loop, folder / "table", processes, seconds)
                figures.append({"earlier": earlier, "processes": processes, "commits/s": ours, "bare/s": bare})
                print(
                    f"{earlier:6,} earlier commits   {processes} processes   {ours:6.0f} commits/s   "
                    f"bare put-if-absent {bare:6.0f}/s   ratio {ours / bare:.2f}"
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()

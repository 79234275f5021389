"""The peak memory of each verb above its start, beside the bound of docs/memory.md.

Each verb runs in a process of its own, over a table with eight partitions of one file group each, of rows of about 100
bytes. Its address space may grow by its bound and the room for the threads' stacks. A peak is the kernel's mark of
resident memory (VmHWM), so this bench needs Linux.

    python benches/memory.py --small                     # 100,000 rows, seconds
    python benches/memory.py                             # 1 and 4 million rows
    python benches/memory.py --millions 16               # 16 million rows: an hour, 10 GB of disk
    python benches/memory.py --limit 32000000            # one file group at a time
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import crdt_mor as mor

MIB = 1 << 20
FIXED = 200 * MIB
"""Of every verb: batches, buffers, pages of libraries, and memory that allocators keep."""
PART = 64 * MIB
ROW = 250
"""Bytes of a row in memory, with its keys."""
GROUPS = 8
STACKS = 6 << 30


class Bound(NamedTuple):
    """Multiples of a part, of the largest file group, of the file groups in memory at once, and of all rows."""

    parts: float = 0
    group: float = 0
    at_once: float = 0
    rows: float = 0


BOUNDS = {
    "create_from": Bound(parts=8),
    "upsert": Bound(parts=6),
    "overwrite": Bound(parts=6, group=6),
    "update": Bound(at_once=3, rows=1),
    "delete": Bound(at_once=3, rows=1),
    "merge": Bound(at_once=3, rows=0.1),
    "scan": Bound(at_once=3),
    "changes": Bound(at_once=3),
    "images": Bound(at_once=3, rows=1),
    "verify": Bound(group=4, rows=0.2),
    "copy": Bound(group=4, rows=0.2),
    "compact": Bound(at_once=4),
    "erase": Bound(at_once=4),
    "migrate": Bound(parts=8, at_once=4),
}
"""As docs/memory.md states them. The largest update changes a tenth of the rows, at up to ten times their bytes."""

SCHEMA = pa.schema(
    [("id", pa.int64()), ("day", pa.string())] + [(f"c{i}", pa.float64() if i % 2 else pa.string()) for i in range(10)]
)


def batch(first: int, rows: int) -> pa.RecordBatch:
    chance, ids = np.random.default_rng(first), np.arange(first, first + rows)
    columns: list[Any] = [pa.array(ids), pa.array(np.char.add("d", (ids % GROUPS).astype(str)))]
    for i in range(10):
        numbers = chance.random(rows) if i % 2 else chance.integers(0, 10**9, rows)
        columns.append(pa.array(numbers) if i % 2 else pa.array(numbers).cast(pa.string()))
    return pa.record_batch(columns, schema=SCHEMA)


def stream(rows: int, step: int = 50_000) -> pa.RecordBatchReader:
    batches = (batch(first, min(step, rows - first)) for first in range(0, rows, step))
    return pa.RecordBatchReader.from_batches(SCHEMA, batches)


def verbs(uri: str, rows: int, opening: mor.Opening) -> dict[str, Callable[[], object]]:
    new: dict[str, Any] = {"key": ["id", "day"], "partition_by": "day", "buckets": 1, "opening": opening}

    def table() -> mor.Table:
        return mor.Table(uri, opening=opening)

    def first(table: mor.Table) -> int:
        """Return the version of the first commit."""
        return int(table.history()["version"][-1].as_py())

    def read(stream: pa.RecordBatchReader) -> int:
        return sum(some.num_rows for some in stream)

    few = pa.Table.from_batches([batch(0, 1_000)])
    return {
        "create_from": lambda: mor.Table.create_from(f"{uri}-loaded", stream(rows), **new),
        "upsert": lambda: mor.Table.create(uri, SCHEMA, exist_ok=True, **new).upsert(stream(rows)),
        "compact": lambda: table().maintenance.compact(log_files_min=1),
        "update": lambda: table().update({"c1": "c1 + 1"}, where="id % 10 = 0"),
        "merge": lambda: table().merge(few, on=["id", "day"]).when_matched_update_all().execute(),
        "delete": lambda: table().delete(where="id % 100 = 7"),
        "scan": lambda: read(table().scan().to_reader()),
        "changes": lambda: read(table().changes().to_reader()),
        "images": lambda: read(table().changes(since=first(table()), images=True).to_reader()),
        "verify": lambda: table().verify(deep=False),
        "copy": lambda: table().copy(f"{uri}-copy"),
        "erase": lambda: table().maintenance.erase(where="id = 7"),
        "migrate": lambda: table().maintenance.migrate(f"{uri}-moved", buckets=2, partition_by="day"),
        "overwrite": lambda: mor.Table(f"{uri}-loaded", opening=opening).overwrite(stream(rows)),
    }


def status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) << 10


def bound_of(verb: str, rows: int, at_once: int) -> int:
    bound, group = BOUNDS[verb], rows // GROUPS * ROW
    return int(FIXED + bound.parts * PART + group * (bound.group + bound.at_once * at_once + bound.rows * GROUPS))


def measure(verb: str, uri: str, rows: int, limit: int | None) -> None:
    """Run a verb in this process, and print its peak in bytes and its seconds."""
    warnings.simplefilter("ignore")
    mor.Table.create(f"{uri}-{verb}-first", SCHEMA, key=["id", "day"], partition_by="day").upsert(stream(20_000))
    act = verbs(uri, rows, mor.Opening(memory_limit=limit))[verb]
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the peak so far
    start, began = status("VmRSS"), time.perf_counter()
    most = status("VmSize") + bound_of(verb, rows, at_once(limit)) + STACKS
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    act()
    print(status("VmHWM") - start, f"{time.perf_counter() - began:.1f}")


def at_once(limit: int | None) -> int:
    return 1 if limit is not None else (os.cpu_count() or 1) + 1


def report(rows: int, limit: int | None) -> None:
    print(f"{rows:,} rows, file groups of {rows // GROUPS * ROW / MIB:,.0f} MiB in memory\n")
    print(f"{'verb':12} {'peak MiB':>9} {'bound MiB':>10} {'s':>7}")
    with tempfile.TemporaryDirectory() as folder:
        uri = f"{folder}/table"
        for verb in verbs(uri, rows, mor.Opening()):
            command = [sys.executable, __file__, "--verb", verb, "--uri", uri, "--rows", str(rows)]
            command += [] if limit is None else ["--limit", str(limit)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{verb:12} failed: {done.stderr.strip().splitlines()[-1]}", flush=True)
                continue
            peak, seconds = done.stdout.split()
            bound = bound_of(verb, rows, at_once(limit))
            print(f"{verb:12} {int(peak) / MIB:9,.0f} {bound / MIB:10,.0f} {seconds:>7}", flush=True)
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--millions", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--limit", type=int)
    parser.add_argument("--verb", help=argparse.SUPPRESS)
    parser.add_argument("--uri", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.verb:
        measure(args.verb, args.uri, args.rows, args.limit)
        return
    for rows in [100_000] if args.small else [millions * 1_000_000 for millions in args.millions]:
        report(rows, args.limit)


if __name__ == "__main__":
    main()

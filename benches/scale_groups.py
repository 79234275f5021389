"""The part `groups` of `scale.py`: operations on one partition of tables with 10 to 100,000 partitions.

Each partition is a file group of two rows. The largest table is a copy of the table of 1,000 partitions, and its first
commit names 100,000 file groups. Most of them have no file, and nothing here reads these.

The last row of the first table has the exponents between 1,000 and 100,000 partitions: 0 is flat, 1 is linear.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl

import crdt_mor as mor

SCHEMA = {"p": pl.Int32, "id": pl.Int64, "v": pl.Int64}
REAL = (10, 100, 1_000, 10_000)
NAMED = 100_000
"""Partitions of the largest table. Its metadata name them all, and most have no files."""

BASE = 1_000
"""Partitions of the table that the largest is a copy of. Exponents begin here."""

ROUNDS = 7

PROBE = """
import gc, json, sys, time
import crdt_mor as mor
def resident():
    gc.collect()
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))
small, large = sys.argv[1:]
mor.Table(small).scan(filter="p = 1").to_polars()
before = resident()
table = mor.Table(large)
start = time.process_time()
table.scan(filter="p = 1").to_polars()
print(json.dumps([time.process_time() - start, resident() - before]))
"""
"""The first scan of a process after a small table's, which has loaded all code (Linux)."""


def groups(folder: Path, small: bool) -> None:
    """Print the CPU time of each operation at each number of partitions, and the exponents."""
    real, base, named, rounds = ((4, 40), 40, 400, 1) if small else (REAL, BASE, NAMED, ROUNDS)
    tables = {count: folder / str(count) for count in real}
    for count, path in tables.items():
        build(path, count)
    verified = {count: best(mor.Table(path).verify, 1) for count, path in tables.items()}
    tables[named] = naming(tables[base], folder / str(named), named)
    firsts = {count: first_scan(tables[real[0]], path) for count, path in tables.items()}
    found = {count: operations(path, rounds) for count, path in tables.items()}
    show_operations(found, base, named)
    show_linear(firsts, verified)


def build(path: Path, partitions: int) -> None:
    """Create a table with two rows in each partition."""
    numbers = list(range(2 * partitions))
    rows = {"p": [number % partitions for number in numbers], "id": numbers, "v": [1] * len(numbers)}
    mor.Table.create_from(path, pl.DataFrame(rows, SCHEMA), key=["p", "id"], partition_by="p", buckets=1)


def naming(source: Path, path: Path, partitions: int) -> Path:
    """Copy a table, and let the first commit in its wide segment, or in its version, name more file groups."""
    shutil.copytree(source, path)
    metadata = path / ".hoodie/.crdt_mor"
    (file,) = [*metadata.glob("segments/*wide*")] or [max(metadata.glob("timeline/*"))]
    document = json.loads(file.read_text())
    files = next(part for part in document["completions"][0] if isinstance(part, list) and len(part) > 1)
    for number in range(len(files), partitions):
        name, *figures = files[number % len(files)]
        files.append([f"p={number}/{name.partition('/')[2]}", *figures])
    file.write_text(json.dumps(document, separators=(",", ":")))
    return path


def operations(path: Path, rounds: int) -> dict[str, float]:
    """Return the CPU seconds of each operation in a session that has read the table before."""
    table = mor.Table(path)
    row = pl.DataFrame({"p": [0], "id": [0], "v": [2]}, SCHEMA)
    since, until = table.upsert(row), table.upsert(row)
    works: dict[str, Callable[[], object]] = {
        "open": lambda: mor.Table(path),
        "commit of a row": lambda: table.upsert(row),
        "scan": lambda: table.scan(filter="p = 1").to_polars(),
        "lookup": lambda: table.scan(filter="p = 1 and id = 1").to_polars(),
        "changes": lambda: table.changes(since=since, until=until).to_polars(),
        "verify": lambda: table.verify(partitions=[1]),
        "update": lambda: table.update({"v": "v + 1"}, where="p = 1"),
    }
    for work in works.values():
        work()
    return {name: best(work, rounds) for name, work in works.items()}


def best(work: Callable[[], object], rounds: int) -> float:
    """Return the least CPU seconds of some rounds."""
    found = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def first_scan(small: Path, large: Path) -> tuple[float, float]:
    """Return the CPU seconds of a process's first scan, and the bytes that the process then holds of the table."""
    command = [sys.executable, "-c", PROBE, str(small), str(large)]
    seconds, held = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return seconds, held


def show_operations(found: Mapping[int, Mapping[str, float]], base: int, named: int) -> None:
    names = list(found[base])
    print(f"\n| partitions | {' | '.join(f'{name}, ms' for name in names)} |\n|---{'|---' * len(names)}|")
    for count, figures in found.items():
        print(f"| {count:,} | {' | '.join(f'{1000 * figures[name]:.1f}' for name in names)} |", flush=True)
    growth = [math.log(found[named][name] / found[base][name]) / math.log(named / base) for name in names]
    print(f"| exponent from {base:,} | {' | '.join(f'{exponent:.2f}' for exponent in growth)} |")


def show_linear(firsts: Mapping[int, tuple[float, float]], verified: Mapping[int, float]) -> None:
    print("\n| partitions | first scan, ms | its KiB a file group | verify, ms a file group |\n|---|---|---|---|")
    for count, (seconds, held) in firsts.items():
        whole = f"{1000 * verified[count] / count:.2f}" if count in verified else "-"
        print(f"| {count:,} | {1000 * seconds:.1f} | {held / count / 1024:.2f} | {whole} |")

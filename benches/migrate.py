"""A table of a million rows moves, beside writers that commit 20 times a second: how long writers are turned away.

    python benches/migrate.py                # 1,000,000 rows: 4 to 32 buckets, and no partitions to partitions
    python benches/migrate.py --small        # 20,000 rows

Four processes write, together at the rate that is asked for, ten rows a commit, a fifth of them new, each with a token.
They follow `TableMovedError` and `TableArrivingError` as docs/migrating.md shows, and note how long each commit took
from its due time. Another one migrates. In the end the new table is held against what was written, key by key.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import polars as pl

import crdt_mor as mor

RATE = 20
WRITERS = 4
KEYS = 10
DAYS = 20
SECONDS_BEFORE = 4
"""How long writers write before the migration begins; of the latter half the rate is said."""

SCHEMA = {"id": pl.Int64, "day": pl.String, "n": pl.Int64, "text": pl.String}


def rows(ids: list[int], n: int) -> pl.DataFrame:
    days = [f"d{i % DAYS:02}" for i in ids]
    frame = pl.DataFrame({"id": ids, "day": days}, schema={"id": pl.Int64, "day": pl.String})
    return frame.with_columns(n=pl.lit(n, pl.Int64), text=pl.format("row {} of commit {}", "id", pl.lit(n)))


def keys_of(writer: int, number: int, size: int) -> list[int]:
    """The keys of a commit: old ones from all over the table, and new ones. No other writer has any of them."""
    new = KEYS // 5
    old = [(number * 7_919 + i * 104_729) % (size // WRITERS) for i in range(KEYS - new)]
    return [key * WRITERS + writer for key in old + [size // WRITERS + number * new + i for i in range(new)]]


def write(address: str, log: str, writer: int, size: int, rate: float, stop: Event) -> None:
    """Commits at a rate until it is told to stop; notes the due time, the end and the address of each."""
    table, number, started = mor.Table(address), 0, time.time()
    with open(log, "w") as lines:
        while not stop.is_set():
            due = started + number / rate
            if due > time.time():
                time.sleep(due - time.time())
            number += 1
            while True:
                try:
                    table.upsert(rows(keys_of(writer, number, size), number), token=(f"writer{writer}", number))
                    break
                except mor.errors.TableMovedError as moved:
                    table = mor.Table(moved.uri)
                except mor.errors.TableArrivingError:
                    time.sleep(0.02)
            lines.write(json.dumps([max(due, started), time.time(), table.uri]) + "\n")
            lines.flush()


def noted_in(log: Path) -> list[tuple[float, float, str]]:
    """Due time, end and address of the commits of one writer."""
    return [tuple(json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []


def measure(folder: Path, size: int, rate: float, created: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Move a table of so many rows beside writers."""
    old, new = str(folder / "old"), str(folder / "new")
    table = mor.Table.create(old, SCHEMA, key="id", **created)
    for first in range(0, size, 250_000):
        table.append(rows(list(range(first, min(size, first + 250_000))), 0))
    table.maintenance.compact()
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    logs = [folder / f"log{writer}" for writer in range(WRITERS)]
    writers = [
        context.Process(target=write, args=(old, str(log), i, size, rate / WRITERS, stop)) for i, log in enumerate(logs)
    ]
    for writer in writers:
        writer.start()
    while min(len(noted_in(log)) for log in logs) < SECONDS_BEFORE * rate / WRITERS:
        time.sleep(0.05)
    start = time.time()
    done = table.maintenance.migrate(new, **wanted)
    took = time.time() - start
    while not all(noted_in(log)[-1][2] == new for log in logs):
        time.sleep(0.05)
    time.sleep(1)
    stop.set()
    for writer in writers:
        writer.join()
    noted = [noted_in(log) for log in logs]
    require_all(new, noted, size)
    commits = [commit for of_one in noted for commit in of_one]
    before = sum(start - SECONDS_BEFORE / 2 <= end < start for _, end, _ in commits) / (SECONDS_BEFORE / 2)
    during = sum(start <= end <= start + took for _, end, _ in commits)
    late = [1000 * (end - due) for due, end, _ in commits if end > start - SECONDS_BEFORE / 2]
    return {
        "rows": mor.Table(new).scan().count(),
        "commits_a_second_before": before,
        "took_s": took,
        "rows_copied": done.copied_rows,
        "commits_of_the_copy": done.commits,
        "commits_beside_it": during,
        "turned_away_ms": 1000 * done.turned_away.total_seconds(),
        "latest_commit_ms": max(late),
        "median_commit_ms": statistics.median(late),
    }


def require_all(address: str, noted: Sequence[Sequence[object]], size: int) -> None:
    """Hold the table against all that was committed."""
    last: dict[int, int] = {}
    for writer, commits in enumerate(noted):
        for number in range(1, len(commits) + 1):
            last |= dict.fromkeys(keys_of(writer, number, size), number)
    meant = pl.DataFrame({"id": list(last), "n": list(last.values())}, schema={"id": pl.Int64, "n": pl.Int64})
    shown = mor.Table(address).scan(columns=["id", "n"]).to_polars()
    written = shown.filter(pl.col("n") > 0)
    assert written.sort("id").equals(meant.sort("id")), "a commit was lost"
    height = size + sum(key >= size for key in last)
    assert shown.height == shown["id"].n_unique() == height, "a row was lost, or is twice"


MOVES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "4 to 32 buckets": ({"buckets": 4}, {"buckets": 32}),
    "no partitions to 20": ({"buckets": 4}, {"partition_by": "day", "buckets": 1}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="20,000 rows")
    parser.add_argument("--rate", type=float, default=RATE, help="commits a second")
    parser.add_argument("--folder", type=Path, help="where the tables are; else a temporary folder")
    given = parser.parse_args()
    size = 20_000 if given.small else 1_000_000
    for name, (created, wanted) in MOVES.items():
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            found = measure(Path(folder), size, given.rate, created, wanted)
        figures = ", ".join(f"{k} {v:,.0f}" if isinstance(v, int) else f"{k} {v:,.1f}" for k, v in found.items())
        sys.stdout.write(f"{name}: {figures}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

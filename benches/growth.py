"""A table that grows by small commits, with `maintain` and without: what opening, committing, planning a scan cost.

At some numbers of commits: milliseconds, those of CPU among them, and store requests of opening the table in a new
handle, of a commit of a handle that is open, and of planning a scan (no data file is read); then the files and bytes on
disk, and the bytes of the newest version of the timeline. Medians of a few rounds. The last line of each table is the
ratio of the last decade to the first: with `maintain` all of them are to stay flat. A second pair of tables has many
file groups, and each commit touches them all.

Upkeep keeps the last commits only (`crdt_mor.retention.commits`), spares no reader, and runs every so many commits. In
the wide table it keeps two commits, and compacts whatever has two logs.

    python benches/growth.py                     # hours: 20,000 commits, and 500 of 2,000 file groups
    python benches/growth.py --commits 2000      # as far as you have time
    python benches/growth.py --small
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

import crdt_mor as mor
from crdt_mor.store.local import LocalStore
from crdt_mor.testing.faults import DelegatingStore

T = TypeVar("T")

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
ROUNDS = 5
WIDE_ROUNDS = 1
KEYS = 1_000
"""Different keys that the small commits write, one after the other."""

POLICIES = {"crdt_mor.retention": "0s", "crdt_mor.retention.commits": "20", "crdt_mor.readers": "0s"}
WIDE_POLICIES = POLICIES | {"crdt_mor.retention.commits": "2", "crdt_mor.compaction.log_files": "2"}
WORK = ["open", "commit", "plan"]
MEASURED = [f"{work}_{what}" for work in WORK for what in ("ms", "cpu", "req")]
COLUMNS = [*MEASURED, "files", "MiB", "value_KiB"]
Figures = dict[str, float]


class CountingStore(DelegatingStore):
    """Counts the calls that an object store would be sent. The clock and waits for the disk are none."""

    requests = 0

    def around(self, operation: str, path: str, call: Callable[[], T]) -> T:  # noqa: ARG002
        if operation not in ("now_ms", "make_durable"):
            self.requests += 1
        return call()


def measured(store: CountingStore, work: Callable[[], T]) -> tuple[T, list[float]]:
    """What work returns; its milliseconds, those of this process's CPU among them, and its requests of the store."""
    requests, start, cpu = store.requests, time.perf_counter(), time.process_time()
    done = work()
    taken = time.perf_counter() - start
    return done, [1000 * taken, 1000 * (time.process_time() - cpu), store.requests - requests]


def figures(path: Path, batch: Callable[[int], pa.Table], first: int, rounds: int) -> Figures:
    """All figures of a table as it stands. It gets two commits more in each round."""
    found: list[list[float]] = []
    for number in range(first, first + rounds):
        store = CountingStore(LocalStore(path))
        table, opening = measured(store, lambda store=store: opened(path, store))  # type: ignore[misc]
        _, planning = measured(store, lambda table=table: table.scan().parts())  # type: ignore[misc]
        table.upsert(batch(number))  # the first one begins the handle's upkeep
        rows = batch(number)
        _, committing = measured(store, lambda table=table, rows=rows: table.upsert(rows))  # type: ignore[misc]
        found.append([*opening, *committing, *planning])
    files = [file.stat().st_size for file in path.rglob("*") if file.is_file()]
    newest = max((path / ".hoodie/.crdt_mor/timeline").iterdir(), key=lambda file: file.name)
    result = {name: statistics.median(values) for name, values in zip(MEASURED, zip(*found, strict=True), strict=True)}
    return result | {"files": len(files), "MiB": sum(files) / 2**20, "value_KiB": newest.stat().st_size / 1024}


def opened(path: Path, store: CountingStore) -> mor.Table:
    """A handle that has looked at the table as it is."""
    table = mor.Table(path, opening=mor.Opening(store=store))
    table.scan()
    return table


def maintain(table: mor.Table) -> None:
    table.maintenance.maintain()
    table.maintenance.archive()


def grow(
    path: Path, levels: Sequence[int], every: int, buckets: int, batch: Callable[[int], pa.Table], upkeep: bool
) -> dict[int, Figures]:
    """The figures of a table at these numbers of commits. Upkeep: every so many, and before each measurement."""
    table = mor.Table.create(path, SCHEMA, key="id", buckets=buckets)
    table.set_properties({"crdt_mor.maintain": "off"})
    rounds = ROUNDS if buckets == 1 else WIDE_ROUNDS
    if upkeep:
        table.set_properties(POLICIES if buckets == 1 else WIDE_POLICIES)
    found: dict[int, Figures] = {}
    done = 0
    for level in levels:
        for number in range(done, level):
            table.upsert(batch(number))
            if upkeep and number % every == every - 1:
                maintain(table)
        done = max(done, level)
        if upkeep:
            maintain(table)
        found[level] = figures(path, batch, done, rounds)
        done += 2 * rounds
        print(f"{level:>7,}  " + "  ".join(f"{found[level][name]:>10,.1f}" for name in COLUMNS), flush=True)
    return found


def last_by_first(found: dict[int, Figures]) -> Figures:
    """Each figure's mean over the last decade of commits, by that over the first."""
    first, last = min(found), max(found)
    early = [figures for level, figures in found.items() if level <= 10 * first]
    late = [figures for level, figures in found.items() if level >= last / 10]
    return {name: mean(late, name) / max(mean(early, name), 1e-9) for name in COLUMNS}


def mean(found: Sequence[Figures], name: str) -> float:
    return statistics.mean(figures[name] for figures in found)


def show(
    title: str, path: Path, levels: Sequence[int], every: int, buckets: int, batch: Callable[[int], pa.Table]
) -> list[object]:
    """One table with upkeep and one without."""
    results: list[object] = []
    for upkeep in (True, False):
        print(f"\n{title}, {f'maintain every {every} commits' if upkeep else 'never maintained'}")
        print("commits  " + "  ".join(f"{name:>10}" for name in COLUMNS))
        found = grow(path / f"{buckets}-{upkeep}", levels, every, buckets, batch, upkeep)
        ratio = last_by_first(found)
        print("ratio    " + "  ".join(f"{ratio[name]:>10.2f}" for name in COLUMNS), flush=True)
        results.append({"title": title, "maintain": upkeep, "levels": found, "last_by_first": ratio})
        shutil.rmtree(path / f"{buckets}-{upkeep}")
    return results


def decades(most: int, first: int = 10) -> list[int]:
    """10, 20, 50, 100, ... up to `most`."""
    steps = [first * 10**power * factor for power in range(8) for factor in (1, 2, 5)]
    return [*(step for step in steps if step < most), most]


def one_row(number: int) -> pa.Table:
    return pa.table({"id": [f"{number % KEYS:06d}"], "n": [number]}, SCHEMA)


def all_groups(buckets: int) -> Callable[[int], pa.Table]:
    """Batches whose keys fall into about all buckets."""
    keys = [f"{key:08d}" for key in range(8 * buckets)]
    return lambda number: pa.table({"id": keys, "n": [number] * len(keys)}, SCHEMA)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="seconds, to see that it runs")
    parser.add_argument("--commits", type=int, default=20_000, help="how far the table of small commits grows")
    parser.add_argument("--wide-commits", type=int, default=500, help="the same for the table of many file groups")
    parser.add_argument("--groups", type=int, default=2_000, help="how many file groups that table has")
    parser.add_argument("--every", type=int, default=50, help="upkeep after so many commits")
    parser.add_argument("--folder", type=Path, help="where the tables are made; a temporary folder by default")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    args = parser.parse_args()
    commits, wide, groups, every = args.commits, args.wide_commits, args.groups, args.every
    if args.small:
        commits, wide, groups, every = 40, 6, 20, 10
    folder = Path(tempfile.mkdtemp(prefix="growth-", dir=args.folder))
    try:
        results = show("one row a commit", folder, decades(commits), every, 1, one_row)
        if wide:
            title = f"{groups:,} file groups, all of them in each commit"
            results += show(title, folder, decades(wide, 2), max(2, every // 10), groups, all_groups(groups))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

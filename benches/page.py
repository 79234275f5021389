"""The page of `crdt-mor ui` for a table of many commits: processor time to open the table and make the page.

Two rows a commit in four file groups. One table is maintained after every 500 commits, the other never. Medians of five
pages, each of a new handle; imports are not counted.

    python benches/page.py                  # 5,000 commits
    python benches/page.py --small
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa

import crdt_mor as mor
from crdt_mor.cli.ui.page import html
from crdt_mor.cli.ui.report import report_of

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])
KEYS = 1_000
ROUNDS = 5
EVERY = 500


def rows(number: int) -> pa.Table:
    return pa.table({"id": [number % KEYS, number * 7 % KEYS], "n": [number, number]}, schema=SCHEMA)


def grow(folder: Path, commits: int, maintained: bool) -> None:
    table = mor.Table.create(folder, SCHEMA, key="id", buckets=4)
    for number in range(commits):
        table.upsert(rows(number))
        if maintained and number % EVERY == EVERY - 1:
            table.maintenance.maintain()


def measured(folder: Path) -> float:
    begin = time.process_time()
    report = report_of(mor.Table(folder), str(folder))
    html({**report, "live": False, "lives": []})
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="seconds, to see that it runs")
    parser.add_argument("--commits", type=int, default=5_000)
    args = parser.parse_args()
    commits = 40 if args.small else args.commits
    folder = Path(tempfile.mkdtemp(prefix="page-"))
    try:
        for maintained in (True, False):
            place = folder / str(maintained)
            grow(place, commits, maintained)
            measured(place)
            seconds = statistics.median(measured(place) for _ in range(ROUNDS))
            print(f"{commits:,} commits, {'maintained' if maintained else 'never maintained'}: {seconds:.2f} s of CPU")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

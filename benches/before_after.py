"""What the code costs now beside an earlier revision, on the same work in turns: processor time, and time on a clock.

The revision is checked out beside the tree. Each of the two trees has a process of its own, which makes its own tables
through the public API, as the files that it writes are part of what is measured. Then the processes take turns: in each
round both do the same work once, in random order. A ratio is that of the least times of all rounds, which other work on
the machine disturbs least; beside it is the median of the rounds' own ratios.

Where others use the machine, a tree beside itself gave ratios from 0.93 to 1.08 of 40 rounds of a scan: a difference of
that size is shown by 250 rounds, or by counting instructions (`valgrind --tool=callgrind`, POLARS_MAX_THREADS=1).

    python -m benches.before_after f1d32c9          # the release whose goals the works name; about 25 minutes
    python -m benches.before_after HEAD~1 --only scan --rounds 5
    python -m benches.before_after                  # the tree beside itself: what of a ratio is chance
    python -m benches.before_after f1d32c9 --plot docs/before-after.svg       # needs matplotlib

Both processes run with the packages of this environment. What they read is compared first, row by row in any order.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

HERE: Final = Path(__file__).resolve().parent
ROUNDS: Final = 9


@dataclass(frozen=True)
class Work:
    """What is timed. goal: the ratio to `f1d32c9` that it is to reach.

    world: the shape of its table, as `benches.suite` has it.
    calls: how often one round does it, of which a call's time is reported. rounds_max: of dear work fewer rounds.
    """

    name: str
    goal: float
    does: str
    world: Mapping[str, Any]
    calls: int = 1
    rounds_max: int = 99


WORKS: Final = (
    Work("scan, 10 logs of 1 %", 0.9, "scan", {}),
    Work("scan, 10 logs of 5 %", 0.9, "scan", {"percent": 5}),
    Work("scan, 50 logs of 1 %", 0.9, "scan", {"logs": 50}),
    Work("scan, 8 groups, 10 logs of 1 %", 0.94, "scan", {"groups": 8}),
    Work("scan, 2 of 10 columns, 10 logs of 1 %", 0.85, "narrow", {}),
    Work("scan, ordering column", 0.86, "scan", {"merge": "ordering"}),
    Work("scan, partial updates", 0.82, "scan", {"merge": "partial"}),
    Work("scan, counters", 0.88, "scan", {"merge": "counter"}),
    Work("scan, 30 logs of 1 %, as in the RFC's story", 0.84, "scan", {"logs": 30}),
    Work("scan, 2 of 10 columns, 30 logs of 1 %", 0.70, "narrow", {"logs": 30}),
    Work("scan, 200 partitions of 4 groups, 10 logs", 0.61, "scan", {"groups": 4, "partitions": 200}, rounds_max=5),
    Work("scan, never compacted", 1.0, "scan", {"compacted": False}),
    Work("scan again, 10 logs of 1 %", 0.76, "scan again", {}),
    Work("scan again, 30 logs of 1 %", 0.67, "scan again", {"logs": 30}),
    Work("scan again, 8 groups, 10 logs of 1 %", 0.79, "scan again", {"groups": 8}),
    Work("scan again, 2 of 10 columns, 10 logs of 1 %", 0.38, "narrow again", {}),
    Work("scan again, 2 of 10 columns, 30 logs of 1 %", 0.35, "narrow again", {"logs": 30}),
    Work("changes of 10 commits, with images", 0.25, "images", {}),
    Work("100 keys, 50 logs of 1 %", 0.39, "keys", {"logs": 50}),
    Work("one key, table opened before", 0.38, "key", {}, calls=5),
    Work("upsert of 10,000 rows into 4 groups", 1.0, "upsert", {"groups": 4, "logs": 0}, calls=5),
    Work("commit of one row", 0.77, "commit", {"rows": 1000, "logs": 0}, calls=40),
    Work("commit of 4,800 rows into 800 groups", 1.0, "wide", {"rows": 1000, "groups": 800, "logs": 0}, rounds_max=3),
    Work("open, 5,000 commits", 1.0, "open", {"rows": 1000, "logs": 0}),
    Work("import", 1.0, "import", {}, rounds_max=20),
    Work("import, open, scan", 1.0, "first scan", {"rows": 1000, "logs": 3}, rounds_max=20),
    Work("crdt-mor --help", 1.0, "help", {}, rounds_max=20),
)

READS: Final = ("scan", "narrow", "scan again", "narrow again", "images", "keys", "key")
"""What is done of a table that is only read."""

STANDS_ON: Final = (
    "import polars, pyarrow.parquet; start, begun = time.process_time(), time.perf_counter(); import crdt_mor"
)

IN_A_NEW_PROCESS: Final = {
    "import": STANDS_ON,
    "first scan": f"{STANDS_ON}; crdt_mor.Table(sys.argv[1]).scan().to_polars()",
    "help": (
        "start, begun = 0, time.perf_counter(); from crdt_mor.cli.main import app;"
        " app(['--help'], standalone_mode=False)"
    ),
}
"""Programs; the import and the first scan are timed beyond what they stand on, the command from its process's start,
but for the time on a clock, which begins with the program's first line."""

Times = list[float]
"""Milliseconds of processor time, and of time on a clock."""

SMALL: Final = {"rows": 20_000, "logs": 3, "groups": 16, "partitions": 3}


# --- the process of one tree ------------------------------------------------------------------------------------------


def serve(folder: Path, small: bool) -> None:
    """Make tables and do work, as the lines of standard input say; answer each with a line of JSON."""
    works = {work.name: work for work in WORKS}
    calls: dict[str, Callable[[], object]] = {}
    for line in sys.stdin:
        order, name = json.loads(line)
        if order == "make":
            calls[name], answer = _made(works[name], folder, small)
        elif name in calls and works[name].does not in IN_A_NEW_PROCESS:
            answer = _timed(calls[name], works[name].calls)
        elif name in calls:
            answer = calls[name]()
        else:
            answer = _time_in_a_new_process(works[name].does)
        print(json.dumps(answer), flush=True)


def _made(work: Work, folder: Path, small: bool) -> tuple[Callable[[], object], object]:
    """The call that does a piece of work, and what it reads, as a number of rows and a sum of their hashes."""
    import crdt_mor as mor

    worlds = _worlds()
    shape = dict(work.world)
    if small:
        shape |= {name: min(most, shape.get(name, getattr(worlds.World, name))) for name, most in SMALL.items()}
    world, path = worlds.World(**shape), folder / "".join(c if c.isalnum() else "-" for c in work.name)
    worlds.build(world, path)
    table = mor.Table(path)
    count = {"upsert": 10_000, "commit": 1, "wide": 4_800}.get(work.does, 0)
    numbers = iter(range(1_000_000))

    def batch() -> Any:
        return world.data(np.random.default_rng(next(numbers)).choice(1_000_000, count, replace=False), 7)

    if work.does == "first scan":
        return lambda: _time_in_a_new_process(work.does, path), _content(table.scan().to_polars())
    if work.does in READS:
        return _read(work.does, worlds, world, table), _content(table.scan().to_polars())
    if work.does == "open":
        for number in range(50 if small else 5_000):
            table.upsert(world.data(np.array([number % 1000]), 7))
            if number % 100 == 99 and hasattr(table.maintenance, "maintain"):
                table.maintenance.maintain()
                table.maintenance.archive()
        return lambda: mor.Table(path).version, 0
    made = [batch() for _ in range(10)]
    turn = iter(range(1_000_000))
    return lambda: table.upsert(made[next(turn) % len(made)]), 0


def _read(does: str, worlds: Any, world: Any, table: Any) -> Callable[[], object]:
    """The call that does a read. A scan opens the table anew, and one that is done again has it open."""
    import crdt_mor as mor

    again, columns = does.endswith("again"), ["n0", "city"] if does.startswith("narrow") else None
    if does.startswith(("scan", "narrow")):
        return lambda: (table if again else mor.Table(table.uri)).scan(columns=columns).to_polars()
    if does == "images":
        since = table.upsert(world.data(np.array([1]), 7))
        worlds.commits(world, table, range(100, 110))
        return lambda: table.changes(since=since, images=True).to_polars()
    keys = worlds.key_text(np.arange(0, world.rows, world.rows // 100), world.keys).to_list()
    asked = keys[50:51] if does == "key" else keys
    return lambda: table.scan(filter=pl.col("id").is_in(asked)).to_polars()


def _content(frame: Any) -> list[int]:
    """Rows in any order."""
    return [frame.height, int(frame.select(sorted(frame.columns)).hash_rows().sum())]


def _worlds() -> Any:
    """The module of tables that is beside this file, whichever tree this process is of."""
    spec = importlib.util.spec_from_file_location("worlds", HERE / "suite" / "worlds.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["worlds"] = module
    spec.loader.exec_module(module)
    return module


def _timed(call: Callable[[], object], calls: int) -> Times:
    """What one call took, with the processor time of all threads."""
    gc.collect()
    start, begun = time.process_time(), time.perf_counter()
    for _ in range(calls):
        result = call()
        del result
    return [(time.process_time() - start) * 1e3 / calls, (time.perf_counter() - begun) * 1e3 / calls]


def _time_in_a_new_process(does: str, *arguments: Path) -> Times:
    """What a program takes in a process of its own."""
    took = "(time.process_time() - start) * 1e3, (time.perf_counter() - begun) * 1e3"
    code = f"import sys, time; {IN_A_NEW_PROCESS[does]}; print({took}, file=sys.stderr)"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return [float(word) for word in done.stderr.split()[-2:]]


# --- both, in turns ---------------------------------------------------------------------------------------------------


class Tree:
    """A process of one tree."""

    def __init__(self, source: Path, folder: Path, small: bool) -> None:
        folder.mkdir()
        command = [sys.executable, "-P", str(HERE / "before_after.py"), "--serve", str(folder)]
        self._process = subprocess.Popen(
            [*command, *(["--small"] if small else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=source,
            env=os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": ""},
        )  # fmt: skip

    def ask(self, order: str, name: str) -> Any:
        """What the process answers to a line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([order, name]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"a process has died. work={name} code={self._process.wait()}")
        return json.loads(answer)

    def end(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def check_out(revision: str | None, folder: Path) -> Path:
    """The files of a revision of this repository; None: the tree as it is."""
    if revision is None:
        return HERE.parent
    command = ["git", "archive", revision, "crdt_mor", "payloads", "readers"]
    archive = subprocess.run(command, cwd=HERE.parent, check=True, stdout=subprocess.PIPE)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def measure(work: Work, before: Tree, after: Tree, rounds: int) -> dict[str, float]:
    """The times of a piece of work, and their ratios."""
    if work.world or work.does not in IN_A_NEW_PROCESS:
        found = [tree.ask("make", work.name) for tree in (before, after)]
        if found[0] != found[1]:
            raise SystemExit(f"the two read other rows. work={work.name} before={found[0]} after={found[1]}")
    pairs: list[dict[str, Times]] = []
    chance = np.random.default_rng(0)
    for number in range(min(rounds, work.rounds_max) + 1):
        trees = {"before": before, "after": after}
        pair = {name: trees[name].ask("do", work.name) for name in chance.permutation(list(trees))}
        pairs += [pair] if number else []
    least = {name: [min(pair[name][kind] for pair in pairs) for kind in (0, 1)] for name in ("before", "after")}
    (before_cpu, before_wall), (after_cpu, after_wall) = least["before"], least["after"]
    return {
        "before": before_cpu, "after": after_cpu, "ratio": after_cpu / before_cpu,
        "paired": statistics.median(pair["after"][0] / pair["before"][0] for pair in pairs), "goal": work.goal,
        "before_wall": before_wall, "after_wall": after_wall, "ratio_wall": after_wall / before_wall,
    }  # fmt: skip


def plot(figures: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """How much of the earlier revision's time each work takes, its milliseconds, and a mark at each goal."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 0.6 + 0.32 * len(figures)), layout="constrained")
    for row, found in enumerate(figures.values()):
        axes.barh(row, found["ratio"], color="tab:green" if found["ratio"] <= found["goal"] else "tab:gray")
        axes.plot([found["goal"]] * 2, [row - 0.4, row + 0.4], color="black", linewidth=2)
        axes.text(1.03, row, f"{found['before']:,.1f} → {found['after']:,.1f} ms", va="center", fontsize=8)
    axes.axvline(1, color="black", linewidth=0.5)
    axes.set(xlim=(0, 1.35), xlabel="processor time, × before; black marks are goals")
    axes.set_yticks(range(len(figures)), list(figures), fontsize=8)
    axes.invert_yaxis()
    figure.savefig(path)


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", nargs="?", help="what git calls the earlier one; by default this very tree")
    parser.add_argument("--only", default="", help="a part of the names of the works to do")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--small", action="store_true", help="seconds, to see that it runs")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    parser.add_argument("--plot", type=Path, help="draw the figures there")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, args.small)
        return
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="before-after-") as name:
        folder = Path(name)
        before = Tree(check_out(args.revision, folder / "tree"), folder / "before", args.small)
        after = Tree(HERE.parent, folder / "after", args.small)
        print("| work | before, CPU ms | after | x before | paired | goal | before, wall ms | after | x before |")
        print("|---|---|---|---|---|---|---|---|---|")
        for work in WORKS:
            if args.only in work.name:
                found = figures[work.name] = measure(work, before, after, 1 if args.small else args.rounds)
                print(
                    f"| {work.name} | {found['before']:.1f} | {found['after']:.1f} | {found['ratio']:.2f} "
                    f"| {found['paired']:.2f} | {found['goal']:.2f} | {found['before_wall']:.1f} "
                    f"| {found['after_wall']:.1f} | {found['ratio_wall']:.2f} |",
                    flush=True,
                )
        before.end()
        after.end()
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))
    if args.plot:
        plot(figures, args.plot)


if __name__ == "__main__":
    main()

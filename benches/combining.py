"""Commits of many writers in one table, with and without groups: simulated, and for real.

The simulation (`tests/simulation/crowd.py`) runs the protocols themselves by a virtual clock, in which every request
takes 30 ms, give or take a third. Its figures are the same on every machine. Writers either never pause, or are jobs:
each commit is made by a process that opens the table anew, one a minute. For real, threads commit to a bucket that moto
plays on this machine, 5 ms away: there moto and this machine's two cores are the limit.

    python benches/combining.py             # some minutes
    python benches/combining.py --small
    python benches/combining.py --plot docs/combining.svg      # needs matplotlib
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Barrier

import pyarrow as pa

import crdt_mor as mor
from benches import stores
from benches.bucket import BUCKET, bucket, far_away
from tests.simulation.crowd import crowd_of

LATENCY_MS = 30
DELAY_MS = 5
Figures = dict[str, float]


def simulated(writers: int, seconds: float, *, combining: bool, think_s: float = 0) -> Figures:
    """Commits a second and what a writer waited for each, once the first third of the time has passed.

    combining: whether writers post, which without it each race for a version alone. think_s: as for `crowd_of`.
    """
    sim = crowd_of(writers, seconds=seconds, latency_ms=LATENCY_MS, combining=combining, think_s=think_s)
    steady = [commit for commit in sim.commits if commit.at > seconds * 1000 / 3]
    return figures(writers, seconds * 2 / 3, [c.took for c in steady]) | {
        "combining": combining, "jobs": bool(think_s), "requests a commit": sim.requests / max(1, len(sim.commits)),
    }  # fmt: skip


def real(writers: int, seconds: float, port: int) -> Figures:
    """The same of threads, each with the table open, in a bucket."""
    uri, given = f"s3://{BUCKET}/crowd-{writers}", stores.Ours.options(port)
    mor.Table.create(uri, stores.ROW, key="id", buckets=1, storage_options=given)
    gate = Barrier(writers)

    def commit(name: str) -> list[float]:
        table = mor.Table.open(uri, storage_options=given)
        row = pa.table({"id": [name], "n": [0]}, stores.ROW)
        table.upsert(row)
        gate.wait()
        took, end = list[float](), time.perf_counter() + seconds
        while (begun := time.perf_counter()) < end:
            table.upsert(row)
            took.append(1000 * (time.perf_counter() - begun))
        return took

    with ThreadPoolExecutor(writers) as pool:
        took = [t for some in pool.map(commit, map(str, range(writers))) for t in some]
    return figures(writers, seconds, took)


def figures(writers: int, seconds: float, took: Sequence[float]) -> Figures:
    waits = sorted(took) or [float("nan")]
    return {
        "writers": writers, "commits/s": len(took) / seconds, "p50 s": statistics.median(waits) / 1000,
        "p99 s": waits[int(len(waits) * 0.99)] / 1000,
    }  # fmt: skip


def plot(found: Sequence[Figures], path: Path) -> None:
    """Commits a second and the latency of all but one in a hundred, by the number of writers."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for axis, name, title in zip(axes, ("commits/s", "p99 s"), ("commits a second", "p99 of a commit, s"), strict=True):
        for combining, label, style in ((True, "groups", "o-"), (False, "each for itself", "s--")):
            some = [f for f in found if f.get("combining") == combining and not f.get("jobs")]
            axis.plot([f["writers"] for f in some], [f[name] for f in some], style, label=label)
        axis.set(xscale="log", xlabel=f"writers, {LATENCY_MS} ms a request", title=title)
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0].legend(frameon=False)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="seconds, to see that it runs")
    parser.add_argument("--plot", type=Path, help="draw the simulated figures there")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    args = parser.parse_args()
    crowds: list[tuple[int, float]] = [(1, 6), (10, 6)]
    jobs: list[tuple[int, float]] = [(30, 12)]
    if not args.small:
        crowds, jobs = [(1, 30), (10, 60), (100, 60), (1000, 15)], [(300, 120), (1000, 120)]
    print(f"simulated, {LATENCY_MS} ms a request")
    found = shown(partial(simulated, *crowd, combining=c) for crowd in crowds for c in (False, True))
    found += shown(partial(simulated, *some, combining=True, think_s=60) for some in jobs)
    if args.plot:
        plot(found, args.plot)
    if find_spec("moto") is None or find_spec("flask") is None:
        print("skipped: there is no moto here, which `make setup` installs")
    else:
        threads: list[tuple[int, float]] = [(1, 1), (4, 1)] if args.small else [(1, 10), (8, 20), (32, 40)]
        with bucket() as port, far_away(port, DELAY_MS) as away:
            print(f"threads, in a bucket that moto plays, {DELAY_MS} ms away")
            found += shown(partial(real, *some, away) for some in threads)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


def shown(measures: Iterable[Callable[[], Figures]]) -> list[Figures]:
    found = []
    for measure in measures:
        found.append(measure())
        print("   ".join(f"{name} {value:,.2f}" for name, value in found[-1].items()), flush=True)
    return found


if __name__ == "__main__":
    main()

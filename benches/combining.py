"""Commits of many writers in one table, with and without groups: simulated, and for real beside other engines.

The simulation (`tests/simulation/crowd.py`) runs the protocols themselves by a virtual clock, in which every request
takes 30 ms, give or take a third. Its figures are the same on every machine. Writers either never pause, or are jobs:
each commit is made by a process that opens the table anew, one a minute.

For real, processes write three rows at a time (`benches/combining_real.py`) to a bucket on this machine that is 30 ms
away for all of them (`benches/s3.py`), by each engine of `benches/combining_engines.py`. The first one is no engine: it
only puts objects, which shows that the bucket is not what limits the others.

    pip install -e '.[peers]'               # delta-rs, Lance and pyiceberg; what is not installed is left out
    python benches/combining.py             # about an hour, most of it simulated
    python benches/combining.py --engines "crdt_mor;Lance, merge_insert" --only real
    python benches/combining.py --small
    python benches/combining.py --plot docs/combining.svg      # needs matplotlib
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from benches.bucket import bucket, ceiling
from benches.combining_engines import ENGINES, remove_catalogs
from benches.combining_real import Figures, is_installed, measured, waits
from tests.simulation.crowd import crowd_of

LATENCY_MS = 30
BEFORE: tuple[Figures, ...] = (
    {"writers": 10, "commits/s": 8.0, "p99 s": 2.0},
    {"writers": 100, "commits/s": 23, "p99 s": 5.8},
    {"writers": 1000, "commits/s": 26, "p99 s": 49},
)
"""The same simulation at e1dd531, where writers posted begins and ends and no whole writes."""


def simulated(writers: int, seconds: float, *, combining: bool, think_s: float = 0) -> Figures:
    """Commits a second and what a writer waited for each, once the first third of the time has passed.

    combining: whether writers post, which without it each race for a version alone. think_s: as for `crowd_of`.
    """
    sim = crowd_of(writers, seconds=seconds, latency_ms=LATENCY_MS, combining=combining, think_s=think_s)
    took = [commit.took / 1000 for commit in sim.commits if commit.at > seconds * 1000 / 3]
    return {
        "writers": writers, "groups": combining, "jobs": bool(think_s), "commits/s": len(took) / (seconds * 2 / 3),
        **waits(took), "requests a commit": sim.requests / max(1, len(sim.commits)),
    }  # fmt: skip


def plot(found: Sequence[Figures], path: Path) -> None:
    """Commits a second and the latency of all but one in a hundred, by the number of writers that never pause."""
    import matplotlib.pyplot as plt

    crowds = [f for f in found if "groups" in f and not f["jobs"]]
    lines = {
        "now: in groups": ("o-", [f for f in crowds if f["groups"]]),
        "before: begins and ends combined": ("s--", list(BEFORE)),
        "each for itself": ("^:", [f for f in crowds if not f["groups"]]),
    }
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for axis, name, title in zip(axes, ("commits/s", "p99 s"), ("commits a second", "p99 of a commit, s"), strict=True):
        for label, (style, some) in lines.items():
            axis.plot([f["writers"] for f in some], [f[name] for f in some], style, label=label)
        axis.set(xscale="log", yscale="log", xlabel=f"writers, {LATENCY_MS} ms a request", title=title)
        for one in (axis.xaxis, axis.yaxis):
            one.set_major_formatter("{x:,.7g}")
        axis.grid(alpha=0.3)
    axes[0].legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="seconds, to see that it runs")
    parser.add_argument("--only", choices=("simulated", "real"), help="one of the two kinds of figures")
    parser.add_argument("--engines", default=";".join(ENGINES), help="those to measure for real, between semicolons")
    parser.add_argument("--plot", type=Path, help="draw the simulated figures there")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    args = parser.parse_args()
    engines = args.engines.split(";")
    if unknown := set(engines) - set(ENGINES):
        parser.error(f"there is no engine {'; '.join(sorted(unknown))}. There are {'; '.join(ENGINES)}")
    found = list[Figures]()
    if args.only != "real":
        found += all_simulated(args.small)
    if args.only != "simulated":
        found += all_real(engines, args.small)
    if args.plot:
        plot(found, args.plot)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


def all_simulated(small: bool) -> list[Figures]:
    """Writers that never pause, each for itself and in groups, and jobs. A thousand are simulated in groups alone."""
    print(f"simulated, {LATENCY_MS} ms a request")
    crowds: list[tuple[int, float]] = [(1, 6), (10, 6)] if small else [(1, 30), (10, 60), (100, 60)]
    jobs: list[tuple[int, float]] = [(30, 12)] if small else [(300, 120), (1000, 120)]
    found = shown(partial(simulated, *crowd, combining=c) for crowd in crowds for c in (False, True))
    if not small:
        found += shown([partial(simulated, 1000, 9, combining=True)])
    return found + shown(partial(simulated, *some, combining=True, think_s=60) for some in jobs)


def all_real(engines: Sequence[str], small: bool) -> list[Figures]:
    """Processes that write for some seconds, by each engine that is installed."""
    counts, seconds = ([1, 3], 1.0) if small else ([1, 8, 32], 20.0)
    found = list[Figures]()
    with bucket(0, LATENCY_MS) as (near, away):
        print(f"real, {LATENCY_MS} ms a request; the bucket itself:")
        found += shown([partial(ceiling, near, 1.0)])
        for engine in engines:
            if not is_installed(engine):
                print(f"{engine}: not installed, see `pip install -e '.[peers]'`")
                continue
            found += shown(partial(measured, engine, away, count, seconds) for count in counts)
    remove_catalogs(away)
    return found


def shown(measures: Iterable[Callable[[], Figures]]) -> list[Figures]:
    found = []
    for measure in measures:
        found.append(measure())
        print("   ".join(f"{name} {told(value)}" for name, value in found[-1].items()), flush=True)
    return found


def told(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()

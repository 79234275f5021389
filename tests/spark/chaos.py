"""Three streams write the same counters, drivers and executors are killed: `python -m tests.spark.chaos --minutes 5`

    driver A   a standalone cluster   queries a and b   killed now and then, as are its executors
    driver B   two threads            query c           killed now and then
    here       more increments all the time, compactions, and the count of what must come out

In the end every increment is in the table exactly once, and no query has ended by itself.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crdt_mor import Table
from tests import waiting
from tests.spark.counting import counters, driver, feed, kill, total
from tests.spark.processes import named
from tests.spark.sessions import LOCAL
from tests.spark.standalone import Cluster

ROWS = 10
FILES = "20"
"""A batch takes as many files: what a killed driver left unread is soon written."""
PATIENCE = 120
"""So many seconds without one more increment mean that none is coming: what has piled up may take longer in all."""


@dataclass
class Driver:
    """A driver that is started again whenever it was killed."""

    home: Path
    table: str
    queries: tuple[str, ...]
    master: str
    environment: Mapping[str, str]
    process: subprocess.Popen[str] = field(init=False)
    kills: int = 0

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        options = ["--master", self.master, "--files", FILES]
        self.process = driver(self.home, self.table, *self.queries, options=options, environment=self.environment)

    def kill(self) -> None:
        kill(self.process)
        self.kills += 1
        self.start()

    def check(self) -> None:
        assert self.process.poll() is None, "a query has ended:\n" + self.log()[-4000:]

    def log(self) -> str:
        return (self.home / f"{'-'.join(self.queries)}.log").read_text()


def run(folder: Path, seconds: float, seed: int) -> dict[str, int]:
    """Chaos for so long, then peace until all is counted; what happened."""
    cluster = Cluster(folder / "cluster", {})
    try:
        return on(cluster, folder, seconds, seed)
    finally:
        cluster.stop()


def on(cluster: Cluster, folder: Path, seconds: float, seed: int) -> dict[str, int]:
    chance = random.Random(seed)
    table = counters(folder / "t")
    names = ("a", "b", "c")
    written = dict.fromkeys(names, 0)

    def write(name: str) -> None:
        feed(folder / name, written[name], ROWS)
        written[name] += 1

    for name in names:
        write(name)
    drivers = [
        Driver(folder, table.uri, ("a", "b"), cluster.master, cluster.environment),
        Driver(folder, table.uri, ("c",), LOCAL, cluster.environment),
    ]
    kills = executors = compactions = 0
    try:
        while total(table) == 0:  # until the first batch the clock does not run
            drivers[0].check()
            waiting.let_run(0.5)
        end = time.monotonic() + seconds
        next_kill = time.monotonic() + chance.uniform(2, 8)
        while time.monotonic() < end:
            for name in names:
                write(name)
            if time.monotonic() > next_kill:
                next_kill = time.monotonic() + chance.uniform(4, 16)
                alive, kills = named(cluster.workers, "CoarseGrainedExecutorBackend"), kills + 1
                if kills % 3 != 1 and alive:  # the first kill is a driver's, and then every third
                    os.kill(chance.choice(alive), signal.SIGKILL)
                    executors += 1
                else:
                    chance.choice(drivers).kill()
            if chance.random() < 0.2:
                compactions += len(Table(table.uri).maintenance.compact())
            for each in drivers:
                each.check()
            waiting.let_run(0.5)
        expected = ROWS * sum(written.values())
        found, last = total(table), time.monotonic()
        while found != expected:
            for each in drivers:
                each.check()
            assert found < expected, f"something counted twice: {found} of {expected}"
            assert time.monotonic() - last < PATIENCE, f"something is missing: {found} of {expected}"
            waiting.let_run(0.5)
            if (now := total(table)) != found:
                found, last = now, time.monotonic()
        waiting.let_run(2)
        assert total(table) == expected, "more came than was written"
    finally:
        for each in drivers:
            kill(each.process)
    table.maintenance.compact()
    assert total(table) == expected
    return {
        "increments": expected,
        "commits": sum(row["operation"] == "UPSERT" for row in table.inspect.timeline().to_pylist()),
        "drivers killed": sum(each.kills for each in drivers),
        "executors killed": executors,
        "compactions": compactions,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    asked = parser.parse_args()
    sys.stdout.write(f"seed {asked.seed}\n")
    with tempfile.TemporaryDirectory(prefix="crdt-mor-chaos-") as folder:
        found = run(Path(folder), asked.minutes * 60, asked.seed)
    sys.stdout.write(", ".join(f"{name} {count:,}" for name, count in found.items()) + ": each exactly once\n")


if __name__ == "__main__":
    main()

"""A day in the life of a table in S3, on a cluster of processes: `python -m tests.spark.day --nights 20`

    application 1   a stream that counts views, in rows of files that arrive all the time
    application 2   a night after the other: MERGE, update, delete, maintain, and dashboards beside them
    here            files for the stream, kills, and what must come out

Killed are Python workers, executors and the drivers of both applications. In the end every view is counted once and
each job has counted once, however often it was begun.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import Any

import polars as pl

from crdt_mor import Table
from tests import servers, waiting
from tests.spark import nightly
from tests.spark.counting import kill, program
from tests.spark.processes import named
from tests.spark.standalone import Cluster

ROWS = 20
FILES = 20
"""A batch of the stream takes as many, and no more wait for it: what a killed driver left unread is soon counted."""
PATIENCE = 1200
"""So many seconds without one more view mean that none is coming."""
TOO_SLOW = "Python worker failed to connect back"
"""What Spark says where a Python process has not started within ten seconds, as on a machine that is very busy."""
KILLS = ("Python worker", "nightly", "executor", "ingest")


@dataclass
class Application:
    """A driver that is started again whenever it was killed."""

    module: str
    options: tuple[str, ...]
    log: Path
    environment: Mapping[str, str]
    process: Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.process = program(self.module, self.log, self.options, self.environment)

    def has_ended(self) -> bool:
        """Whether it has done its work; one that found no time to start a worker is started again."""
        if self.process.poll() is None:
            return False
        if self.process.returncode and TOO_SLOW in self.log.read_text()[-4000:]:
            self.start()
            return False
        assert self.process.returncode == 0, "a driver has failed:\n" + self.log.read_text()[-8000:]
        return True


class Day:
    """The table, the applications, and what has been given to them."""

    def __init__(self, home: Path, cluster: Cluster, table: Table, nights: int, chance: random.Random) -> None:
        self.chance, self.home, self.cluster, self.table = chance, home, cluster, table
        self.views: Counter[nightly.Key] = Counter()
        self.files = 0
        self.killed: Counter[str] = Counter()
        self.seen = 0
        self.nights = nights
        self.feed()
        schema = "region string, id long, views long"
        stream = ("--home", str(home), "--queries", "views", "--files", str(FILES), "--schema", schema)
        jobs = ("--nights", str(nights), "--note", str(home / "note"))
        both = ("--table", table.uri, "--master", cluster.master)
        self.applications = {
            "ingest": self._application("pipeline", *both, *stream),
            "nightly": self._application("nightly", *both, *jobs),
        }

    def _application(self, module: str, *options: str) -> Application:
        log = self.home / f"{module}.log"
        return Application(f"tests.spark.{module}", options, log, self.cluster.environment)

    def feed(self) -> None:
        """One more file for the stream, whole or not there."""
        numbers = [(self.files * 7 + i * 3) % nightly.ACCOUNTS for i in range(ROWS)]
        rows = [{"region": nightly.region_of(number), "id": number, "views": 1} for number in numbers]
        folder, draft = self.home / "views" / "in", self.home / "draft"
        folder.mkdir(parents=True, exist_ok=True)
        draft.write_text("".join(json.dumps(row) + "\n" for row in rows))
        draft.rename(folder / f"{self.files:06d}.json")
        self.views.update((row["region"], row["id"]) for row in rows)  # type: ignore[misc]
        self.files += 1

    def look(self) -> int:
        """Check what holds of any snapshot, whatever is under way; how many views it has."""
        rows = self.table.scan(columns=["amount", "views"]).to_polars()
        assert rows["amount"].sum() == 0, "a snapshot has half of a job"
        assert self.seen <= rows["views"].sum() <= self.views.total(), "views were lost, or counted twice"
        self.seen = int(rows["views"].sum())
        return self.seen

    def is_counted(self) -> bool:
        """Whether the stream has counted all; it is started again where Spark gave it no time to start."""
        assert not self.applications["ingest"].has_ended(), "the stream has ended by itself"
        return self.look() == self.views.total()

    def count_more(self) -> None:
        """Wait until the stream has counted some more."""
        seen = self.seen
        waiting.wait_for("more views", lambda: self.is_counted() or self.seen > seen, PATIENCE, every_s=0.2)

    def progress(self) -> tuple[int, int]:
        """How far both applications have come: jobs that are done, and views that were seen."""
        return nightly.done(self.home / "note"), self.seen

    def kill(self, what: str) -> None:
        """Kill one process of this kind, while its application writes or soon after."""
        with suppress(AssertionError):
            waiting.wait_for("a write", lambda: self.writes(what), patience_s=10, every_s=0.05)
        if what in self.applications:
            kill(self.applications[what].process)
            for write in self.writes(what):  # it is known to be dead, and updates and merges wait for it
                self.table.maintenance.roll_back(write)
            self.applications[what].start()
        else:
            name = "CoarseGrainedExecutorBackend" if what == "executor" else "pyspark.daemon"
            workers = self.cluster.workers
            waiting.wait_for(what, lambda: named(workers, name), PATIENCE, every_s=0.05)
            with suppress(ProcessLookupError):  # one that was idle has just ended
                os.kill(self.chance.choice(named(workers, name)), signal.SIGKILL)
        self.killed[what] += 1

    def writes(self, what: str) -> list[str]:
        """The writes of an application that are under way; of both, where it is none."""
        rows = self.table.inspect.pending().to_pylist()
        of = [row for row in rows if what not in self.applications or (what == "nightly") == is_nightly(row)]
        return [row["requested_at"] for row in of]

    def check(self) -> None:
        """All views and all jobs have counted once."""
        rows = self.table.scan().to_polars()
        found = {(row["region"], row["id"]): (row["amount"], row["state"]) for row in rows.to_dicts()}
        assert found == nightly.after(nightly.done(self.home / "note") // len(nightly.JOBS))
        viewed = rows.filter(pl.col("views") > 0)
        assert {(row["region"], row["id"]): row["views"] for row in viewed.to_dicts()} == dict(self.views)

    def stop(self) -> None:
        for application in self.applications.values():
            if application.process.poll() is None:
                kill(application.process)


def is_nightly(write: Mapping[str, Any]) -> bool:
    """Whether a write under way is one of the jobs; the others are the stream's."""
    return bool(write["application"].startswith("nightly"))


def run(home: Path, nights: int, seed: int) -> dict[str, int]:
    """So many nights, with kills at moments that are drawn by lot; then peace until all is counted. What happened."""
    server = servers.s3()
    environment = {name.upper(): value for name, value in server.options.items()}
    cluster = Cluster(home, environment)
    try:
        table = Table.create(server.address("orders"), nightly.SCHEMA, storage_options=server.options, **nightly.SHAPE)
        opening = [(*key, *value) for key, value in nightly.opening().items()]
        table.upsert(pl.DataFrame(opening, ["region", "id", "amount", "state"], orient="row"))
        day = Day(home, cluster, table, nights, random.Random(seed))
        try:
            live(day)
        finally:
            day.stop()
    finally:
        cluster.stop()
    day.check()
    table.maintenance.compact()
    day.check()
    commits = sum(row["operation"] is not None for row in table.inspect.timeline().to_pylist())
    return {"nights": nights, "views": day.views.total(), "commits": commits} | {
        f"{what} killed": day.killed[what] for what in KILLS
    }


def live(day: Day) -> None:
    """Until all is done and counted. A process is killed whenever both applications have come further since then."""
    kinds = itertools.cycle(KILLS)
    waiting.wait_for("first view", day.look, PATIENCE, day.applications["ingest"].log.read_text, every_s=0.2)
    last = day.progress()

    def is_over() -> bool:
        nonlocal last
        if day.seen > day.views.total() - FILES * ROWS:
            day.feed()
        day.is_counted()
        if all(now > before for now, before in zip(day.progress(), last, strict=True)):
            last = day.progress()
            day.kill(next(kinds))
        return day.applications["nightly"].has_ended()

    waiting.wait_for("end of the nights", is_over, PATIENCE * len(nightly.JOBS) * day.nights, every_s=0.3)
    while not day.is_counted():
        day.count_more()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    asked = parser.parse_args()
    sys.stdout.write(f"seed {asked.seed}\n")
    with tempfile.TemporaryDirectory(prefix="crdt-mor-day-") as folder:
        found = run(Path(folder), asked.nights, asked.seed)
    sys.stdout.write(", ".join(f"{name} {count:,}" for name, count in found.items()) + ": each exactly once\n")


if __name__ == "__main__":
    main()

"""The pipeline of docs/spark-writing.md, as a process that is killed at its worst moments: every event counts once.

web ─┐
app ─┼─ events ─ raw changes ─ totals        four queries of one driver, which dies three times
mail ┘
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from crdt_mor import Opening, Table
from crdt_mor.errors import TableNotFoundError
from tests import waiting
from tests.spark.counting import kill
from tests.spark.guide import GUIDE, SCRIPT, below
from tests.spark.sessions import ROOT
from tests.spark.tables import leftovers, pending

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SOURCES = ("web", "app", "mail")
ROWS = 30
PATIENCE = 600
TOO_SLOW = "Python worker failed to connect back"
"""What Spark says where a Python process has not started within ten seconds, as on a machine that is very busy."""


class Pipeline:
    """The script of the guide, its folders below `home`, and what was given to it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.script, self.log = home / "pipeline.py", home / "pipeline.log"
        (block,) = (block for block in GUIDE if block.startswith(SCRIPT))
        self.script.write_text(below(home, block))
        self.process: subprocess.Popen[bytes] | None = None
        self.landed: list[tuple[str, str]] = []

    def land(self) -> None:
        """One more file for each source, whole or not there."""
        for source in SOURCES:
            number = len(self.landed)
            rows = [(f"{source}-{number + i}", f"p{i % 7}") for i in range(ROWS)]
            folder = self.home / "landing" / source
            folder.mkdir(parents=True, exist_ok=True)
            draft = self.home / "draft"
            draft.write_text("".join(json.dumps({"event": event, "page": page}) + "\n" for event, page in rows))
            draft.rename(folder / f"{number:06d}.json")
            self.landed += rows

    def start(self) -> None:
        """Unless it runs. In a process group of its own: killing the group kills the driver and its JVM."""
        if self.process is not None and self.process.poll() is None:
            return
        known = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(self.script)],
                env=os.environ | known, cwd=self.home, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            kill(self.process)

    def until(self, happened: Callable[[], object]) -> None:
        """Wait; a pipeline that Spark gave no time to start is started again, and no other may end by itself."""

        def look() -> bool:
            if happened():
                return True
            assert self.process is not None
            if self.process.poll() is not None:
                log = self.log.read_text()
                assert TOO_SLOW in log, "a query has ended:\n" + log[-4000:]
                self.start()
            return False

        waiting.wait_for("what the pipeline does", look, PATIENCE, lambda: self.log.read_text()[-4000:], every_s=0.05)

    def table(self, name: str) -> str:
        return str(self.home / "lake" / name)

    def kill_while_it_writes(self, name: str) -> None:
        """Kill it while a write to this table is under way; again, should the write have been over first."""
        before = open_writes(self.table(name))
        while not open_writes(self.table(name)) - before:
            self.land()
            self.start()
            self.until(lambda: open_writes(self.table(name)) - before)
            self.kill()

    def finish(self) -> None:
        """Let it count all that was given to it."""
        self.start()
        self.until(self.is_done)

    def is_done(self) -> bool:
        totals = Table(self.table("totals")).scan(columns=["views"]).to_polars()["views"].sum()
        assert totals <= len(self.landed), "something counted twice"
        return bool(totals == len(self.landed))

    def check(self) -> None:
        """Each event is there once, was written once and is counted once."""
        events, totals = (Table(self.table(name)) for name in ("events", "totals"))
        assert sorted(events.scan().to_polars().rows()) == sorted(self.landed)
        assert events.changes(raw=True).to_arrow().num_rows == len(self.landed)
        assert dict(totals.scan().to_polars().rows()) == Counter(page for _, page in self.landed)


def open_writes(path: str) -> set[str]:
    """The writes that have begun and not ended; none before the script has made the table."""
    try:
        return {write["requested_at"] for write in pending(path)}
    except TableNotFoundError:
        return set()


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path)
    yield made
    made.kill()


def test_every_event_counts_once_whenever_the_driver_is_killed(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.kill_while_it_writes("events")
    pipeline.kill_while_it_writes("totals")
    pipeline.finish()
    pipeline.kill()  # between two batches
    pipeline.land()
    pipeline.finish()
    pipeline.kill()
    pipeline.check()

    # What the dead have left nobody sees. It goes when it expires, and readers see no difference.
    monkeypatch.setattr("crdt_mor.events.sweep.SWEEP_EVERY_MS", 0)
    for name in ("events", "totals"):
        upkeep = Table(pipeline.table(name), opening=Opening(writer_expiry=timedelta(0))).maintenance
        assert upkeep.plans.schedule(log_files_min=1_000) is None  # gives the expired writes up, and plans nothing
        assert (leftovers(pipeline.table(name)), pending(pipeline.table(name))) == ([], [])
    pipeline.check()

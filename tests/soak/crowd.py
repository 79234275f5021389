"""The processes of a soak: started, killed, stopped for longer than the expiry, and measured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Final

from crdt_mor import Table
from tests import waiting
from tests.inside import store_of
from tests.servers import ROOT
from tests.soak import figures, journal, meaning
from tests.soak.actors import EXPIRY

SERVICES: Final = ["compact0", "compact1", "maintain0"]
READERS: Final = ["read0", "read1", "read2"]
FOLLOWERS: Final = ["follow0", "follow1"]
WRITING: Final = [*meaning.WRITERS, *meaning.UPDATERS, meaning.DRIVER]
EVERYBODY: Final = [*WRITING, *SERVICES, *READERS, *FOLLOWERS]

KILL_EVERY_S: Final = 10.0
STOP_EVERY_S: Final = 20.0
STOPPED_S: Final = 1.5 * (EXPIRY / timedelta(seconds=1))
MEASURE_EVERY_S: Final = 2.0
TELL_EVERY_S: Final = 60.0
SPARED_AFTER: Final = 1 / 8
"""From this share of the time on the first process of each kind is killed no more: its memory is what is measured."""
PATIENCE_S: Final = 400.0


@dataclass
class Crowd:
    """The processes at a table. folder: where the journals are. variables: of their environment."""

    uri: str
    folder: Path
    table: Table
    variables: dict[str, str]
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    stopped: dict[str, float] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)
    memory: dict[str, figures.Series] = field(default_factory=dict)
    size: figures.Series = field(default_factory=figures.folder)
    begun_at: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def run(self, seconds: float, seed: int) -> None:
        """Let all of them work for so long, and for as long as it takes until each has done something."""
        began, chance = time.monotonic(), Random(seed)
        due = dict.fromkeys(("kill", "stop", "measure", "tell"), 0.0)
        with self._started():
            waiting.wait_for("work of each", self._has_begun, PATIENCE_S, every_s=0.1)
            while not self.wrong and (self.seconds < seconds or not self._has_worked()):
                waiting.let_run(0.1)
                self.seconds = time.monotonic() - began
                assert self.seconds < seconds + PATIENCE_S, f"idle: {[n for n in EVERYBODY if not self.did(n)]}"
                self._look_for_failures()
                self._wake()
                for what, at in due.items():
                    if self.seconds >= at:
                        due[what] = self.seconds + self._act(what, self.seconds / seconds, chance)

    def _act(self, what: str, share: float, chance: Random) -> float:
        """Do what is due; after how many seconds it is due again."""
        if what == "measure":
            self._measure()
            return MEASURE_EVERY_S
        if what == "tell":
            works = sum(self.did(name) for name in EVERYBODY)
            sys.stderr.write(f"{self.seconds:.0f} s: {works} works, {self.kills.total()} kills\n")
            return TELL_EVERY_S
        awake = [name for name in EVERYBODY if name not in self.stopped and self._noted(name) > self.begun_at[name]]
        if what == "stop":
            if awake:
                self._stop(chance.choice(awake))
            return STOP_EVERY_S * 2 * chance.random()
        if victims := [name for name in awake if share < SPARED_AFTER or name not in SPARED]:
            self._kill(chance.choice(victims))
        return KILL_EVERY_S * 2 * chance.random()

    @contextmanager
    def _started(self) -> Iterator[None]:
        """All processes, until the block is left: then none is alive."""
        try:
            for name in EVERYBODY:
                self._start(name)
            yield
        finally:
            for worker in self.workers.values():
                worker.kill()
                worker.wait()

    def _start(self, name: str) -> None:
        command = [sys.executable, "-m", "tests.soak.actors", str(self.folder), self.uri, name]
        environment = os.environ | {"POLARS_MAX_THREADS": "1", "PYTHONPATH": str(ROOT)} | self.variables
        self.begun_at[name] = self._noted(name)
        with (self.folder / f"{name}.err").open("ab") as errors:
            self.workers[name] = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=errors)

    def _kill(self, name: str) -> None:
        """kill -9, and another process that goes on where this one was."""
        self.workers[name].kill()
        self.workers[name].wait()
        self.kills[name] += 1
        self._start(name)

    def _stop(self, name: str) -> None:
        self.workers[name].send_signal(signal.SIGSTOP)
        self.stopped[name] = self.seconds
        self.stops[name] += 1

    def _wake(self) -> None:
        """Let those go on that were stopped for longer than the expiry."""
        for name in [name for name, since in self.stopped.items() if self.seconds - since > STOPPED_S]:
            self.workers[name].send_signal(signal.SIGCONT)
            del self.stopped[name]

    def _look_for_failures(self) -> None:
        for name, worker in self.workers.items():
            said = (self.folder / f"{name}.err").read_text()
            if worker.poll() is not None or said:
                self.wrong.append(f"{name} has ended by itself, or said something: {said}")

    def _measure(self) -> None:
        for name in SPARED:
            size = figures.resident_bytes(self.workers[name].pid)
            if size is not None:
                self.memory.setdefault(name, figures.memory()).samples.append((self.seconds, size))
        store = store_of(self.table)
        objects = [stat for folder in ("", ".hoodie") for stat in store.walk(folder)]
        self.size.samples.append((self.seconds, sum(stat.size for stat in objects)))

    def _noted(self, name: str) -> int:
        """How much a process has noted; one that has noted nothing since it was started is not killed again."""
        path = self.folder / f"{name}.journal"
        return path.stat().st_size if path.exists() else 0

    def did(self, name: str) -> int:
        """How many works of a process are done."""
        return sum(words[0] in ("ack", "did") for words in journal.read(self.folder, name))

    def _has_begun(self) -> bool:
        self._look_for_failures()
        return bool(self.wrong) or all((self.folder / f"{name}.journal").exists() for name in EVERYBODY)

    def _has_worked(self) -> bool:
        return all(self.did(name) for name in EVERYBODY)


SPARED: Final = [name for name in EVERYBODY if name.endswith("0")]

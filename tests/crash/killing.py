"""Processes that work in one folder and are killed at moments drawn by lot, and what hudi-rs reads there.

Each is a module's `--work FOLDER NAME`, and has a log, `NAME.log`, once it has done something.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyarrow as pa

from tests import waiting

KILL_EVERY_S = 3.0
START_PATIENCE_S = 400.0


def kill_some(module: str, folder: Path, processes: Sequence[str], seconds: float, seed: int) -> int:
    """Let the processes of a module run for so long, and start each again that is killed; how many were killed."""
    chance = Random(seed)
    command = [sys.executable, "-m", module, "--work", str(folder)]
    workers = {name: subprocess.Popen([*command, name]) for name in processes}
    kills = 0
    try:
        waiting.wait_for(
            "work of each", lambda: all((folder / f"{name}.log").exists() for name in processes), START_PATIENCE_S
        )
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            waiting.let_run(chance.random() * 2 * KILL_EVERY_S)
            name = chance.choice(list(processes))
            assert workers[name].poll() is None, f"{name} has ended by itself"
            workers[name].send_signal(signal.SIGKILL)
            workers[name].wait()
            kills += 1
            workers[name] = subprocess.Popen([*command, name])
    finally:
        for worker in workers.values():
            worker.kill()
            worker.wait()
    return kills


def hudi_rs(path: Path) -> list[tuple[object, ...]]:
    """The rows (id, p, n) of a table as hudi-rs reads them, sorted."""
    from hudi import HudiTableBuilder

    batches = [pa.record_batch(batch) for batch in HudiTableBuilder.from_base_uri(str(path)).build().read()]
    return sorted(tuple(row[name] for name in ("id", "p", "n")) for batch in batches for row in batch.to_pylist())

"""The processes of a cluster, as /proc shows them: which are below another, and how much memory Python workers take."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Self

LOOK_EVERY_S = 0.2
MIB = 1 << 20


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def below(pid: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    try:
        children = [int(c) for t in Path(f"/proc/{pid}/task").iterdir() for c in (t / "children").read_text().split()]
    except OSError:
        return []
    return children + [found for child in children for found in below(child)]


def named(parents: Iterable[int], name: str) -> list[int]:
    """Return the processes below these by the name of their command."""
    return [pid for parent in parents for pid in below(parent) if name in command(pid)]


def kill_executor_once(marker: Path) -> None:
    """In a task: kill its executor and its Python, unless an earlier call has made the marker."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(_executor(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _executor() -> int:
    """The executor above this Python worker."""
    pid = os.getppid()
    while "CoarseGrainedExecutorBackend" not in command(pid):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


class PythonPeak:
    """The most memory of one Python worker below these processes, from the start of the block to its end, in MiB."""

    def __init__(self, workers: Iterable[int]) -> None:
        self._workers = tuple(workers)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.mib = 0

    def __enter__(self) -> Self:
        for pid in self._pythons():
            _at(pid, "clear_refs", "5")  # the kernel's mark of the peak begins anew
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            self._look()
        self._look()

    def _look(self) -> None:
        for pid in self._pythons():
            peak = [line for line in _at(pid, "status").splitlines() if line.startswith("VmHWM")]
            self.mib = max([self.mib, *(int(line.split()[1]) * 1024 // MIB for line in peak)])

    def _pythons(self) -> list[int]:
        return named(self._workers, "pyspark.daemon")


def _at(pid: int, name: str, written: str | None = None) -> str:
    """Return a file of a process in /proc; "" if it has ended."""
    path = Path(f"/proc/{pid}/{name}")
    try:
        return path.read_text() if written is None else str(path.write_text(written))
    except OSError:
        return ""

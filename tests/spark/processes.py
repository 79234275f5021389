"""The processes of a cluster, as /proc shows them: those below another, and the executor of a task."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path


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
    """The processes below these whose command has this name."""
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

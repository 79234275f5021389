"""The only door for time, chance and the process's own name.

Everything that needs the wall clock, a fresh id or a random number takes it from an `Environment`, and so does what
waits or goes on in the background; and so does what notes which process it is. So a simulation can own all of them:
`crdt_mor.testing.clock` has one. Nothing here is trusted for correctness: instants come from the timeline's own clock
(`model.timeline`), ids only have to be unique.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from crdt_mor.ground.forks import fork_count, is_own

_NAME_MAX = 255


@dataclass(frozen=True, slots=True)
class Process:
    """A process, as it is named to people: its program, the machine, its id there."""

    program: str
    host: str
    pid: int


class Environment(Protocol):
    """Where time, ids and chance come from."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970-01-01 UTC."""
        ...

    def nonce(self) -> str:
        """A text that nobody has used before."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let this much time pass."""
        ...

    def every(self, seconds: float, work: Callable[[], None], name: str) -> AbstractContextManager[None]:
        """Do `work` each time this much time has passed, until the block is left. `name` is the task's.

        What `work` raises ends it, so it has to deal with what may happen to it.
        """
        ...

    def jitter(self) -> float:
        """A random number, 0 <= x < 1."""
        ...

    def process(self) -> Process:
        """Which process this is: each commit names the process that made it."""
        ...


class SystemEnvironment:
    """The machine's own clock and randomness."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment, which no setting of the clock moves. Other environments need not have it."""
        return time.monotonic_ns() // 1_000_000

    def nonce(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    @contextmanager
    def every(self, seconds: float, work: Callable[[], None], name: str) -> Iterator[None]:
        over, forks = threading.Event(), fork_count()

        def repeat() -> None:
            while not over.wait(seconds):
                work()

        thread = threading.Thread(target=repeat, name=name, daemon=True)
        thread.start()
        try:
            yield
        finally:
            if is_own(forks):  # a process that was forked meanwhile has not this thread, and its locks may be taken
                over.set()
                thread.join()

    def jitter(self) -> float:
        return self._random.random()

    def process(self) -> Process:
        return Process(_program(), socket.gethostname(), os.getpid())


def _program() -> str:
    """The name of the running program: that of its script, or of the package that `python -m` was given."""
    path = (getattr(sys, "argv", None) or [""])[0]
    name = os.path.basename(path)
    if name == "__main__.py":
        name = os.path.basename(os.path.dirname(path))
    return "python" if name in ("", "-c", "-m") else name[:_NAME_MAX]

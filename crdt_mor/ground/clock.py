"""The only source of time, randomness, waiting, background work and the process's identity.

A simulation replaces the `Environment` (`crdt_mor.testing.clock`). Correctness does not depend on it: instants come
from the timeline's clock, and ids only have to be unique.
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
    program: str
    host: str
    pid: int


class Environment(Protocol):
    """Source of time, ids and randomness."""

    def now_ms(self) -> int:
        """Return wall-clock milliseconds since 1970-01-01 UTC."""
        ...

    def nonce(self) -> str:
        """Return a unique text."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def every(self, seconds: float, work: Callable[[], None], name: str) -> AbstractContextManager[None]:
        """Call `work` at this interval in a task `name`, until the block ends or `work` raises."""
        ...

    def jitter(self) -> float:
        """Return a random number, 0 <= x < 1."""
        ...

    def process(self) -> Process:
        """Return this process, for the author of commits."""
        ...


class SystemEnvironment:
    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return milliseconds that ignore clock changes. Other environments may lack this."""
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
            if is_own(forks):  # a forked process lacks this thread, and may hold its locks
                over.set()
                thread.join()

    def jitter(self) -> float:
        return self._random.random()

    def process(self) -> Process:
        return Process(_program(), socket.gethostname(), os.getpid())


class Looks:
    """The pace of looks. Without a monotonic clock, each is due."""

    def __init__(self, environment: Environment, every_ms: int) -> None:
        self._environment, self._every_ms = environment, every_ms
        self._last_ms: int | None = None

    def is_due(self) -> bool:
        now_ms = monotonic_ms(self._environment)
        if now_ms is not None and self._last_ms is not None and now_ms - self._last_ms <= self._every_ms:
            return False
        self._last_ms = now_ms
        return True


def monotonic_ms(environment: Environment) -> int | None:
    clock: Callable[[], int] | None = getattr(environment, "monotonic_ms", None)
    return None if clock is None else clock()


def _program() -> str:
    path = (getattr(sys, "argv", None) or [""])[0]
    name = os.path.basename(path)
    if name == "__main__.py":
        name = os.path.basename(os.path.dirname(path))
    return "python" if name in ("", "-c", "-m") else name[:_NAME_MAX]

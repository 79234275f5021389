"""The only door for time and chance.

Everything that needs the wall clock, a fresh id or a random number takes it from an `Environment`, and so does what
waits or goes on in the background. So a simulation can own all of them: `crdt_mor.testing.clock` has one. Nothing here
is trusted for correctness: instants come from the timeline's own clock (`model.timeline`), ids only have to be unique.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


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


class SystemEnvironment:
    """The machine's own clock and randomness."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def nonce(self) -> str:
        return uuid.uuid4().hex

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    @contextmanager
    def every(self, seconds: float, work: Callable[[], None], name: str) -> Iterator[None]:
        over = threading.Event()

        def repeat() -> None:
            while not over.wait(seconds):
                work()

        thread = threading.Thread(target=repeat, name=name, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def jitter(self) -> float:
        return self._random.random()

"""The only door for time and chance.

Everything that needs the wall clock, a fresh id or a random number takes it from an `Environment`, so that a
simulation can own all three. Nothing here is trusted for correctness: instants come from the timeline's own clock
(`model.timeline`), ids only have to be unique.
"""

from __future__ import annotations

import random
import time
import uuid
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

    def jitter(self) -> float:
        return self._random.random()

"""A clock that stands still until a test lets time pass. Nothing really sleeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b

from crdt_mor.ground.clock import Process


@dataclass
class _Task:
    every_ms: int
    due_ms: int
    work: Callable[[], None]


def nonce_of(text: str) -> str:
    """Return a nonce in a machine's form, determined by the text."""
    return blake2b(text.encode(), digest_size=16).hexdigest()


class SimulatedEnvironment:
    """An `Environment` with time passing only in `sleep`; ids are counted, and chance is always a half."""

    def __init__(self, now_ms: int = 1_700_000_000_000, stem: str = "n") -> None:
        self._now_ms = now_ms
        self._stem = stem
        self._nonces = 0
        self._tasks: list[_Task] = []

    def now_ms(self) -> int:
        return self._now_ms

    def nonce(self) -> str:
        self._nonces += 1
        return nonce_of(f"{self._stem}{self._nonces}")

    def sleep(self, seconds: float) -> None:
        """Let time pass, and run the due background tasks."""
        end_ms = self._now_ms + max(1, round(seconds * 1000))
        while due := [task for task in self._tasks if task.due_ms <= end_ms]:
            task = min(due, key=lambda task: task.due_ms)
            self._now_ms = max(self._now_ms, task.due_ms)
            task.due_ms += task.every_ms
            task.work()
        self._now_ms = max(self._now_ms, end_ms)

    @contextmanager
    def every(self, seconds: float, work: Callable[[], None], name: str) -> Iterator[None]:  # noqa: ARG002
        every_ms = max(1, round(seconds * 1000))
        task = _Task(every_ms, self._now_ms + every_ms, work)
        self._tasks.append(task)
        try:
            yield
        finally:
            self._tasks.remove(task)

    def jitter(self) -> float:
        return 0.5

    def process(self) -> Process:
        return Process("simulated", "simulated", 1)

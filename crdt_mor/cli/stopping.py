"""Commands that go on until somebody asks their process to end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class StoppedError(BaseException):
    """Somebody has asked this process to end: SIGTERM, or Ctrl-C."""


@contextmanager
def stopping() -> Iterator[None]:
    """SIGTERM and Ctrl-C raise `StoppedError` within the block."""

    def stop(*_: object) -> None:
        raise StoppedError

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Commands that run until their process is asked to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class StoppedError(BaseException):
    """SIGTERM or Ctrl-C."""


@contextmanager
def stopping() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise StoppedError

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Commands that run until their process is asked to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from crdt_mor.cli import render


class StoppedError(BaseException):
    """SIGTERM or Ctrl-C."""


@contextmanager
def until_stopped(said: str) -> Iterator[None]:
    """Run the block until SIGTERM or Ctrl-C ends it, which is then said."""
    try:
        with stopping():
            yield
    except StoppedError:
        render.note(said)


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

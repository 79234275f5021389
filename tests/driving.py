"""Drives protocols a step at a time, for tests that look at each of them, or do something in between."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from crdt_mor.errors import StorageUnavailableError
from crdt_mor.log.paths import STAGED
from crdt_mor.log.steps import Single, Steps, T, Together
from crdt_mor.model.instant import InstantTime


def nonce_in_hex(text: str) -> str:
    """A nonce of the form that a machine draws; it begins with the text, in hexadecimal digits."""
    return text.encode().hex().ljust(32, "0")


def staged_path(requested: InstantTime, text: str) -> str:
    """A staged file of a write, under a name of the form that a release gives: a sweep leaves all others."""
    return f"{STAGED}/{requested}-{nonce_in_hex(text)}"


def one_by_one(steps: Steps[T]) -> Generator[Single, Any, T]:
    """A protocol with what it does side by side done in order, as `run` does it where there is no bucket."""
    reply: object = None
    failure: StorageUnavailableError | None = None
    part: Single | None = None
    try:
        while True:
            try:
                step = steps.send(reply) if failure is None else steps.throw(failure)
            except StopIteration as end:
                result: T = end.value
                return result
            reply, failure = None, None
            try:
                if isinstance(step, Together):
                    replies: list[object] = []
                    for part in step.steps:
                        replies.append((yield part))  # noqa: PERF401  a list comprehension cannot yield
                    reply, replies, part = replies, [], None
                else:
                    reply = yield step
            except StorageUnavailableError as error:
                failure = error
    finally:
        steps.close()

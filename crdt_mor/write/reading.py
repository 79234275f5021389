"""The reads of a statement: a generator yields each question and receives its answer.

    yield Wait(columns, filter)             wait until no pending write can change these rows
    rows = yield Read(columns, filter)      the rows after all earlier writes and the write's own statements so far

The writer answers. A block waits for earlier writes; a commit in one event goes another way instead.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa

from crdt_mor.planners.way import Way

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for earlier writes that may change these rows; by default all rows."""

    columns: Sequence[str] | None = None
    filter: pl.Expr | str | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """Read these rows after the same wait, and with the write's own statements so far."""

    columns: Sequence[str] | None = None
    filter: pl.Expr | str | None = None


Reading = Generator[Wait | Read, Any, T]
"""The computation of a statement. A `Read` is answered by a `pa.Table`, a `Wait` by None."""

Answer = Callable[[Wait | Read], pa.Table | Way | None]
"""Returns the rows, or another way for the write: then nothing of the statement is left."""


def drive(reading: Reading[T], answer: Answer) -> T | Way:
    """Compute a statement until its end, or until it must go another way."""
    reply: pa.Table | None = None
    while True:
        try:
            asked = reading.send(reply)
        except StopIteration as done:
            result: T = done.value
            return result
        answered = answer(asked)
        if isinstance(answered, Way):
            reading.close()
            return answered
        reply = answered


def computed(reading: Reading[T], answer: Callable[[Wait | Read], pa.Table | None]) -> T:
    """Compute a statement whose reads are all answered."""
    result = drive(reading, answer)
    assert not isinstance(result, Way), "its way is chosen"
    return result

"""Points of a table's history, as users name them: a version, a moment, or a checkpoint.

    in Python                               as text                             what it names
    3                                       3                                   version 3 of the timeline
    "20260131120000000"                     20260131120000000                   what was completed by then, in UTC
    datetime(2026, 1, 31, 12, tzinfo=UTC)   2026-01-31T12:00:00Z                what was completed by then
    "completed:20260131120000000:0b3d…"     completed:20260131120000000:0b3d…   where a window of changes ends or begins

Text comes from command lines and from options of Spark, which know nothing but text: `parse_point` makes of it what
Python programs pass. `check_point` is for what Python programs pass. Checkpoints are the text of a `Cut`; only the ends
of a window of changes may be checkpoints. A point is resolved to a cut of a certain table in read/cuts.py.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, TypeGuard, get_args

from crdt_mor.errors import InvalidInputError
from crdt_mor.model.cut import By
from crdt_mor.model.instant import DIGITS, InstantTime, from_datetime, parse

Point = int | str | datetime
"""A version, 17 digits of UTC time or a checkpoint, or a moment with its time zone."""

CUTS: Final = get_args(By)


def parse_point(text: str, *, checkpoint: bool = False, name: str = "as_of") -> Point:
    """The point that a text names: fewer than 17 digits are a version, 17 digits are a UTC time, all else is ISO 8601.

    checkpoint: the point is an end of a window of changes, so that a checkpoint will do as well.
    name: what the user calls this point, for the error.

    Raises `InvalidInputError` for any other text, and for a time without its zone.
    """
    if text.isascii() and text.isdigit() and len(text) <= DIGITS:
        return text if len(text) == DIGITS else int(text)
    if checkpoint and text.partition(":")[0] in CUTS:
        return text
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        kinds = "a checkpoint, " if checkpoint else ""
        raise InvalidInputError(
            f"{name} is {kinds}a version, an instant of 17 digits, or a time like 2026-01-31T12:00:00+00:00. "
            f"{name}={text!r}"
        ) from error
    from_datetime(moment)  # refuses a time without its zone
    return moment


def check_point(point: object) -> int | InstantTime:
    """The version or the instant time that a point names; raises `InvalidInputError` for what is neither."""
    match point:
        case bool():
            pass
        case int() if point < 0:
            raise InvalidInputError(f"versions count from 0, the empty table. as_of={point}")
        case int():
            return point
        case str():
            return parse(point)
        case datetime():
            return from_datetime(point)
    raise InvalidInputError(f"as_of is a commit, a version, 17 digits or a datetime. as_of={point!r}")


def is_checkpoint(point: object) -> TypeGuard[str]:
    """Whether a point is written as a checkpoint is; `Cut.parse` says whether it is one."""
    return isinstance(point, str) and ":" in point

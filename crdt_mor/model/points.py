"""Points of a table's history, as users name them: a version, a moment, or a checkpoint.

    in Python                               as text                             what it names
    3                                       3                                   version 3 of the timeline
    "now"                                   now                                 all that is decided: the table's clock
    "20260131120000000"                     20260131120000000                   what was completed by then, in UTC
    "2026-01-31T12:00:00+01:00"             2026-01-31T12:00:00+01:00           what was completed by then
    "2026-01-31T12:00:00"                   2026-01-31T12:00:00                 the same, in UTC as no zone is named
    datetime(2026, 1, 31, 12, tzinfo=UTC)                                       what was completed by then
    datetime(2026, 1, 31, 12)                                                   the same: without a zone it is UTC
    date(2026, 1, 31) or "2026-01-31"       2026-01-31                          the start of that day: midnight, UTC
    "before-backfill"                       before-backfill                     what the savepoint of this name shows
    "completed:20260131120000000:0b3d…"     completed:20260131120000000:0b3d…   where a window of changes ends or begins

In a table of Hudi's whose timeline is in the zone of its writers, 17 digits are such a time, and other moments become
one.
A moment is known to the millisecond; what is finer is cut off. Text comes from command lines and from options of Spark,
which know nothing but text: `parse_point` makes of it what Python programs pass. There, digits are a version unless
there are 17 of them; in Python a version is an int. An ordinal, by which `Table.history` counts commits, is no point.
`check_point` is for what Python programs pass. Checkpoints are the text of a `Cut`; only the ends of a window of
changes may be checkpoints. read/cut.py makes of a point a cut of a certain table.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Final, Literal, TypeGuard, get_args

from crdt_mor.errors import InvalidInputError
from crdt_mor.model.cut import By
from crdt_mor.model.instant import DIGITS, InstantTime, from_datetime, parse
from crdt_mor.model.savepoint import is_savepoint_name

Point = int | str | datetime | date
"""A version; a moment, as a datetime or a date (in UTC where no zone is named), ISO text of either, or 17 digits of UTC
time; "now"; the name of a savepoint; or a checkpoint."""

Now = Literal["now"]

NOW: Final = "now"
"""What names all that is decided."""

MOMENTS: Final = (
    "a version, an instant of 17 digits, or a time like 2026-01-31T12:00:00+00:00, a date like 2026-01-31 (both in UTC "
    "unless a zone is named)"
)
"""What names a moment, for messages."""

CUTS: Final = get_args(By)


def parse_point(text: str, *, checkpoint: bool = False, name: str = "as_of") -> Point:
    """The point that a text names: fewer than 17 digits are a version, 17 digits are a UTC time, `now` is itself.

    What begins with a letter or `_` is the name of a savepoint. All else is ISO 8601: a time, in UTC where it names no
    zone, or a date, which is midnight UTC at its start.

    checkpoint: the point is an end of a window of changes, so that a checkpoint will do as well.
    name: what the user calls this point, for the error.

    Raises `InvalidInputError` for any other text.
    """
    if text == NOW or (text.isascii() and text.isdigit() and len(text) == DIGITS):
        return text
    if text.isascii() and text.isdigit() and len(text) < DIGITS:
        return int(text)
    if checkpoint and is_checkpoint(text):
        return text
    if is_savepoint_name(text):
        return text
    return _moment(text, checkpoint, name)


def check_point(point: object, name: str = "as_of", *, local: bool = False) -> int | InstantTime | Now:
    """The version or the instant time that a point names, or `NOW`.

    name: what the user calls this point, for the error. local: as in `from_datetime`.

    Raises `InvalidInputError` for what is none of them.
    """
    match point:
        case bool():
            pass
        case int() if point < 0:
            raise InvalidInputError(
                f"a whole number is a version of the timeline: versions count from 0, the empty table. {name}={point}"
            )
        case int():
            return point
        case "now":
            return NOW
        case str() if point.isascii() and point.isdigit():
            return parse(point)
        case str():
            return from_datetime(_moment(point, False, name), local=local)
        case datetime() if point == point:  # pandas' NaT is none
            return from_datetime(point, local=local)
        case date() if not isinstance(point, datetime):
            return from_datetime(datetime(point.year, point.month, point.day, tzinfo=UTC), local=local)
    raise InvalidInputError(
        f"{name} is a commit, a version, 17 digits or a datetime, a date, ISO text like 2026-01-31T12:00:00Z, the name "
        f"of a savepoint, or 'now'. {name}={point!r}"
    )


def is_checkpoint(point: object) -> TypeGuard[str]:
    """Whether a point is written as a checkpoint is; `Cut.parse` says whether it is one."""
    return isinstance(point, str) and ":" in point and point.partition(":")[0] in CUTS


def _moment(text: str, checkpoint: bool, name: str) -> datetime:
    """The moment that ISO 8601 text names, in UTC where the text names no zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        kinds = "a checkpoint, " if checkpoint else ""
        raise InvalidInputError(
            f"{name} is {kinds}{MOMENTS}, the name of a savepoint, or 'now'. {name}={text!r}"
        ) from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)

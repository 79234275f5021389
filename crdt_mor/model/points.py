"""Points of a table's history: a version, a moment, a savepoint or a checkpoint.

    in Python                               as text                             meaning
    3                                       3                                   version 3 of the timeline
    "now"                                   now                                 the table's clock
    "20260131120000000"                     20260131120000000                   completed by then, in UTC
    "2026-01-31T12:00:00+01:00"             2026-01-31T12:00:00+01:00           completed by then
    "2026-01-31T12:00:00"                   2026-01-31T12:00:00                 in UTC without a zone
    datetime(2026, 1, 31, 12, tzinfo=UTC)                                       completed by then
    datetime(2026, 1, 31, 12)                                                   in UTC without a zone
    date(2026, 1, 31) or "2026-01-31"       2026-01-31                          midnight UTC at its start
    "before-backfill"                       before-backfill                     the savepoint of this name
    "completed:20260131120000000:0b3d…"     completed:20260131120000000:0b3d…   an end of a window of changes

If a Hudi table's timeline is in local time, 17 digits are local time too. Moments are cut to milliseconds.
An ordinal of `Table.history` is not a point.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Final, Literal, TypeGuard, get_args

from crdt_mor.errors import InvalidInputError
from crdt_mor.model.cut import By
from crdt_mor.model.instant import DIGITS, InstantTime, from_datetime, parse
from crdt_mor.model.savepoint import is_savepoint_name

Point = int | str | datetime | date
"""A version; a datetime or date, or ISO text of either (UTC without a zone); 17 digits of UTC time; "now"; the name of
a savepoint; or a checkpoint.
"""

Now = Literal["now"]

NOW: Final = "now"

MOMENTS: Final = (
    "a version, an instant of 17 digits, a time like 2026-01-31T12:00:00+00:00, a date like 2026-01-31 (UTC without a "
    "zone)"
)

CUTS: Final = get_args(By)


def parse_point(text: str, *, checkpoint: bool = False, name: str = "as_of") -> Point:
    """Parse a point of a table's history; raise `InvalidInputError` if it is invalid.

    Fewer than 17 digits are a version, 17 digits are a UTC time. Text that begins with a letter or `_` is "now" or a
    savepoint. Other text is an ISO 8601 time or date, in UTC without a zone.

    Args:
        text: the point as text.
        checkpoint: accept a checkpoint too.
        name: the argument's name, for errors.

    Example:
        >>> print(mor.parse_point("42"), mor.parse_point("2026-01-31"), mor.parse_point("now"))
        42 2026-01-31 00:00:00+00:00 now
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
    """Return a point's version or instant, or `NOW`; raise `InvalidInputError` if it is invalid.

    name: the argument's name. local: as in `from_datetime`.
    """
    match point:
        case bool():
            pass
        case int() if point < 0:
            raise InvalidInputError(
                f"versions count from 0, the empty table: pass a version of the timeline. {name}={point}"
            )
        case int():
            return point
        case str() if point == NOW:  # a frame compares each of its values
            return NOW
        case str() if point.isascii() and point.isdigit():
            return parse(point)
        case str():
            return from_datetime(_moment(point, False, name), local=local)
        case datetime() if point == point:  # pandas' NaT differs from itself
            return from_datetime(point, local=local)
        case date() if not isinstance(point, datetime):
            return from_datetime(datetime(point.year, point.month, point.day, tzinfo=UTC), local=local)
    raise InvalidInputError(
        f"{name} must be a commit, a version, 17 digits, a datetime, a date, ISO text like 2026-01-31T12:00:00Z, the "
        f"name of a savepoint, or 'now'. {name}={point!r:.200}"
    )


def is_checkpoint(point: object) -> TypeGuard[str]:
    """Return True if a point looks like a checkpoint. `Cut.parse` validates it."""
    return isinstance(point, str) and ":" in point and point.partition(":")[0] in CUTS


def _moment(text: str, checkpoint: bool, name: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        kinds = "a checkpoint, " if checkpoint else ""
        raise InvalidInputError(
            f"{name} must be {kinds}{MOMENTS}, the name of a savepoint, or 'now'. {name}={text!r}"
        ) from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)

"""Instant times: UTC as 17 digits, `yyyyMMddHHmmssSSS`, ordered as text.

All times come from the table's own clock, which every event advances by an even number of milliseconds. The last two
bits of a requested time's milliseconds give its class, so times of different classes never collide:

    0 of 4        a begin, or another event with its own instant in Hudi
    2 of 4        the claimed time of a one-event commit (`events.one_event`)
    odd           the barrier of a plan
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, NewType

from crdt_mor.errors import FormatError, InvalidInputError

InstantTime = NewType("InstantTime", str)

DIGITS: Final = 17

EPOCH = InstantTime("19700101000000000")
"""Earlier than every instant of a table."""

LAST = InstantTime("99991231235959999")
"""The latest instant."""

EPOCH_YEAR, LAST_YEAR = 1970, 9999
"""Times in these years are not converted between zones, which could overflow."""

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The first and last moment with a four-digit year."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def from_ms(ms: int) -> InstantTime:
    """Convert milliseconds since 1970-01-01 UTC; raise `FormatError` outside the years 1 to 9999."""
    if not _FIRST_MS <= ms <= _LAST_MS:
        raise FormatError(
            "a time is before the year 1 or beyond the year 9999. Correct the system clock, or restore the damaged "
            f"timeline from a backup. ms={ms}"
        )
    seconds, millis = divmod(ms, 1000)
    return InstantTime(datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%d%H%M%S") + f"{millis:03d}")


def to_ms(time: InstantTime) -> int:
    when = datetime(
        int(time[:4]), int(time[4:6]), int(time[6:8]),
        int(time[8:10]), int(time[10:12]), int(time[12:14]), tzinfo=UTC,
    )  # fmt: skip
    return int(when.timestamp()) * 1000 + int(time[14:])


def parse(text: str) -> InstantTime:
    """Parse 17 digits; raise `InvalidInputError` if they are not a valid time."""
    if len(text) != DIGITS or not (text.isascii() and text.isdigit()):
        raise InvalidInputError(f"an instant is 17 digits, yyyyMMddHHmmssSSS in UTC. got={text!r}")
    try:
        to_ms(InstantTime(text))
    except ValueError as error:
        raise InvalidInputError(f"no such moment: {error}. got={text!r}") from error
    return InstantTime(text)


def from_datetime(when: datetime, *, local: bool = False) -> InstantTime:
    """Convert a datetime, UTC without a zone. It is rounded down to a millisecond within `EPOCH` and `LAST`.

    local: the table's instants are in this machine's time zone, as Hudi's readers assume.
    """
    aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    if local and EPOCH_YEAR < aware.year < LAST_YEAR:
        aware = aware.astimezone().replace(tzinfo=UTC)
    return from_ms(min(max(int((aware - _EPOCH) // timedelta(milliseconds=1)), 0), to_ms(LAST)))


def to_datetime(time: InstantTime, *, local: bool = False) -> datetime:
    """Convert to UTC. With `local`, an ambiguous hour is the first of both."""
    moment = datetime.fromtimestamp(to_ms(time) / 1000, UTC)
    return moment.replace(tzinfo=None).astimezone(UTC) if local else moment


def tick_after(last: InstantTime, wall_ms: int) -> InstantTime:
    """Return the next even time after `last`, or `wall_ms` if that is later, rounded up."""
    floor = to_ms(last)
    return from_ms(max(wall_ms + wall_ms % 2, floor + 2 - floor % 2))


def begin_after(last: InstantTime, wall_ms: int) -> InstantTime:
    return _next_of_class(last, wall_ms, 0)


def claim_after(last: InstantTime, wall_ms: int) -> InstantTime:
    """Return the claimed time of a one-event commit after `last`."""
    return _next_of_class(last, wall_ms, 2)


def is_claimable(time: InstantTime) -> bool:
    return int(time[14:]) % 4 == 2  # a second is 250 times 4 milliseconds


def _next_of_class(last: InstantTime, wall_ms: int, rest: int) -> InstantTime:
    floor = max(wall_ms, to_ms(last) + 1)
    return from_ms(floor + (rest - floor) % 4)


def barrier_after(last: InstantTime) -> InstantTime:
    ms = to_ms(last)
    return from_ms(ms + 1 if ms % 2 == 0 else ms + 2)

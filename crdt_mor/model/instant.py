"""Instant times: 17 digits of UTC time, `yyyyMMddHHmmssSSS`, ordered as text.

In Hudi an *instant* is an event of the timeline: a time, an action and a state. This module has its time alone.
Requested and completion times are readings of the table's own clock, which every event of the timeline moves on by an
even number of milliseconds. The last two bits of the milliseconds of a requested time say what was requested, so that
no two of these ever meet at one time:

    0 of 4        a write that begins, and every other event of its own that Hudi is told of
    2 of 4        a commit that is alone, which chooses its time before anybody knows of it (`events.one_event`)
    odd           the barrier of a plan
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, NewType

from crdt_mor.errors import FormatError, InvalidInputError

InstantTime = NewType("InstantTime", str)

DIGITS: Final = 17
"""How many digits an instant time has."""

EPOCH = InstantTime("19700101000000000")
"""Earlier than every instant time that a table can have."""

LAST = InstantTime("99991231235959999")
"""The last instant time that there is."""

EPOCH_YEAR, LAST_YEAR = 1970, 9999
"""The years of `EPOCH` and `LAST`, near which a moment has no other zone."""

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""When the years begin and end that have four digits."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def from_ms(ms: int) -> InstantTime:
    """The instant time of `ms` milliseconds since 1970-01-01 UTC; raises `FormatError` beyond the years 1 to 9999."""
    if not _FIRST_MS <= ms <= _LAST_MS:
        raise FormatError(
            "a time beyond the year 9999 or before the year 1, which no table has: restore the damaged timeline; "
            f"or set the clock, if that is wrong. ms={ms}"
        )
    seconds, millis = divmod(ms, 1000)
    return InstantTime(datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%d%H%M%S") + f"{millis:03d}")


def to_ms(time: InstantTime) -> int:
    """Milliseconds since 1970-01-01 UTC."""
    when = datetime(
        int(time[:4]), int(time[4:6]), int(time[6:8]),
        int(time[8:10]), int(time[10:12]), int(time[12:14]), tzinfo=UTC,
    )  # fmt: skip
    return int(when.timestamp()) * 1000 + int(time[14:])


def parse(text: str) -> InstantTime:
    """`text` as an instant time; raises `InvalidInputError` for anything that is not 17 digits of a real moment."""
    if len(text) != DIGITS or not (text.isascii() and text.isdigit()):
        raise InvalidInputError(f"an instant is 17 digits, yyyyMMddHHmmssSSS in UTC. got={text!r}")
    try:
        to_ms(InstantTime(text))
    except ValueError as error:
        raise InvalidInputError(f"no such moment: {error}. got={text!r}") from error
    return InstantTime(text)


def from_datetime(when: datetime, *, local: bool = False) -> InstantTime:
    """The instant time of `when`, to the millisecond that has begun; a datetime without a zone is in UTC.

    What lies before `EPOCH` is `EPOCH`, and what is too late to be written with four digits of a year is `LAST`.
    local: in a table whose instant times are in this machine's zone, as Hudi's readers of it have them.
    """
    aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    if local and EPOCH_YEAR < aware.year < LAST_YEAR:
        aware = aware.astimezone().replace(tzinfo=UTC)
    return from_ms(min(max(int((aware - _EPOCH) // timedelta(milliseconds=1)), 0), to_ms(LAST)))


def to_datetime(time: InstantTime, *, local: bool = False) -> datetime:
    """The moment in UTC. local: as in `from_datetime`; of an hour that the zone has twice, it is in the first one."""
    moment = datetime.fromtimestamp(to_ms(time) / 1000, UTC)
    return moment.replace(tzinfo=None).astimezone(UTC) if local else moment


def tick_after(last: InstantTime, wall_ms: int) -> InstantTime:
    """The next even instant time of a clock that stands at `last` while the wall clock says `wall_ms`.

    `max(wall clock rounded up to an even millisecond, last + 2 ms)`, whatever the wall clocks of writers say.
    """
    floor = to_ms(last)
    return from_ms(max(wall_ms + wall_ms % 2, floor + 2 - floor % 2))


def begin_after(last: InstantTime, wall_ms: int) -> InstantTime:
    """The requested time of what begins with the next event, on a clock that stands at `last`: as `tick_after`."""
    return _next_of_class(last, wall_ms, 0)


def claim_after(last: InstantTime, wall_ms: int) -> InstantTime:
    """The requested time that a commit which is alone may claim, on a clock that stands at `last`: as `tick_after`."""
    return _next_of_class(last, wall_ms, 2)


def is_claimable(time: InstantTime) -> bool:
    """Whether a time is of the class of those that are claimed."""
    return int(time[14:]) % 4 == 2  # a second has 250 times 4 milliseconds


def _next_of_class(last: InstantTime, wall_ms: int, rest: int) -> InstantTime:
    floor = max(wall_ms, to_ms(last) + 1)
    return from_ms(floor + (rest - floor) % 4)


def barrier_after(last: InstantTime) -> InstantTime:
    """The odd instant time just after `last` (an even one): the time of a compaction."""
    ms = to_ms(last)
    return from_ms(ms + 1 if ms % 2 == 0 else ms + 2)

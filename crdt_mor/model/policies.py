"""Policies of upkeep: what a table's properties say of it.

    crdt_mor.compaction.log_files = 10          ┐
    crdt_mor.retention            = 7d          │  Policies.of(properties)
    …                                           ┘

A policy that is misspelt, or has a value that it cannot have, is refused when it is set: nobody would follow it. What
is due by them, `planners.compaction_due` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from crdt_mor.errors import InvalidInputError

SECOND: Final = 1000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR

_UNITS_MS: Final = {"s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
_UNITS_BYTES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_YEARS_100_MS: Final = 100 * 366 * DAY

OFF: Final = "off"
"""The value of a policy that asks for nothing."""

FOR_EVER: Final = "forever"
"""The value of a policy that keeps everything."""


@dataclass(frozen=True, slots=True)
class Policies:
    """What upkeep of a table is to do; `POLICIES` says which property each field is of, and what it means.

    None: that policy asks for nothing. Times are in milliseconds.
    """

    log_files: int | None = 10
    log_ratio: float | None = 1.0
    log_bytes: int = 1 << 20
    age_ms: int | None = DAY
    log_compaction: int | None = None
    keep_ms: int | None = 7 * DAY
    keep_commits: int | None = None
    readers_ms: int = HOUR
    archive: int | None = 100
    tokens_ms: int | None = 365 * DAY
    inline: bool = False

    @classmethod
    def of(cls, properties: Iterable[tuple[str, str]]) -> Policies:
        """The policies of a table with these properties. Raises `InvalidInputError` for what no policy can say."""
        fields: dict[str, Any] = {}
        for name, text in properties:
            if name in BY_NAME:
                fields[BY_NAME[name].field] = parsed(name, text)
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Policy:
    """A property of a table that upkeep follows.

    field: of `Policies`. default: the text that means the same as leaving the property out.
    form: what its texts look like, for errors. meaning: what it asks for, for the command line and for pages.
    """

    name: str
    field: str
    default: str
    form: str
    meaning: str
    parse: Callable[[str], object]


def duration_ms(text: str) -> int | None:
    """`90s`, `30m`, `12h`, `7d`, `2w` in milliseconds; None for a text that is no duration, or one beyond a century."""
    found = re.fullmatch(r"(\d{1,12})([smhdw])", text.strip(), re.ASCII)
    ms = int(found[1]) * _UNITS_MS[found[2]] if found else None
    return ms if ms is not None and ms <= _YEARS_100_MS else None


def milliseconds(name: str, time: object) -> int:
    """A user's `timedelta` in milliseconds; raises `InvalidInputError` for anything else, and for less than 0.

    name: of the argument, for the error.
    """
    if isinstance(time, timedelta) and time >= timedelta(0):
        return time // timedelta(milliseconds=1)
    raise InvalidInputError(f"{name} is a time of 0 or more, like datetime.timedelta(minutes=10). {name}={time!r}")


def words_of_ms(ms: int) -> str:
    """A duration as its property says it, in the largest unit in which it is a whole number: `7d`, `90s`."""
    unit = next((unit for unit in ("d", "h", "m") if ms and ms % _UNITS_MS[unit] == 0), "s")
    return f"{ms / _UNITS_MS[unit]:g}{unit}"


def words_of_age(ms: int) -> str:
    """About how long something has been, in whole units of which there are at least two."""
    unit = next((unit for unit in ("d", "h", "m") if ms >= 2 * _UNITS_MS[unit]), "s")
    return f"{ms // _UNITS_MS[unit]}{unit}"


def plural(count: int, word: str, form: str = "") -> str:
    """A count and what is counted: `1 log`, `2 logs`. form: as for `format`; "," gives `2,000 logs`."""
    return f"{count:{form}} {word}{'' if count == 1 else 's'}"


def words_of_bytes(count: float) -> str:
    """Bytes as people write them: `512 B`, `1.5 MiB`."""
    unit = next((unit for unit in ("GiB", "MiB", "KiB") if count >= _UNITS_BYTES[unit]), "B")
    return f"{count:.0f} B" if unit == "B" else f"{count / _UNITS_BYTES[unit]:.1f} {unit}"


def _duration(text: str) -> int:
    ms = duration_ms(text)
    if ms is None:
        raise ValueError
    return ms


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d{1,12})(B|KiB|MiB|GiB)", text.strip(), re.ASCII)
    if found is None:
        raise ValueError
    return int(found[1]) * _UNITS_BYTES[found[2]]


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,8}", text.strip(), re.ASCII):
        raise ValueError
    return int(text)


def _ratio(text: str) -> float:
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", text.strip(), re.ASCII) or float(text) == 0:
        raise ValueError
    return float(text)


def _unless(word: str, parse: Callable[[str], object]) -> Callable[[str], object]:
    return lambda text: None if text.strip() == word else parse(text)


def _inline(text: str) -> bool:
    if text.strip() not in (OFF, "inline"):
        raise ValueError
    return text.strip() == "inline"


_DURATION = "how long, like 7d, 12h, 30m or 90s"
_COUNT = "a whole number from 1 up"

POLICIES: Final[tuple[Policy, ...]] = (
    Policy(
        "crdt_mor.compaction.log_files", "log_files", "10", f"{_COUNT}, or off",
        "a file group with this many log files is compacted", _unless(OFF, _count),
    ),
    Policy(
        "crdt_mor.compaction.log_ratio", "log_ratio", "1", "a number above 0, like 0.5, or off",
        "a file group is compacted whose logs have this many times the bytes of its base file", _unless(OFF, _ratio),
    ),
    Policy(
        "crdt_mor.compaction.log_bytes", "log_bytes", "1MiB", "bytes, like 512KiB, 1MiB or 2GiB",
        "below it the ratio asks for nothing, as such logs are read in no time", _bytes,
    ),
    Policy(
        "crdt_mor.compaction.age", "age_ms", "1d", f"{_DURATION}; or off",
        "a file group is compacted whose oldest log was begun this long ago", _unless(OFF, _duration),
    ),
    Policy(
        "crdt_mor.log_compaction.log_files", "log_compaction", OFF, f"{_COUNT}, or off",
        "the logs of a file group with this many are made one, where a compaction is not due", _unless(OFF, _count),
    ),
    Policy(
        "crdt_mor.retention", "keep_ms", "7d", f"{_DURATION}; or forever",
        "how far back as_of and checkpoints reach", _unless(FOR_EVER, _duration),
    ),
    Policy(
        "crdt_mor.retention.commits", "keep_commits", OFF, f"{_COUNT}, or off",
        "at least this many commits can be asked for, however long ago they were", _unless(OFF, _count),
    ),
    Policy(
        "crdt_mor.readers", "readers_ms", "1h", _DURATION,
        "files stay for this long after the history that needs them, for readers that are under way", _duration,
    ),
    Policy(
        "crdt_mor.archive.commits", "archive", "100", f"{_COUNT}, or off",
        "when this many instants have ended since, what may be archived is archived", _unless(OFF, _count),
    ),
    Policy(
        "crdt_mor.tokens", "tokens_ms", "365d", f"{_DURATION}; or forever",
        "the last token of an application that has written nothing for this long is forgotten",
        _unless(FOR_EVER, _duration),
    ),
    Policy(
        "crdt_mor.maintain", "inline", OFF, "inline or off",
        "writers compact what is due in the file groups that they have written, after their commits", _inline,
    ),
)  # fmt: skip

BY_NAME: Final[Mapping[str, Policy]] = {policy.name: policy for policy in POLICIES}


def parsed(name: str, text: str) -> object:
    """What a policy's text means, as its field has it. Raises `InvalidInputError` for what it cannot say."""
    policy = BY_NAME[name]
    try:
        return policy.parse(text)
    except ValueError:
        raise InvalidInputError(
            f"{name} is {policy.form}, and by default {policy.default}. name={name!r} value={text!r:.200}"
        ) from None

"""Maintenance policies in a table's properties.

crdt_mor.compaction.log_files = 10          ┐
crdt_mor.retention            = 7d          │  Policies.of(properties)
…                                           ┘
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

FOR_EVER: Final = "forever"

_ENTRY: Final = re.compile(r"[A-Za-z][\w-]*:[^\s:/.]+(\.[^\s:/.]+)+")

MIRRORS: Final = ("delta", "iceberg")
"""The formats of mirrors."""


@dataclass(frozen=True, slots=True)
class Policies:
    """See `POLICIES`. None disables a policy. Times are in milliseconds."""

    log_files: int | None = 10
    log_ratio: float | None = 1.0
    log_bytes: int = 1 << 20
    age_ms: int | None = DAY
    log_compaction: int | None = None
    keep_ms: int | None = 7 * DAY
    keep_commits: int | None = None
    named_ms: int = 30 * DAY
    readers_ms: int = HOUR
    archive: int | None = 100
    tokens_ms: int | None = 365 * DAY
    inline: str = "auto"
    mirrors: tuple[str, ...] = ()
    mirrors_commits: bool = False
    catalogs: tuple[tuple[str, str], ...] = ()
    hudi_catalogs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, properties: Iterable[tuple[str, str]]) -> Policies:
        """Read the policies from properties; raise `InvalidInputError` for invalid values."""
        fields: dict[str, Any] = {}
        for name, text in properties:
            if name in BY_NAME:
                fields[BY_NAME[name].field] = parsed(name, text)
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Policy:
    """A maintenance policy.

    field: of `Policies`. form: the valid texts, for errors. meaning: for the command line and pages.
    """

    name: str
    field: str
    default: str
    form: str
    meaning: str
    parse: Callable[[str], object]


def duration_ms(text: str) -> int | None:
    """Parse `90s`, `30m`, `12h`, `7d` or `2w` to milliseconds. None: invalid, or over a century."""
    found = re.fullmatch(r"(\d{1,12})([smhdw])", text.strip(), re.ASCII)
    ms = int(found[1]) * _UNITS_MS[found[2]] if found else None
    return ms if ms is not None and ms <= _YEARS_100_MS else None


def milliseconds(name: str, time: object) -> int:
    """Convert a user's `timedelta`; raise `InvalidInputError` if it is negative. name: of the argument."""
    if isinstance(time, timedelta) and time >= timedelta(0):
        return time // timedelta(milliseconds=1)
    raise InvalidInputError(f"{name} must be a time of 0 or more, like datetime.timedelta(minutes=10). {name}={time!r}")


def words_of_ms(ms: int) -> str:
    """Format a duration exactly, in the largest possible unit: `7d`, `90s`."""
    unit = next((unit for unit in ("d", "h", "m") if ms and ms % _UNITS_MS[unit] == 0), "s")
    return f"{ms / _UNITS_MS[unit]:g}{unit}"


def words_of_age(ms: int) -> str:
    """Format a duration roughly, in the largest unit that it contains at least twice."""
    unit = next((unit for unit in ("d", "h", "m") if ms >= 2 * _UNITS_MS[unit]), "s")
    return f"{ms // _UNITS_MS[unit]}{unit}"


def plural(count: int, word: str, form: str = "") -> str:
    """Format a count with its noun: `1 log`, `2 logs`. form: "," gives `2,000 logs`."""
    return f"{count:{form}} {word}{'' if count == 1 else 's'}"


def words_of_bytes(count: float) -> str:
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


def _chosen(word: str, default: str) -> Callable[[str], bool]:
    choice = _one_of(word, default)
    return lambda text: choice(text) == word


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.strip() not in words:
            raise ValueError
        return text.strip()

    return parse


def _mirrors(text: str) -> tuple[str, ...]:
    formats = tuple(part.strip() for part in text.split(",")) if text.strip() != OFF else ()
    if len(set(formats)) < len(formats) or not set(formats) <= set(MIRRORS):
        raise ValueError
    return formats


def _catalogs(text: str) -> tuple[tuple[str, str], ...]:
    """Parse `glue:lake.events, prod:lake.events` to pairs of a catalog and a name."""
    entries = [part.strip() for part in text.split(",")] if text.strip() != OFF else []
    if len(set(entries)) < len(entries) or not all(_ENTRY.fullmatch(entry) for entry in entries):
        raise ValueError
    return tuple((entry.partition(":")[0], entry.partition(":")[2]) for entry in entries)


_DURATION = "a duration, like 7d, 12h, 30m or 90s"
_COUNT = "a whole number from 1 up"

POLICIES: Final[tuple[Policy, ...]] = (
    Policy(
        "crdt_mor.compaction.log_files", "log_files", "10", f"{_COUNT}, or off",
        "compact a file group with this many log files", _unless(OFF, _count),
    ),
    Policy(
        "crdt_mor.compaction.log_ratio", "log_ratio", "1", "a number above 0, like 0.5, or off",
        "compact a file group if its logs have this many times the bytes of its base file", _unless(OFF, _ratio),
    ),
    Policy(
        "crdt_mor.compaction.log_bytes", "log_bytes", "1MiB", "bytes, like 512KiB, 1MiB or 2GiB",
        "ignore the ratio if the logs are smaller than this, as they are fast to read", _bytes,
    ),
    Policy(
        "crdt_mor.compaction.age", "age_ms", "1d", f"{_DURATION}; or off",
        "compact a file group if its oldest log is this old", _unless(OFF, _duration),
    ),
    Policy(
        "crdt_mor.log_compaction.log_files", "log_compaction", OFF, f"{_COUNT}, or off",
        "merge this many logs of a file group into one, unless a compaction is due", _unless(OFF, _count),
    ),
    Policy(
        "crdt_mor.retention", "keep_ms", "7d", f"{_DURATION}; or forever",
        "how far back as_of and checkpoints reach", _unless(FOR_EVER, _duration),
    ),
    Policy(
        "crdt_mor.retention.commits", "keep_commits", OFF, f"{_COUNT}, or off",
        "keep at least this many commits readable, whatever their age", _unless(OFF, _count),
    ),
    Policy(
        "crdt_mor.retention.readers", "named_ms", "30d", _DURATION,
        "keep the unread history of named readers, up to this age", _duration,
    ),
    Policy(
        "crdt_mor.readers", "readers_ms", "1h", _DURATION,
        "keep files this much longer than the history needs them, for running readers", _duration,
    ),
    Policy(
        "crdt_mor.archive.commits", "archive", "100", f"{_COUNT}, or off",
        "archive after this many newly completed instants", _unless(OFF, _count),
    ),
    Policy(
        "crdt_mor.tokens", "tokens_ms", "365d", f"{_DURATION}; or forever",
        "forget the last token of an application without a write for this long",
        _unless(FOR_EVER, _duration),
    ),
    Policy(
        "crdt_mor.maintain", "inline", "auto", "auto, inline or off",
        "after their commits, writers compact their due file groups; auto: if one machine writes, in bounded time",
        _one_of("auto", "inline", OFF),
    ),
    Policy(
        "crdt_mor.mirror", "mirrors", OFF, "delta, iceberg, delta,iceberg or off",
        "refresh these mirrors after the other upkeep", _mirrors,
    ),
    Policy(
        "crdt_mor.mirror.when", "mirrors_commits", "maintain", "maintain or commit",
        "commit: writers refresh the mirrors after each of their commits, too", _chosen("commit", "maintain"),
    ),
    Policy(
        "crdt_mor.mirror.catalogs", "catalogs", OFF,
        "catalogs and names, like glue:lake.events, prod:lake.events, or off",
        "let these entries of Iceberg catalogs show the newest version", _catalogs,
    ),
    Policy(
        "crdt_mor.hudi.catalogs", "hudi_catalogs", OFF, "catalogs and names, like glue:lake.events, or off",
        "give these entries of the Hudi table its columns and partitions", _catalogs,
    ),
)  # fmt: skip

BY_NAME: Final[Mapping[str, Policy]] = {policy.name: policy for policy in POLICIES}


def parsed(name: str, text: str) -> object:
    policy = BY_NAME[name]
    try:
        return policy.parse(text)
    except ValueError:
        raise InvalidInputError(
            f"{name} must be {policy.form} (default {policy.default}). name={name!r} value={text!r:.200}"
        ) from None

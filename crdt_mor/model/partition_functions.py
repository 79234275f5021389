"""Functions of a column that give a partition level, like Iceberg's partition transforms.

    day("ts")             2026-01-31       a date, or the UTC day of a timestamp; also year, month and hour
    bucket("id", 16)      0 to 15          Iceberg's hash of an integer, a string or a date
    truncate("name", 3)   Ann              the first characters; integers are rounded down to a multiple

Each value is stored in a column of its own, hidden from our readers, because Hudi's readers take partition values from
columns. The source's value determines it: a null gives a null.

Source: Apache Iceberg table specification, Partition Transforms and Appendix B.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import pyarrow as pa

from crdt_mor.columns.names import lowered, stored_name
from crdt_mor.errors import FormatError, InvalidInputError

TIMES: Final = ("year", "month", "day", "hour")
_WITH_WIDTH: Final = ("bucket", "truncate")
_NAMES: Final = (*TIMES, *_WITH_WIDTH)
_WIDTH_MAX: Final = 2**31 - 1
_TEXT: Final = re.compile(r"(?P<name>\w+)\((?P<source>.+?)(?:,\s*(?P<width>-?\d+))?\)")


@dataclass(frozen=True, slots=True, repr=False)
class PartitionFunction:
    """A partition level made from a column: see `day`, `bucket` and `truncate`.

    Attributes:
        name: "year", "month", "day", "hour", "bucket" or "truncate".
        source: the column.
        width: the number of buckets, or the width of a truncation; None for times.
    """

    name: Literal["year", "month", "day", "hour", "bucket", "truncate"]
    source: str
    width: int | None = None
    column: str = field(default="", compare=False)
    """The stored column of the values; empty before the table's creation."""

    def __post_init__(self) -> None:
        source: object = self.source
        if not isinstance(source, str) or not source:
            raise InvalidInputError(f"{self.name} needs the name of a column. got={source!r}")
        if self.name in _WITH_WIDTH and not (type(self.width) is int and 1 <= self.width <= _WIDTH_MAX):
            raise InvalidInputError(f"{self.name} needs a number from 1 to {_WIDTH_MAX}. got={self.width!r}")

    def __repr__(self) -> str:
        return f"{self.name}({self.source!r}{'' if self.width is None else f', {self.width}'})"

    def __str__(self) -> str:
        return f"{self.name}({self.source}{'' if self.width is None else f', {self.width}'})"


def year(source: str) -> PartitionFunction:
    """Partition by the year of a date, or of a timestamp in UTC: `2026`."""
    return PartitionFunction("year", source)


def month(source: str) -> PartitionFunction:
    """Partition by the month of a date, or of a timestamp in UTC: `2026-01`."""
    return PartitionFunction("month", source)


def day(source: str) -> PartitionFunction:
    """Partition by a date, or by the day of a timestamp in UTC: `2026-01-31`."""
    return PartitionFunction("day", source)


def hour(source: str) -> PartitionFunction:
    """Partition by the hour of a timestamp in UTC: `2026-01-31-13`."""
    return PartitionFunction("hour", source)


def bucket(source: str, count: int) -> PartitionFunction:
    """Partition by Iceberg's hash of an integer, a string or a date, from 0 to `count` - 1."""
    return PartitionFunction("bucket", source, count)


def truncate(source: str, width: int) -> PartitionFunction:
    """Partition by the first `width` characters of a string, or by an integer rounded down to a multiple of it."""
    return PartitionFunction("truncate", source, width)


PartitionBy = tuple[str | PartitionFunction, ...]


def sources(partition_by: Iterable[str | PartitionFunction]) -> tuple[str, ...]:
    """Return the columns that determine the partition, each once."""
    return tuple(dict.fromkeys(one if isinstance(one, str) else one.source for one in partition_by))


def partition_by_of(given: str | PartitionFunction | Sequence[str | PartitionFunction]) -> PartitionBy:
    """Return an argument as a tuple."""
    found = (given,) if isinstance(given, str | PartitionFunction) else tuple(given)
    if not all(isinstance(one, str | PartitionFunction) for one in found):
        raise InvalidInputError(f'give columns or functions: ["region", day("ts")]. partition_by={given!r}')
    return found


def with_columns(partition_by: PartitionBy, stored: pa.Schema) -> PartitionBy:
    """Name the stored columns of a new table's functions. stored: all columns ever."""
    taken = lowered(stored.names)
    named = list[str | PartitionFunction]()
    for one in partition_by:
        if isinstance(one, str) or one.column:
            named.append(one)
            continue
        column = stored_name(f"{one.source}_{one.name}", taken)
        taken.add(column.lower())
        named.append(replace(one, column=column))
    return tuple(named)


def parsed(text: str) -> str | PartitionFunction:
    """Return a column, or the function that the text names, such as `bucket(id, 16)`."""
    found = _TEXT.fullmatch(text.strip())
    if found is None or found["name"] not in _NAMES:
        return text
    name: Any = found["name"]
    if (found["width"] is None) == (name in _WITH_WIDTH):
        raise InvalidInputError(f"write a function as day(ts), bucket(id, 16) or truncate(name, 3). got={text!r}")
    return PartitionFunction(name, found["source"].strip(), None if found["width"] is None else int(found["width"]))


# --- as a property ----------------------------------------------------------------------------------------------------


def to_text(partition_by: PartitionBy) -> str:
    """Return the functions as one line of JSON, "" for none."""
    entries = [[one.column, one.name, one.source, one.width] for one in partition_by if not isinstance(one, str)]
    return json.dumps(entries, separators=(",", ":")) if entries else ""


def from_text(text: str) -> dict[str, PartitionFunction]:
    """Return the functions by stored column."""
    try:
        found = [PartitionFunction(name, source, width, column) for column, name, source, width in json.loads(text)]
        if not all(one.name in _NAMES and isinstance(one.column, str) for one in found):
            raise ValueError("unknown function")
    except (ValueError, TypeError, RecursionError) as error:
        raise FormatError(f"not partition functions: {error}. text={text[:200]!r}") from error
    return {one.column: one for one in found}


def renamed(partition_by: PartitionBy, names: Callable[[str], str]) -> PartitionBy:
    return tuple(names(one) if isinstance(one, str) else replace(one, source=names(one.source)) for one in partition_by)

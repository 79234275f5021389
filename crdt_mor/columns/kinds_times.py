"""Families of dates, times of day and timestamps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from typing import Any, ClassVar, Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns.kind import AS_NUMBER, Column, Kind, Values, only
from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.late_imports import pc

TIMESTAMP: Final = pa.timestamp("us", "UTC")
TIME: Final = pa.time64("us")
"""The declared type of a time of day, stored as microseconds since midnight."""

UNITS: Final = {"s": 0, "ms": 1, "us": 2, "ns": 3}
_OFFSET: Final = re.compile(r"[+-]([01][0-9]|2[0-3]):[0-5][0-9]")
"""A time zone given as an offset from UTC."""


class Dates(Kind):
    samples = (pa.date32(), pa.date64())
    stored_as = pa.date32()
    is_text_in_json = True
    avro_types: ClassVar = {stored_as: {"type": "int", "logicalType": "date"}}
    logical: ClassVar = {("int", "date"): stored_as}
    python = date  # and its subclass datetime, of timestamps

    def may_be_key(self, kind: pa.DataType) -> bool:
        return True

    def path_value(self, text: str) -> object:
        return only(date.fromisoformat(text), text)

    def to_json(self, value: Any) -> str:
        return str(value.isoformat())

    def spelled(self, kind: pa.DataType) -> str:
        return str(kind).partition("[")[0]

    def named(self, name: str, parameters: Sequence[str]) -> pa.DataType | None:
        return pa.date32() if name == "date" and [*parameters] in ([], ["day"]) else None

    def apart(self, kind: pa.DataType, other: pa.DataType) -> str:
        if not pt.is_timestamp(other):
            return ""
        return (
            "Hudi's readers would show old dates as midnight in their session's zone: add a column of timestamps, fill "
            "it by update, and drop the dates"
        )

    def accepts(self, given: pa.DataType, declared: pa.DataType) -> bool:
        if pt.is_timestamp(given):  # polars' date64
            return pt.is_date64(declared) and given.tz is None
        return super().accepts(given, declared)

    def steps(self, given: pa.DataType, declared: pa.DataType, target: pa.DataType) -> list[pa.DataType]:
        if pt.is_timestamp(given):
            return [pa.timestamp("ms"), pa.int64(), declared, target]
        return super().steps(given, declared, target)


class Microseconds(Kind):
    """Values of several units, stored as numbers. plain: the type in microseconds."""

    plain: ClassVar[pa.DataType]
    stored_as = pa.int64()
    is_text_in_json = True
    mixes = False

    def inner(self, kind: pa.DataType) -> pa.DataType:
        return self.plain

    def join(self, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
        return left if left == right else self.plain

    def fits(self, batch: pa.DataType, declared: pa.DataType) -> bool:
        return UNITS[batch.unit] <= UNITS[declared.unit]

    def from_files(self, kind: pa.DataType, declared: pa.DataType) -> pa.DataType:
        return self.plain if kind == self.stored_as else kind

    def steps(self, given: pa.DataType, declared: pa.DataType, target: pa.DataType) -> list[pa.DataType]:
        return [declared, self.plain, target]

    def shown(self, stored: pa.ChunkedArray, declared: pa.DataType) -> pa.ChunkedArray:
        return stored.cast(self.plain).cast(declared)

    def way_out(self, kind: pa.DataType) -> str:
        return AS_NUMBER


class TimesOfDay(Microseconds):
    plain = TIME
    samples = (pa.time32("s"), pa.time32("ms"), TIME, pa.time64("ns"))
    unsound = "a time of day must lie between 00:00 and 24:00"
    no_sum = "times of day have no sum: declare the column int64"

    def from_texts(self, texts: Values, kind: pa.DataType) -> Values:
        """Parse texts behind a date, because Arrow parses no time of day alone."""
        moments = pc.binary_join_element_wise(pa.scalar("1970-01-01T"), texts, pa.scalar(""))
        return moments.cast(pa.timestamp(kind.unit)).cast(kind)

    def advice(self, given: pa.DataType, declared: pa.DataType) -> str:
        if pt.is_nested(given):
            return super().advice(given, declared)
        return (
            "convert it to times of day, pa.time64, datetime.time or in SQL TIME '10:30:00', because the unit of a "
            "number is unknown; from Spark, a bigint of microseconds since midnight is accepted"
        )


class Timestamps(Kind):
    samples = (
        *map(pa.timestamp, UNITS), pa.timestamp("s", "UTC"), pa.timestamp("ms", "Asia/Tokyo"), TIMESTAMP,
        pa.timestamp("ns", "Europe/Berlin"),
    )  # fmt: skip
    stored_as = TIMESTAMP
    is_text_in_json = True
    avro_types: ClassVar = {stored_as: {"type": "long", "logicalType": "timestamp-micros"}}
    logical: ClassVar = {
        ("long", "timestamp-micros"): stored_as,
        ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
        ("long", "local-timestamp-micros"): pa.timestamp("us"),
        ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    }

    def key_texts(self, data: Column, kind: pa.DataType) -> Column | None:
        return data.cast(pa.int64()).cast(pa.string())

    def from_key_texts(self, texts: pa.Array, stored: pa.DataType) -> pa.Array | None:
        return texts.cast(pa.int64()).cast(stored)

    def declared(self, kind: pa.DataType, column: str) -> pa.DataType:
        if kind.tz is not None:
            _require_zone(kind.tz, column)
        return kind

    def spelled(self, kind: pa.DataType) -> str:
        return str(kind).replace("tz=", "", 1)

    def named(self, name: str, parameters: Sequence[str]) -> pa.DataType | None:
        if name not in ("timestamp", "datetime"):
            return None
        if len(parameters) > 2:
            raise ValueError(parameters)
        unit, zone = [*(parameters or ["us"]), ""][:2]
        return pa.timestamp(unit, zone.removeprefix("tz=") or None)

    def join(self, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
        if (left.tz is None) != (right.tz is None):
            return None  # the zone of a naive time would be a guess
        return left if left == right else pa.timestamp("us") if left.tz is None else TIMESTAMP

    def from_files(self, kind: pa.DataType, declared: pa.DataType) -> pa.DataType:
        return pa.timestamp("us") if kind == self.stored_as and declared.tz is None else kind

    def apart(self, kind: pa.DataType, other: pa.DataType) -> str:
        if not pt.is_timestamp(other):
            return ""
        return "the zone of times without one would be a guess: add the zone to the data, or drop it"

    def fits(self, batch: pa.DataType, declared: pa.DataType) -> bool:
        return (batch.tz is None) == (declared.tz is None) and UNITS[batch.unit] <= UNITS[declared.unit]

    def fits_other(self, batch: pa.DataType, declared: pa.DataType) -> bool:
        return pt.is_date(batch) and declared.tz is None

    def accepts(self, given: pa.DataType, declared: pa.DataType) -> bool:
        if pt.is_date(given):
            return declared.tz is None
        return pt.is_timestamp(given) and (given.tz is None) == (declared.tz is None)

    def advice(self, given: pa.DataType, declared: pa.DataType) -> str:
        if pt.is_date(given):
            return "convert the dates to timestamps in their time zone"
        if not pt.is_timestamp(given):
            return super().advice(given, declared)
        return "add the time zone of the data" if given.tz is None else "drop the data's time zone, as in the column"


def _require_zone(name: str, column: str) -> None:
    """Readers could not show a column in an unknown zone."""
    if not (name == "UTC" or _OFFSET.fullmatch(name) or _has_zone(name)) and _has_zone("UTC"):
        raise InvalidInputError(
            f"no such time zone: take a name like Europe/Berlin or UTC, or +02:00. column={column} zone={name!r}"
        )


def _has_zone(name: str) -> bool:
    """Return False for an unknown zone, and on a machine without a time zone database."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return True

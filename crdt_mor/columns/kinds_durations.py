"""The family of durations."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar, Final

import pyarrow as pa

from crdt_mor.columns.kind import Values
from crdt_mor.columns.kinds_times import UNITS, Microseconds
from crdt_mor.ground.late_imports import pc

DURATION: Final = pa.duration("us")

_ISO: Final = (
    r"^(?P<sign>[+-]?)P(?:(?P<d>\d{1,9})D)?"
    r"(?:T(?:(?P<h>\d{1,11})H)?(?:(?P<m>\d{1,12})M)?(?:(?P<s>\d{1,13})(?:\.(?P<us>\d{1,6}))?S)?)?$"
)
"""ISO 8601, without years and months, whose lengths differ."""

_MICROSECONDS: Final = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "us": 1}


class Durations(Microseconds):
    plain = DURATION
    samples = tuple(map(pa.duration, UNITS))
    no_sum = "durations have no sum: declare the column int64"
    python = timedelta
    csv_types: ClassVar = dict.fromkeys(samples, pa.string())

    def to_json(self, value: Any) -> str:
        rest, sign = abs(value), "-" if value < timedelta() else ""
        days = f"{rest.days}D" if rest.days else ""
        fraction = f".{rest.microseconds:06}".rstrip("0") if rest.microseconds else ""
        return f"{sign}P{days}T{rest.seconds}{fraction}S"

    def from_texts(self, texts: Values, kind: pa.DataType) -> Values:
        parts = pc.extract_regex(texts, _ISO)
        if pc.any(pc.and_(pc.is_valid(texts), pc.is_null(parts))).as_py():
            raise pa.ArrowInvalid("not a duration, which is text like P1DT2H3M4.5S")
        is_negative = pc.equal(pc.struct_field(parts, "sign"), "-")
        total = pa.scalar(0, pa.int64())
        for name, size in _MICROSECONDS.items():
            digits = pc.struct_field(parts, name)
            digits = pc.utf8_rpad(digits, 6, "0") if name == "us" else pc.utf8_lpad(digits, 1, "0")
            part = pc.multiply_checked(digits.cast(pa.int64()), pc.if_else(is_negative, -size, size))
            total = pc.add_checked(total, part)
        return self.shown(total, kind)

    def advice(self, given: pa.DataType, declared: pa.DataType) -> str:
        return (
            "convert it to durations, pa.duration or in SQL INTERVAL '5 minutes', because the unit of a number is "
            "unknown"
        )

"""Texts and moments of SQL as values of the type that they stand beside.

day >= '2026-01-31'                          a text beside a date or a moment is one of these
at > TIMESTAMP '2026-01-31 12:00:00+05:00'   the offset counts, whatever the column's zone
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl

from crdt_mor.errors import InvalidInputError
from crdt_mor.read.sql_tokens import Token, Tokens

_MOMENT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?)?\s*(Z|UTC|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)

MOMENT_TYPES: Final = {
    ("TIMESTAMP",): "moment",
    ("DATETIME",): "moment",
    ("TIMESTAMP", "WITHOUT", "TIME", "ZONE"): "moment",
    ("TIMESTAMPTZ",): "instant",
    ("TIMESTAMP", "WITH", "TIME", "ZONE"): "instant",
}


@dataclass(frozen=True, slots=True)
class Literal:
    """A text, or a moment that is written as one.

    kind: "text"; "moment" or "instant", which is to have a zone, where the SQL names such a type.
    """

    text: str
    kind: str


def literal_of(tokens: Tokens) -> Literal | None:
    """The text or the moment that the tokens are; None for all else, dates of SQL among it."""
    if len(tokens) == 1:
        return Literal(text_of(tokens[0]), "text") if tokens[0].kind == "string" else None
    for index, token in enumerate(tokens):
        if token.kind == "string" and (kind := moment_type(tokens, index, whole=True)) is not None:
            text = text_of(token)
            return Literal(text, kind) if _MOMENT.fullmatch(text) else None
    return None


def moment_type(tokens: Tokens, at: int, *, whole: bool = False) -> str | None:
    """Which type of moments a text is said to be of: TIMESTAMP '…', '…'::TIMESTAMP or CAST('…' AS TIMESTAMP).

    whole: and the tokens are nothing else.
    """
    words = tuple(token.word for token in tokens)
    for kind, moment in MOMENT_TYPES.items():
        size, after = len(kind), words[at + 2 : at + 2 + len(kind)]
        if words[max(0, at - size) : at] == kind and (not whole or len(words) == size + 1):
            return moment
        if words[at + 1 : at + 2] == ("::",) and after == kind and (not whole or len(words) == size + 2):
            return moment
        in_cast = words[max(0, at - 2) : at] in (("CAST", "("), ("TRY_CAST", "("))
        named = words[at + 1 : at + 3 + size] == ("AS", *kind, ")")
        if in_cast and named and (not whole or len(words) == size + 5):
            return moment
    return None


def text_of(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def refuse_lost_offset(tokens: Tokens, at: int) -> None:
    """Raise for an offset from UTC inside of an expression, where polars leaves it out."""
    text = text_of(tokens[at])
    parts = _MOMENT.fullmatch(text)
    if parts is not None and parts[4] and moment_type(tokens, at) == "moment":
        raise InvalidInputError(
            "a moment with an offset from UTC stands by itself on one side of a comparison: to reckon with it, write "
            f"it in UTC without an offset. moment={text!r}"
        )


def plain(literal: Literal) -> pl.Expr:
    """A literal that is compared with no column."""
    return pl.lit(literal.text) if literal.kind == "text" else of_type(literal, pl.Datetime("us"))


def of_type(literal: Literal, kind: pl.DataType) -> pl.Expr:
    """The literal as a value of a type, if it can be one; else as what it is, which polars then refuses."""
    if kind == pl.Date and literal.kind == "text":
        return pl.lit(_date(literal.text) or literal.text)
    if literal.kind == "text" and not isinstance(kind, pl.Datetime):
        return pl.lit(literal.text)
    found = _moment(literal.text)
    if found is None:
        return pl.lit(literal.text)
    moment, zoned = found
    zone = kind.time_zone if isinstance(kind, pl.Datetime) else None
    if zone is None or (not zoned and literal.kind == "moment"):
        return pl.lit(moment)
    if not zoned and zone != "UTC":
        raise InvalidInputError(
            "the column has a time zone: say the offset from UTC of the moment that it is compared with, "
            f"'{moment}+00:00'. zone={zone} moment={literal.text!r}"
        )
    instant = moment.replace(tzinfo=UTC)
    return pl.lit(instant) if zone == "UTC" else _in_zone(instant, zone)


def _in_zone(instant: datetime, zone: str) -> pl.Expr:
    """A moment as a literal of a zone: one value, beside which polars decides each row by itself."""
    try:
        return pl.lit(instant.astimezone(ZoneInfo(zone)))
    except (OverflowError, ZoneInfoNotFoundError):  # at the end of Python's calendar; a zone that only polars knows
        return pl.lit(pl.Series([instant]).dt.convert_time_zone(zone))


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) else None
    except ValueError:
        return None


def _moment(text: str) -> tuple[datetime, bool] | None:
    """The moment that a text is, in UTC where it has an offset, and whether it has one; None: it is none."""
    parts = _MOMENT.fullmatch(text)
    if parts is None:
        return None
    day, time, fraction, offset = parts.groups()
    micros = (fraction or "").ljust(9, "0")
    if micros[6:] != "000":
        raise InvalidInputError(f"a table has moments to the microsecond, and none that is finer. moment={text!r}")
    try:
        moment = datetime.fromisoformat(f"{day} {time or '00:00'}") + timedelta(microseconds=int(micros[:6]))
        return moment - _offset(offset), offset is not None
    except (ValueError, OverflowError):
        return None


def _offset(text: str | None) -> timedelta:
    if text in (None, "Z", "UTC"):
        return timedelta()
    assert text is not None
    digits = text[1:].replace(":", "").ljust(4, "0")
    minutes = 60 * int(digits[:2]) + int(digits[2:])
    return timedelta(minutes=-minutes if text[0] == "-" else minutes)

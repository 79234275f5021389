"""Convert SQL text and moments to the type of the value beside them; see sql.py for examples."""

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
    """An SQL text, or a moment: "instant" for types with a time zone, else "moment"."""

    text: str
    kind: str


def literal_of(tokens: Tokens) -> Literal | None:
    """Return the text or moment that the tokens are, else None."""
    if len(tokens) == 1:
        return Literal(text_of(tokens[0]), "text") if tokens[0].kind == "string" else None
    for index, token in enumerate(tokens):
        if token.kind == "string" and (kind := moment_type(tokens, index, whole=True)) is not None:
            text = text_of(token)
            return Literal(text, kind) if _MOMENT.fullmatch(text) else None
    return None


def moment_type(tokens: Tokens, at: int, *, whole: bool = False) -> str | None:
    """Return the moment type of a text: TIMESTAMP '…', '…'::TIMESTAMP or CAST('…' AS TIMESTAMP).

    With `whole`, there must be no further tokens.
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
    """Raise for an offset from UTC inside an expression: polars would drop it."""
    text = text_of(tokens[at])
    parts = _MOMENT.fullmatch(text)
    if parts is not None and parts[4] and moment_type(tokens, at) == "moment":
        raise InvalidInputError(
            "a moment with an offset from UTC must be one whole side of a comparison: inside an expression, write it "
            f"in UTC without an offset. moment={text!r}"
        )


def plain(literal: Literal) -> pl.Expr:
    return pl.lit(literal.text) if literal.kind == "text" else of_type(literal, pl.Datetime("us"))


def of_type(literal: Literal, kind: pl.DataType) -> pl.Expr:
    """Convert a literal to a type, if possible; else polars raises."""
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
            "the column has a time zone: add an offset from UTC to the moment, "
            f"'{moment}+00:00'. zone={zone} moment={literal.text!r}"
        )
    instant = moment.replace(tzinfo=UTC)
    return pl.lit(instant) if zone == "UTC" else _in_zone(instant, zone)


def _in_zone(instant: datetime, zone: str) -> pl.Expr:
    """Return a moment in a zone as one value, so the condition stays element-wise."""
    try:
        return pl.lit(instant.astimezone(ZoneInfo(zone)))
    except (OverflowError, ZoneInfoNotFoundError):  # outside Python's calendar, or a zone only polars knows
        return pl.lit(pl.Series([instant]).dt.convert_time_zone(zone))


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) else None
    except ValueError:
        return None


def _moment(text: str) -> tuple[datetime, bool] | None:
    """Parse a text to a moment in UTC, and whether it has an offset."""
    parts = _MOMENT.fullmatch(text)
    if parts is None:
        return None
    day, time, fraction, offset = parts.groups()
    micros = (fraction or "").ljust(9, "0")
    if micros[6:] != "000":
        raise InvalidInputError(f"moments have microsecond precision: remove the further digits. moment={text!r}")
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

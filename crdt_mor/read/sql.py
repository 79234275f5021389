"""SQL conditions as polars expressions.

polars parses SQL. What it does not, or does otherwise than other engines, is done here:

    day >= '2026-01-31'                          a text beside a date or a moment is one of these
    at > TIMESTAMP '2026-01-31 12:00:00+05:00'   the offset counts, whatever the column's zone
    open IS NOT TRUE                             is true of null, and open IS TRUE is false of it
    n IS DISTINCT FROM 1 AND …                   ends before AND
    n = 1 OR NULL                                null is a condition

The text is cut at OR, AND and NOT, down to its predicates. A predicate that needs none of this goes to polars as it was
written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import dropwhile, pairwise
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl

from crdt_mor.errors import InvalidInputError
from crdt_mor.read.expressions import columns_in, joined
from crdt_mor.read.sql_parser import parsed
from crdt_mor.read.sql_tokens import (
    COMPARISONS,
    PREDICATES,
    Token,
    Tokens,
    cut,
    in_brackets,
    own_words,
    parted,
    tokens_of,
)
from crdt_mor.read.sql_writing import written

_COMPARED: Final[dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]]] = {
    "=": eq, "==": eq, "<>": ne, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge, "<=>": pl.Expr.eq_missing,
}  # fmt: skip

_DEPTH_MAX: Final = 50
"""Brackets in brackets, each a level of recursion. polars itself takes no more."""

_MOMENT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?)?\s*(Z|UTC|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)

_MOMENT_TYPES: Final = {
    ("TIMESTAMP",): "moment",
    ("DATETIME",): "moment",
    ("TIMESTAMP", "WITHOUT", "TIME", "ZONE"): "moment",
    ("TIMESTAMPTZ",): "instant",
    ("TIMESTAMP", "WITH", "TIME", "ZONE"): "instant",
}

_MOMENT_FORMS: Final = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d")


@dataclass(frozen=True, slots=True)
class Literal:
    """A text, or a moment that is written as one.

    kind: "text"; "moment" or "instant", which is to have a zone, where the SQL names such a type.
    """

    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Condition:
    """An SQL condition on a table whose columns have these types."""

    text: str
    columns: pl.Schema

    def expression(self) -> pl.Expr:
        """The condition as an expression; raises polars' errors for what is none."""
        require_unicode(self.text)
        tokens = tokens_of(self.text)
        if tokens is None:
            raise pl.exceptions.SQLSyntaxError("a text of SQL stands in single quotes, 'so', in no others")
        if any(first.word == "(" and second.word == "SELECT" for first, second in pairwise(tokens)):
            raise pl.exceptions.SQLInterfaceError("subquery")
        deep = max((token.depth for token in tokens), default=0) > _DEPTH_MAX
        return self._value(tokens) if deep else self._any(tokens)

    def _any(self, tokens: Tokens) -> pl.Expr:
        if "XOR" in own_words(tokens):
            return self._value(tokens)
        return joined(list(map(self._all, parted(tokens, "OR"))), or_)

    def _all(self, tokens: Tokens) -> pl.Expr:
        return joined(list(map(self._one, parted(tokens, "AND"))), and_)

    def _one(self, tokens: Tokens) -> pl.Expr:
        if own_words(tokens)[:1] == ["NOT"]:
            affirmed = list(dropwhile(lambda token: token.word == "NOT", tokens))
            condition = self._one(affirmed).cast(pl.Boolean)
            return condition if (len(tokens) - len(affirmed)) % 2 == 0 else ~condition
        inner = in_brackets(tokens)
        return self._predicate(tokens) if inner is None else self._any(inner)

    # --- predicates -------------------------------------------------------------------------------------------------

    def _predicate(self, tokens: Tokens) -> pl.Expr:
        here = own_words(tokens)
        if here == ["NULL"]:
            return pl.lit(None, pl.Boolean)
        found = None
        if any(word in COMPARISONS and after == "NOT" for word, after in pairwise(here)):
            return self._value(tokens)
        if "IS" in here:
            found = self._is(tokens, len(here) - 1 - here[::-1].index("IS"))
        else:
            places = [index for index, word in enumerate(here) if word in PREDICATES]
            negated = [here[index] for index in places][:1] == ["NOT"]
            match [here[index] for index in places[negated:]]:
                case [sign] if sign in _COMPARED and not negated:
                    found = self._compared(sign, *cut(tokens, places))
                case ["BETWEEN"]:
                    found = self._between(tokens[: places[0]], tokens[places[-1] + 1 :])
                case ["IN"]:
                    found = self._in(tokens[: places[0]], tokens[places[-1] + 1 :])
            found = ~found if found is not None and negated else found
        return self._value(tokens) if found is None else found

    def _is(self, tokens: Tokens, at: int) -> pl.Expr | None:
        """IS [NOT] before a truth value, and IS [NOT] DISTINCT FROM: never null themselves."""
        left, right = tokens[:at], tokens[at + 1 :]
        negated = own_words(right)[:1] == ["NOT"]
        right = right[negated:]
        match own_words(right):
            case ["TRUE" | "FALSE" as truth]:
                value = self._truth(left)
                return value.ne_missing(truth == "TRUE") if negated else value.eq_missing(truth == "TRUE")
            case ["UNKNOWN"]:
                return self._truth(left).is_not_null() if negated else self._truth(left).is_null()
            case ["NULL"] if _stands_alone(left):
                return self._value(left).is_not_null() if negated else self._value(left).is_null()
            case ["DISTINCT", "FROM", *_]:
                value, other = self._sides(left, right[2:])
                return value.eq_missing(other) if negated else value.ne_missing(other)
        return None

    def _truth(self, tokens: Tokens) -> pl.Expr:
        value = self._one(tokens)
        return value if self._type(value) == pl.Boolean else value.cast(pl.Boolean)

    def _compared(self, sign: str, left: Tokens, right: Tokens) -> pl.Expr | None:
        if not (_stands_alone(left) or _stands_alone(right)):
            return None
        return _COMPARED[sign](*self._sides(left, right))

    def _between(self, value: Tokens, bounds: Tokens) -> pl.Expr | None:
        sides = parted(bounds, "AND")
        if len(sides) != 2 or not any(map(_stands_alone, (value, *sides))):
            return None
        low, high = self._sides(value, sides[0]), self._sides(value, sides[1])
        return (low[0] >= low[1]) & (high[0] <= high[1])

    def _in(self, value: Tokens, listed: Tokens) -> pl.Expr | None:
        inner = in_brackets(listed)
        items = [] if inner is None else parted(inner, ",")
        some = [item for item in items if own_words(item) != ["NULL"]]
        if not any(map(_stands_alone, (value, *some))) or not self._type(self._value(value)).is_temporal():
            return None
        sides = [self._sides(value, item) for item in some]
        found = joined([eq(*pair) for pair in sides], or_)
        if all(_literal(item) is not None for item in some):
            values = [pl.select(one).to_series().alias("values") for _, one in sides]
            if len({one.dtype for one in values}) == 1:
                found = sides[0][0].is_in(pl.concat(values).implode())
        return found if len(some) == len(items) else found | pl.lit(None, pl.Boolean)

    # --- operands ---------------------------------------------------------------------------------------------------

    def _sides(self, left: Tokens, right: Tokens) -> tuple[pl.Expr, pl.Expr]:
        """Two values that are compared, a literal among them as one of the other's type."""
        one, other = _literal(left), _literal(right)
        if one is not None and other is None:
            return self._sides(right, left)[::-1]
        value = self._value(left) if one is None else _plain(one)
        if other is None:
            return value, self._value(right)
        kind = self._type(value)
        beside = _of_type(other, kind)
        if isinstance(kind, pl.Datetime) and kind.time_unit == "ms":  # of two units polars compares in the coarser one
            value = value.cast(pl.Datetime("us", kind.time_zone))
        return value, beside

    def _value(self, tokens: Tokens) -> pl.Expr:
        """What polars makes of tokens, as they are written."""
        if not tokens:
            raise pl.exceptions.SQLSyntaxError("unable to parse: something is missing")
        for index, token in enumerate(tokens):
            if token.kind == "string":
                _refuse_lost_offset(tokens, index)
        cast = self._text_cast(tokens)
        return _unnamed(parsed(written(self.text, tokens, self.columns), tokens)) if cast is None else cast

    def _text_cast(self, tokens: Tokens) -> pl.Expr | None:
        """TRY_CAST of a text AS DATE or AS TIMESTAMP, which polars has not; None for all else."""
        inner = in_brackets(tokens[1:]) if tokens[0].word == "TRY_CAST" else None
        parts = [] if inner is None else parted(inner, "AS")
        if len(parts) != 2:
            return None
        kind = tuple(own_words(parts[1]))
        if kind != ("DATE",) and _MOMENT_TYPES.get(kind) != "moment":
            return None
        value = self._value(parts[0])
        if self._type(value) != pl.String:
            return None
        moment = pl.coalesce(value.str.to_datetime(form, time_unit="us", strict=False) for form in _MOMENT_FORMS)
        return moment.dt.date() if kind == ("DATE",) else moment

    def _type(self, value: pl.Expr) -> pl.DataType:
        if not set(columns_in(value)) <= set(self.columns):
            return pl.Null()  # which is refused later, by name
        if value.meta.is_column():
            return self.columns[value.meta.output_name()]
        return pl.LazyFrame(schema=self.columns).select(value.alias("value")).collect_schema()["value"]


def require_unicode(text: str) -> None:
    """Raise `InvalidInputError` for a text with halves of characters, as JSON can hold them; polars takes none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"a text of SQL is Unicode, and this one has a half of a character: leave it out. place={error.start}"
        ) from error


def _unnamed(made: pl.Expr) -> pl.Expr:
    """What polars made of tokens; raises where it took the last one for a name, as of `views > 10 'Rome'`."""
    inner = made.meta.pop()
    name = "" if len(inner) != 1 or made.meta.has_multiple_outputs() else made.meta.output_name()
    if name and inner[0].alias(name).meta.eq(made):
        raise pl.exceptions.SQLInterfaceError(
            "a name stands behind a value, and nothing here has one: leave it out, or say what is to be done with it. "
            f"{name=}"
        )
    return made


# --- literals ---------------------------------------------------------------------------------------------------------


def _literal(tokens: Tokens) -> Literal | None:
    """The text or the moment that the tokens are; None for all else, dates of SQL among it."""
    if len(tokens) == 1:
        return Literal(_text_of(tokens[0]), "text") if tokens[0].kind == "string" else None
    for index, token in enumerate(tokens):
        if token.kind == "string" and (kind := _moment_type(tokens, index, whole=True)) is not None:
            text = _text_of(token)
            return Literal(text, kind) if _MOMENT.fullmatch(text) else None
    return None


def _stands_alone(tokens: Tokens) -> bool:
    """Whether polars is not to have the tokens as a part of a text: a literal, and TRY_CAST."""
    if not tokens or tokens[0].word != "TRY_CAST":
        return _literal(tokens) is not None
    return in_brackets(tokens[1:]) is not None


def _moment_type(tokens: Tokens, at: int, *, whole: bool = False) -> str | None:
    """Which type of moments a text is said to be of: TIMESTAMP '…', '…'::TIMESTAMP or CAST('…' AS TIMESTAMP).

    whole: and the tokens are nothing else.
    """
    words = tuple(token.word for token in tokens)
    for kind, moment in _MOMENT_TYPES.items():
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


def _text_of(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _refuse_lost_offset(tokens: Tokens, at: int) -> None:
    """Raise for an offset from UTC inside of an expression, where polars leaves it out."""
    text = _text_of(tokens[at])
    parts = _MOMENT.fullmatch(text)
    if parts is not None and parts[4] and _moment_type(tokens, at) == "moment":
        raise InvalidInputError(
            "a moment with an offset from UTC stands by itself on one side of a comparison: to reckon with it, write "
            f"it in UTC without an offset. moment={text!r}"
        )


def _plain(literal: Literal) -> pl.Expr:
    """A literal that is compared with no column."""
    return pl.lit(literal.text) if literal.kind == "text" else _of_type(literal, pl.Datetime("us"))


def _of_type(literal: Literal, kind: pl.DataType) -> pl.Expr:
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

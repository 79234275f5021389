"""Translate the parts of an SQL value that polars rejects or evaluates unlike other engines.

    CASE WHEN day > '2026-01-31' THEN …     a condition inside a value is translated like any other
    DATE_TRUNC('month', day)                polars does not know the type of day
    TRY_CAST(s AS DATE)                     null for text that is not a date
    LEFT(s, 0)   STRPOS(s, 'x')             null for null ('' and 0 in polars); positions in characters, not bytes
    m['k']   st['a']                        the value of a map, the field of a struct

In polars' SQL a column replaces each part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import and_, eq
from typing import Final, Protocol

import polars as pl

from crdt_mor.errors import InvalidInputError
from crdt_mor.read.expressions import joined
from crdt_mor.read.sql_literals import MOMENT_TYPES, literal_of
from crdt_mor.read.sql_names import name_of
from crdt_mor.read.sql_tokens import ENDING, OPENING, PREDICATES, Token, Tokens, own_words, parted


class Maker(Protocol):
    @property
    def text(self) -> str:
        """The whole text."""

    @property
    def columns(self) -> pl.Schema:
        """The columns that it may name, with their types."""

    def condition(self, tokens: Tokens) -> pl.Expr:
        """Translate a condition, or any value."""

    def value(self, tokens: Tokens, *, skipped: int = 0) -> pl.Expr:
        """Translate a value; no part begins at a skipped token."""

    def sides(self, left: Tokens, right: Tokens) -> tuple[pl.Expr, pl.Expr]:
        """Translate the two operands of a comparison."""

    def type_of(self, value: pl.Expr) -> pl.DataType:
        """Return the type of a value."""


@dataclass(frozen=True, slots=True)
class Part:
    first: int
    size: int
    expression: pl.Expr


def parts_of(tokens: Tokens, maker: Maker, *, skipped: int = 0) -> Iterator[Part]:
    at = skipped
    while at < len(tokens):
        part = _part_at(tokens, at, maker)
        if part is not None:
            yield part
        at += 1 if part is None else part.size


def _part_at(tokens: Tokens, at: int, maker: Maker) -> Part | None:
    for find in (_condition_at, _case_at, _call_at, _subscript_at):
        if (part := find(tokens, at, maker)) is not None:
            return part
    return None


# --- conditions -------------------------------------------------------------------------------------------------------

_BEFORE: Final = OPENING | ENDING
_BEHIND: Final = ENDING | {"AS"}
_DATED: Final = re.compile(r"'\d{4}-\d\d-\d\d")


def _condition_at(tokens: Tokens, at: int, maker: Maker) -> Part | None:
    """Translate a condition in brackets, a CASE or arguments with the text of a date or moment."""
    if at == 0 or tokens[at - 1].word not in _BEFORE:
        return None
    depth, size = tokens[at].depth, 0
    for token in tokens[at:]:
        if token.depth < depth or (token.depth == depth and token.word in _BEHIND):
            break
        size += 1
    inside = tokens[at : at + size]
    if PREDICATES.isdisjoint(own_words(inside)) or not any(_DATED.match(token.text) for token in inside):
        return None
    return Part(at, size, maker.condition(inside))


def _case_at(tokens: Tokens, at: int, maker: Maker) -> Part | None:
    if tokens[at].word != "CASE" or at + 1 == len(tokens) or tokens[at + 1].word == "WHEN":
        return None
    size = _size(tokens, at)
    operand, *branches = parted(tokens[at + 1 : at + size - 1], "WHEN")
    pairs = [parted(branch, "THEN") for branch in branches]
    if not any(literal_of(pair[0]) for pair in pairs) or any(len(pair) != 2 for pair in pairs):
        return None
    if not maker.type_of(maker.value(operand)).is_temporal():
        return None
    last, *otherwise = parted(pairs[-1][1], "ELSE")
    pairs[-1] = [pairs[-1][0], last]
    made = maker.condition(otherwise[0]) if otherwise else pl.lit(None)
    for when, then in reversed(pairs):
        made = pl.when(eq(*maker.sides(operand, when))).then(maker.condition(then)).otherwise(made)
    return Part(at, size, made)


# --- functions --------------------------------------------------------------------------------------------------------


def _call_at(tokens: Tokens, at: int, maker: Maker) -> Part | None:
    make = _CALLS.get(tokens[at].word)
    if make is None or at + 1 == len(tokens) or tokens[at + 1].word != "(":
        return None
    size = 1 + _size(tokens, at + 1)
    made = make(tokens[at : at + size], maker)
    return None if made is None else Part(at, size, made)


_EVERY: Final = {
    "YEAR": "1y", "QUARTER": "1q", "MONTH": "1mo", "WEEK": "1w", "DAY": "1d", "HOUR": "1h", "MINUTE": "1m",
    "SECOND": "1s", "MILLISECOND": "1ms", "MICROSECOND": "1us",
}  # fmt: skip
_OF_A_DAY: Final = ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")


def _date_trunc(call: Tokens, maker: Maker) -> pl.Expr | None:
    arguments = parted(call[2:-1], ",")
    if len(arguments) != 2:
        return None
    unit = literal_of(arguments[0])
    named = "" if unit is None else unit.text.upper()
    if named not in _EVERY:
        raise InvalidInputError(
            f"pass a unit as the first argument of DATE_TRUNC, any of {[*map(str.lower, _EVERY)]}: "
            f"DATE_TRUNC('month', day). sql={_text(call, maker)}"
        )
    value = maker.value(arguments[1])
    kind = maker.type_of(value)
    if kind == pl.Date and named in _OF_A_DAY:
        return value.cast(pl.Datetime("us"))
    if kind == pl.Date or isinstance(kind, pl.Datetime):
        return value.dt.truncate(_EVERY[named])
    if kind == pl.Null:  # an unknown column: a later check raises with its name
        return value
    raise InvalidInputError(
        "DATE_TRUNC needs a date or a timestamp: cast the value with CAST(… AS TIMESTAMP), text with TRY_CAST. "
        f"type={kind} sql={_text(call, maker)}"
    )


_MOMENT_FORMS: Final = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d")


def _try_cast(call: Tokens, maker: Maker) -> pl.Expr | None:
    parts = parted(call[2:-1], "AS")
    if len(parts) != 2:
        return None
    kind = tuple(own_words(parts[1]))
    if kind != ("DATE",) and MOMENT_TYPES.get(kind) != "moment":
        return None
    value = maker.value(parts[0])
    if maker.type_of(value) != pl.String:
        return None
    moment = pl.coalesce(value.str.to_datetime(form, time_unit="us", strict=False) for form in _MOMENT_FORMS)
    return moment.dt.date() if kind == ("DATE",) else moment


def _position(call: Tokens, maker: Maker, *, swapped: bool = False) -> pl.Expr | None:
    """Return a text's position in characters from 1, or 0."""
    arguments = parted(call[2:-1], "IN" if swapped else ",")
    if len(arguments) != 2:
        return None
    one, other = map(maker.value, arguments)
    whole = _text_of(other if swapped else one, maker)
    part = one if swapped else other
    if whole is None:
        return None
    found = whole.str.find(part, literal=True)
    before = whole.cast(pl.Binary).bin.slice(0, found).cast(pl.String).str.len_chars()
    place = pl.when(found.is_null()).then(pl.lit(0, pl.UInt32)).otherwise(before + 1)
    return _unless_null(place, [whole, part])


def _end(call: Tokens, maker: Maker) -> pl.Expr | None:
    """Translate LEFT and RIGHT; a negative number drops characters at the other end."""
    arguments = parted(call[2:-1], ",")
    if len(arguments) != 2:
        return None
    given, number = map(maker.value, arguments)
    text = _text_of(given, maker)
    if text is None:
        return None
    return text.str.head(number) if call[0].word == "LEFT" else text.str.tail(number)


def _text_of(value: pl.Expr, maker: Maker) -> pl.Expr | None:
    """Return a text value, or a NULL as a text; None for other types."""
    kind = maker.type_of(value)
    return value.cast(pl.String) if kind == pl.Null else value if kind == pl.String else None


def _strict(call: Tokens, maker: Maker) -> pl.Expr | None:
    """Make a text function null for any null argument."""
    words = [parted(part, "FOR") for part in parted(call[2:-1], "FROM")]
    _, *others = [argument for one in words for part in one for argument in parted(part, ",")]
    arguments = [maker.value(argument) for argument in others if any(map(_is_unsure, argument))]
    return _unless_null(maker.value(call, skipped=1), arguments) if arguments else None


def _unless_null(value: pl.Expr, arguments: Sequence[pl.Expr]) -> pl.Expr:
    return pl.when(joined([argument.is_not_null() for argument in arguments], and_)).then(value)


def _is_unsure(token: Token) -> bool:
    return token.kind not in ("number", "string") and token.word != "-"


_CALLS: Final[dict[str, Callable[[Tokens, Maker], pl.Expr | None]]] = {
    "DATE_TRUNC": _date_trunc,
    "TRY_CAST": _try_cast,
    "STRPOS": _position,
    "POSITION": partial(_position, swapped=True),
    **dict.fromkeys(("LEFT", "RIGHT"), _end),
    **dict.fromkeys(("SUBSTR", "SUBSTRING", "SPLIT_PART"), _strict),
}


# --- maps and structs -------------------------------------------------------------------------------------------------


def _subscript_at(tokens: Tokens, at: int, maker: Maker) -> Part | None:
    """Translate m['k'], st['a'] and source.m['k'].a."""
    is_name = tokens[at].kind in ("word", "name") and (at == 0 or tokens[at - 1].word != ".")
    if not is_name or name_of(_text(tokens[at : at + 1], maker)) not in maker.columns:
        return None
    end = at + 1
    while end + 1 < len(tokens) and tokens[end].word == ".":
        end += 2
    if end >= len(tokens) or tokens[end].word != "[":
        return None
    value, first = maker.value(tokens[at:end]), end
    while end < len(tokens) and tokens[end].word in ("[", "."):
        size = _size(tokens, end) if tokens[end].word == "[" else 2
        found = _inside(value, tokens[end : end + size], maker)
        if found is None:
            break
        value, end = found, end + size
    return None if end == first else Part(at, end - at, value)


def _inside(value: pl.Expr, tokens: Tokens, maker: Maker) -> pl.Expr | None:
    kind, in_brackets = maker.type_of(value), tokens[0].word == "["
    key = literal_of(tokens[1:-1]) if in_brackets else None
    if isinstance(kind, pl.Map) and in_brackets:
        return value.map.get(maker.value(tokens[1:-1]) if key is None else pl.lit(key.text))
    if isinstance(kind, pl.Struct) and key is not None:
        return value.struct.field(key.text)
    if isinstance(kind, pl.Struct) and not in_brackets and len(tokens) == 2:
        return value.struct.field(name_of(_text(tokens[1:], maker)))
    return None


# --- places -----------------------------------------------------------------------------------------------------------


def _size(tokens: Tokens, at: int) -> int:
    depth = tokens[at].depth
    ends = (place for place in range(at + 1, len(tokens)) if tokens[place].depth <= depth)
    return next(ends, at) + 1 - at


def _text(tokens: Tokens, maker: Maker) -> str:
    return maker.text[tokens[0].start : tokens[-1].end]

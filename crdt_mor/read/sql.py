"""Parse SQL conditions to polars expressions.

polars parses the SQL. This module translates the parts that polars rejects, or evaluates unlike other engines:

    day >= '2026-01-31'                          text beside a date or a moment is a date or a moment
    at > TIMESTAMP '2026-01-31 12:00:00+05:00'   the offset counts, whatever the column's zone
    open IS NOT TRUE                             true for null; open IS TRUE is false for null
    n IS DISTINCT FROM 1 AND …                   ends before AND
    n = 1 OR NULL                                null is a condition
    n IN (0.5, CAST(1 AS DECIMAL(5, 0)))         each item keeps its type

Other predicates go to polars unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, dropwhile, pairwise
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Final

import polars as pl

from crdt_mor.errors import InvalidInputError
from crdt_mor.read.expressions import columns_in, joined
from crdt_mor.read.inputs import Inputs
from crdt_mor.read.sql_literals import Literal, literal_of, of_type, plain, refuse_lost_offset
from crdt_mor.read.sql_parser import parsed, require_shallow
from crdt_mor.read.sql_parts import Part, parts_of
from crdt_mor.read.sql_tokens import COMPARISONS, PREDICATES, Tokens, cut, in_brackets, own_words, parted, tokens_of
from crdt_mor.read.sql_writing import written
from crdt_mor.read.trees import Node, expression_of, mapped, tree_of, with_columns_replaced

_COMPARED: Final[dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]]] = {
    "=": eq, "==": eq, "<>": ne, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge, "<=>": pl.Expr.eq_missing,
}  # fmt: skip

_DEPTH_MAX: Final = 50
"""Nested brackets, each a level of recursion; polars' limit too."""


@dataclass(frozen=True, slots=True)
class Condition:
    text: str
    inputs: Inputs

    @property
    def columns(self) -> pl.Schema:
        return self.inputs.columns

    def expression(self) -> pl.Expr:
        require_unicode(self.text)
        tokens = tokens_of(self.text)
        if tokens is None and tokens_of(self.text.replace(";", " ")) is not None:
            raise pl.exceptions.SQLSyntaxError("unexpected token ';'")
        if tokens is None:
            raise pl.exceptions.SQLSyntaxError("put SQL text in single quotes, 'so'; other quotes are not supported")
        if any(first.word == "(" and second.word == "SELECT" for first, second in pairwise(tokens)):
            raise pl.exceptions.SQLInterfaceError("subquery")
        deep = max((token.depth for token in tokens), default=0) > _DEPTH_MAX
        made = self._polars(tokens, []) if deep else self.condition(tokens)
        timed = self.inputs.have_times or any(t.word == "TIME" for t in tokens)
        return _with_whole_times(made, self.type_of) if timed else made

    def condition(self, tokens: Tokens) -> pl.Expr:
        if "XOR" in own_words(tokens):
            return self.value(tokens)
        return joined(list(map(self._all, parted(tokens, "OR"))), or_)

    def _all(self, tokens: Tokens) -> pl.Expr:
        return joined(list(map(self._one, parted(tokens, "AND"))), and_)

    def _one(self, tokens: Tokens) -> pl.Expr:
        if own_words(tokens)[:1] == ["NOT"]:
            affirmed = list(dropwhile(lambda token: token.word == "NOT", tokens))
            condition = self._one(affirmed).cast(pl.Boolean)
            return condition if (len(tokens) - len(affirmed)) % 2 == 0 else ~condition
        inner = in_brackets(tokens)
        return self._predicate(tokens) if inner is None else self.condition(inner)

    # --- predicates -------------------------------------------------------------------------------------------------

    def _predicate(self, tokens: Tokens) -> pl.Expr:
        here = own_words(tokens)
        if here == ["NULL"]:
            return pl.lit(None, pl.Boolean)
        found = None
        if any(word in COMPARISONS and after == "NOT" for word, after in pairwise(here)):
            return self.value(tokens)
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
        return self.value(tokens) if found is None else found

    def _is(self, tokens: Tokens, at: int) -> pl.Expr | None:
        """Translate tests by IS, which are never null."""
        left, right = tokens[:at], tokens[at + 1 :]
        negated = own_words(right)[:1] == ["NOT"]
        right = right[negated:]
        match own_words(right):
            case ["TRUE" | "FALSE" as truth]:
                value = self._truth(left)
                return value.ne_missing(truth == "TRUE") if negated else value.eq_missing(truth == "TRUE")
            case ["UNKNOWN"]:
                return self._truth(left).is_not_null() if negated else self._truth(left).is_null()
            case ["DISTINCT", "FROM", *_]:
                value, other = self.sides(left, right[2:])
                return value.eq_missing(other) if negated else value.ne_missing(other)
        return None

    def _truth(self, tokens: Tokens) -> pl.Expr:
        value = self._one(tokens)
        return value if self.type_of(value) == pl.Boolean else value.cast(pl.Boolean)

    def _compared(self, sign: str, left: Tokens, right: Tokens) -> pl.Expr | None:
        if literal_of(left) is None and literal_of(right) is None:
            return None
        return _COMPARED[sign](*self.sides(left, right))

    def _between(self, value: Tokens, bounds: Tokens) -> pl.Expr | None:
        sides = parted(bounds, "AND")
        if len(sides) != 2 or not any(map(literal_of, (value, *sides))):
            return None
        low, high = self.sides(value, sides[0]), self.sides(value, sides[1])
        return (low[0] >= low[1]) & (high[0] <= high[1])

    def _in(self, value: Tokens, listed: Tokens) -> pl.Expr | None:
        inner = in_brackets(listed)
        items = [] if inner is None else parted(inner, ",")
        some = [item for item in items if own_words(item) != ["NULL"]]
        if not some:
            return None
        one, texts = literal_of(value), list(map(literal_of, some))
        if any((one, *texts)) and self.type_of(self.value(value)).is_temporal():
            found = self._in_times(value, some, texts)
        elif all(map(_is_literal, some)):
            return None
        else:  # polars would cast all items to the type of one of them
            found = joined([eq(self.value(value), self.value(item)) for item in some], or_)
        return found if len(some) == len(items) else found | pl.lit(None, pl.Boolean)

    def _in_times(self, value: Tokens, items: Sequence[Tokens], texts: Sequence[Literal | None]) -> pl.Expr:
        if literal_of(value) is not None:
            sides = [self.sides(value, item) for item in items]
        else:
            one = self.value(value)
            sides = [
                (one, self.value(i)) if t is None else self._beside(one, t) for i, t in zip(items, texts, strict=True)
            ]
        if None not in texts:
            values = [pl.select(other).to_series().alias("values") for _, other in sides]
            if len({other.dtype for other in values}) == 1:
                return sides[0][0].is_in(pl.concat(values).implode())
        return joined([eq(*pair) for pair in sides], or_)

    # --- operands ---------------------------------------------------------------------------------------------------

    def sides(self, left: Tokens, right: Tokens) -> tuple[pl.Expr, pl.Expr]:
        """Return a comparison's operands; a literal takes the other's type."""
        one, other = literal_of(left), literal_of(right)
        if one is not None and other is None:
            return self.sides(right, left)[::-1]
        value = self.value(left) if one is None else plain(one)
        if other is None:
            return value, self.value(right)
        return self._beside(value, other)

    def _beside(self, value: pl.Expr, literal: Literal) -> tuple[pl.Expr, pl.Expr]:
        kind = self.type_of(value)
        beside = of_type(literal, kind)
        if isinstance(kind, pl.Datetime) and kind.time_unit == "ms":  # polars would compare in the coarser unit
            value = value.cast(pl.Datetime("us", kind.time_zone))
        return value, beside

    def value(self, tokens: Tokens, *, skipped: int = 0) -> pl.Expr:
        require_shallow(tokens)
        return self._polars(tokens, list(parts_of(tokens, self, skipped=skipped)))

    def _polars(self, tokens: Tokens, parts: Sequence[Part]) -> pl.Expr:
        if not tokens:
            raise pl.exceptions.SQLSyntaxError("unable to parse: something is missing")
        if parts and parts[0].size == len(tokens):
            return parts[0].expression
        inside = {at for part in parts for at in range(part.first, part.first + part.size)}
        for index, token in enumerate(tokens):
            if token.kind == "string" and index not in inside:
                refuse_lost_offset(tokens, index)
        named = self._named(parts)
        made = _unnamed(parsed(written(self.text, tokens, self.columns, named), tokens))
        expressions = {name: part.expression for name, part in named.items()}
        replaced = with_columns_replaced(made, expressions) if parts else made
        if replaced is None:
            raise InvalidInputError(
                f"this SQL is nested too deeply: write shorter texts, or a polars expression. sql={self.text}"
            )
        return replaced

    def _named(self, parts: Sequence[Part]) -> dict[str, Part]:
        names = (f"part {number}" for number in count() if f"part {number}" not in self.columns)
        return dict(zip(names, parts, strict=False))

    def type_of(self, value: pl.Expr) -> pl.DataType:
        if not self.columns.keys() >= {*columns_in(value)}:
            return pl.Null()  # a later check raises with the column's name
        if value.meta.is_column():
            return self.columns[value.meta.output_name()]
        return self.inputs.type_of(value)


def require_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"the SQL text contains an unpaired surrogate, half of a character: remove it. place={error.start}"
        ) from error


def _is_literal(tokens: Tokens) -> bool:
    """Return True for a text or a number, which may be negative."""
    return tokens[-1].kind in ("number", "string") and all(token.word == "-" for token in tokens[:-1])


def _unnamed(made: pl.Expr) -> pl.Expr:
    """Raise if polars took the last token for an alias, as in `views > 10 'Rome'`."""
    inner = made.meta.pop()
    name = "" if len(inner) != 1 or made.meta.has_multiple_outputs() else made.meta.output_name()
    if name and inner[0].alias(name).meta.eq(made):
        raise pl.exceptions.SQLInterfaceError(
            f"a name follows a value, and aliases are not supported here: remove the name or add an operator. {name=}"
        )
    return made


# --- times of day -----------------------------------------------------------------------------------------------------


def _with_whole_times(expression: pl.Expr, type_of: Callable[[pl.Expr], pl.DataType]) -> pl.Expr:
    """Convert times of day to text like 12:30:00.5; polars writes only whole seconds."""

    def whole(node: Node) -> Node | None:
        match node:
            case {"Cast": {"expr": inner, "dtype": {"Literal": "String" | {"List": "String"}}} as cast}:
                return {"Cast": cast | {"expr": as_text(inner)}}
            case {"Function": {"input": inner, "function": {"StringExpr": {"ConcatHorizontal": _}}} as call}:
                return {"Function": call | {"input": [as_text(part) for part in inner]}}
        return None

    def as_text(node: Node) -> Node:
        inner = mapped(node, whole)
        value = expression_of(inner)
        match type_of(value):
            case pl.Time():
                return tree_of(_text(value))
            case pl.List(inner=kind) if kind == pl.Time:
                return tree_of(value.list.eval(_text(pl.element())))
        return inner

    tree = tree_of(expression)
    try:
        made = mapped(tree, whole)
        return expression if made == tree else expression_of(made)
    except (pl.exceptions.ComputeError, RecursionError) as error:
        raise InvalidInputError(
            "this SQL with a time of day is nested too deeply: shorten it, or use a polars expression"
        ) from error


def _text(time: pl.Expr) -> pl.Expr:
    return time.dt.to_string("%H:%M:%S.%6f").str.strip_chars_end("0").str.strip_chars_end(".")

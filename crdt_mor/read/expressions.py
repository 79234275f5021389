"""Take polars expressions apart without evaluating them.

An expression counts as `a & b` if `a & b`, rebuilt from its parts, equals it. Other conditions are understood only as
comparisons of a column with literals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache, partial, wraps
from operator import and_, eq, ge, gt, le, lt, ne
from typing import Any, Literal, TypeVar, cast, get_args

import polars as pl

IN_MAX = 100_000
"""SQL's IN with more values is not taken apart."""

_KEPT_CHARS = 1_000

Build = Callable[[pl.Expr, pl.Expr], pl.Expr]


def columns_in(expression: pl.Expr) -> list[str]:
    """Return an expression's columns, each once, without the unnamed `pl.element()`."""
    return [name for name in dict.fromkeys(expression.meta.root_names()) if name]


def conjuncts(condition: pl.Expr) -> list[pl.Expr]:
    return flat(condition, and_)


def flat(whole: pl.Expr, build: Build) -> list[pl.Expr]:
    todo, leaves = [whole], []
    while todo:
        last = todo.pop()
        parts = operands(last, build)
        if parts is None:
            leaves.append(last)
        else:
            todo += parts
    return leaves[::-1]


def conjunction(conditions: Sequence[pl.Expr]) -> pl.Expr | None:
    return joined(conditions, and_) if conditions else None


def joined(parts: Sequence[pl.Expr], build: Build) -> pl.Expr:
    """Combine expressions in a balanced tree: polars' time grows with the square of the depth."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return build(joined(parts[:middle], build), joined(parts[middle:], build))


def operands(whole: pl.Expr, build: Build) -> tuple[pl.Expr, pl.Expr] | None:
    parts = whole.meta.pop()
    if len(parts) != 2:
        return None
    right, left = parts
    try:
        return (left, right) if build(left, right).meta.eq(whole) else None
    except (pl.exceptions.PolarsError, TypeError, ValueError):
        return None


def literal(value: pl.Expr) -> pl.Series | None:
    if not value.meta.is_literal(allow_aliasing=True):
        return None
    values = pl.select(value).to_series()
    return values.explode() if isinstance(values.dtype, pl.List) else values


def literals(expression: pl.Expr) -> int:
    todo, count = [expression], 0
    while todo:
        values = literal(part := todo.pop())
        if values is None:
            todo += part.meta.pop()
        else:
            count += values.len()
    return count


# --- SQL texts --------------------------------------------------------------------------------------------------------

Parse = TypeVar("Parse", bound=Callable[..., pl.Expr])


def once_per_text(parse: Parse) -> Parse:
    """Keep the expressions of short SQL texts. The first argument is the text, or another object."""

    @lru_cache(maxsize=256)
    def kept(text: str, *rest: Any) -> tuple[pl.Expr, bool]:
        expression = parse(text, *rest)
        return expression, _has_moment(expression)

    @wraps(parse)
    def parsed(given: object, *rest: Any) -> pl.Expr:
        if isinstance(given, str) and len(given) <= _KEPT_CHARS:
            expression, has_moment = kept(given, *rest)
            if not has_moment:
                return expression
        return parse(given, *rest)

    return cast("Parse", parsed)


def _has_moment(expression: pl.Expr) -> bool:
    """Return True for a literal date or time: polars parses CURRENT_DATE to that of now."""
    todo = [expression]
    while todo:
        values = literal(part := todo.pop())
        if values is not None and values.dtype.is_temporal():
            return True
        todo += part.meta.pop()
    return False


# --- comparisons ------------------------------------------------------------------------------------------------------

Relation = Literal["=", "<>", "<", "<=", ">", ">=", "in", "in, nulls equal", "is", "is not", "starts with"]
"""`is` and `is not` compare like `=` and `<>`, but treat null as a value."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of a column with literals, several after `in`."""

    column: str
    relation: Relation
    values: pl.Series


def comparison(condition: pl.Expr) -> Comparison | None:
    parts = condition.meta.pop()
    if len(parts) == 1 and parts[0].meta.is_column():
        return _null_check(condition, parts[0])
    if len(parts) != 2:
        return None
    for relation, build in _BUILT:
        if (sides := operands(condition, build)) is not None:
            return _compared(*sides, relation) or _compared(*sides[::-1], _MIRRORED.get(relation))
    return None


def bounds(condition: pl.Expr) -> tuple[pl.Expr, pl.Expr] | None:
    parts = condition.meta.pop()
    if len(parts) != 3:
        return None
    high, low, column = parts
    for closed, above, below in (("both", ge, le), ("left", ge, lt), ("right", gt, le), ("none", gt, lt)):
        if column.is_between(low, high, closed=closed).meta.eq(condition):  # type: ignore[arg-type]
            return above(column, low), below(column, high)
    return None


def _null_check(condition: pl.Expr, column: pl.Expr) -> Comparison | None:
    nothing = pl.Series([None])
    if column.is_null().meta.eq(condition):
        return Comparison(column.meta.output_name(), "is", nothing)
    if column.is_not_null().meta.eq(condition):
        return Comparison(column.meta.output_name(), "is not", nothing)
    return None


def _compared(column: pl.Expr, value: pl.Expr, relation: Relation | None) -> Comparison | None:
    if relation is None or not column.meta.is_column() or (values := literal(value)) is None:
        return None
    if values.len() != 1 and not relation.startswith("in"):
        return None
    return Comparison(column.meta.output_name(), relation, values)


def _sql_in(column: pl.Expr, values: pl.Expr) -> pl.Expr:
    """Build an IN from SQL text, which polars represents otherwise."""
    series = literal(values)
    if series is None or not column.meta.is_column() or not 0 < series.len() <= IN_MAX:
        raise ValueError
    return pl.sql_expr(f'"{column.meta.output_name()}" IN ({", ".join(map(sql_literal, series))})')


def _sql_compared(relation: Relation, column: pl.Expr, value: pl.Expr) -> pl.Expr:
    number = literal(value)
    if number is None or not column.meta.is_column() or not number.dtype.is_decimal():
        raise ValueError
    return pl.sql_expr(f'"{column.meta.output_name()}" {relation} {number.item():f}')


def sql_literal(value: object) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"DATE '{value}'" if isinstance(value, date) else str(value)


_BUILT: tuple[tuple[Relation, Build], ...] = (
    ("=", eq),
    ("<>", ne),
    ("<", lt),
    ("<=", le),
    (">", gt),
    (">=", ge),
    ("in", lambda column, values: column.is_in(values)),
    ("in, nulls equal", lambda column, values: column.is_in(values, nulls_equal=True)),
    ("is", pl.Expr.eq_missing),
    ("is not", pl.Expr.ne_missing),
    ("starts with", lambda column, prefix: column.str.starts_with(prefix)),
    ("in", _sql_in),
    *((relation, partial(_sql_compared, relation)) for relation in get_args(Relation)[:6] if relation != "<>"),
)
_MIRRORED: dict[Relation, Relation] = {
    "=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "is": "is", "is not": "is not"
}  # fmt: skip

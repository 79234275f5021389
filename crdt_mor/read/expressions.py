"""Expressions of polars, taken apart without interpreting them.

An expression is taken for `a & b` if `a & b`, built again from its two parts, equals that expression. Of other
conditions only comparisons of a column with literals, as `comparison` lists them, are understood.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from operator import and_, eq, ge, gt, le, lt, ne
from typing import Literal, get_args

import polars as pl

IN_MAX = 100_000
"""An IN of SQL with more values than this is not taken apart."""

Build = Callable[[pl.Expr, pl.Expr], pl.Expr]
"""What makes one expression of two."""


def columns_in(expression: pl.Expr) -> list[str]:
    """The columns that an expression names, as often as it does.

    Of `list.filter` polars tells its `pl.element()` as a column without a name, which no column of a table is.
    """
    return [name for name in expression.meta.root_names() if name]


def conjuncts(condition: pl.Expr) -> list[pl.Expr]:
    """The conditions that must all hold, in their order; one alone where it is no `and`."""
    return flat(condition, and_)


def flat(whole: pl.Expr, build: Build) -> list[pl.Expr]:
    """The expressions of which `build`, as often as it takes, makes this one; in their order."""
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
    """The condition that all of these conditions hold; None where there are none. The way back of `conjuncts`."""
    return joined(conditions, and_) if conditions else None


def joined(parts: Sequence[pl.Expr], build: Build) -> pl.Expr:
    """What `build` makes of one or more expressions, in their order, as a tree that is no deeper than it must be.

    polars goes through a deep expression in a time that grows with the square of its depth, and faster.
    """
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return build(joined(parts[:middle], build), joined(parts[middle:], build))


def operands(whole: pl.Expr, build: Build) -> tuple[pl.Expr, pl.Expr] | None:
    """The two expressions from which `build` makes this very one, if there are such."""
    parts = whole.meta.pop()
    if len(parts) != 2:
        return None
    right, left = parts
    try:
        return (left, right) if build(left, right).meta.eq(whole) else None
    except (pl.exceptions.PolarsError, TypeError, ValueError):
        return None


def literal(value: pl.Expr) -> pl.Series | None:
    """The values of a literal: of one value, a series or a list; None for what is no literal."""
    if not value.meta.is_literal(allow_aliasing=True):
        return None
    values = pl.select(value).to_series()
    return values.explode() if isinstance(values.dtype, pl.List) else values


def literals(expression: pl.Expr) -> int:
    """With how many values an expression compares something: those of all its literals."""
    todo, count = [expression], 0
    while todo:
        values = literal(part := todo.pop())
        if values is None:
            todo += part.meta.pop()
        else:
            count += values.len()
    return count


# --- comparisons ------------------------------------------------------------------------------------------------------

Relation = Literal["=", "<>", "<", "<=", ">", ">=", "in", "in, nulls equal", "is", "is not", "starts with"]
"""How a column stands to literals. `is` and `is not` are like `=` and `<>`, but null is a value to them."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A condition on a column, with one literal; after `in`, with any number of them."""

    column: str
    relation: Relation
    values: pl.Series


def comparison(condition: pl.Expr) -> Comparison | None:
    """A condition as a comparison of a column with literals; None for every other."""
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
    """The two conditions that an `is_between` is; None for what is none."""
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
    """The IN of an SQL text, an expression of its own kind that only a text makes."""
    series = literal(values)
    if series is None or not column.meta.is_column() or not 0 < series.len() <= IN_MAX:
        raise ValueError
    return pl.sql_expr(f'"{column.meta.output_name()}" IN ({", ".join(map(sql_literal, series))})')


def _sql_compared(relation: Relation, column: pl.Expr, value: pl.Expr) -> pl.Expr:
    """The comparison of an SQL text with a number that has a point, of its own kind as well."""
    number = literal(value)
    if number is None or not column.meta.is_column() or not number.dtype.is_decimal():
        raise ValueError
    return pl.sql_expr(f'"{column.meta.output_name()}" {relation} {number.item():f}')


def sql_literal(value: object) -> str:
    """A value as SQL writes it."""
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
"""The relation of the literal to the column, where it has one."""

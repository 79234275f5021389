"""Expressions of polars, taken apart without interpreting them.

An expression is taken for `a & b` if `a & b`, built again from its two parts, is that very expression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_

import polars as pl

Build = Callable[[pl.Expr, pl.Expr], pl.Expr]
"""What makes one expression of two."""


def conjuncts(condition: pl.Expr) -> list[pl.Expr]:
    """The conditions that must all hold, in their order; one alone where it is no `and`."""
    return flat(condition, and_)


def flat(whole: pl.Expr, build: Build) -> list[pl.Expr]:
    """The expressions of which `build`, as often as it takes, makes this one; in their order."""
    todo, found = [whole], []
    while todo:
        last = todo.pop()
        parts = operands(last, build)
        if parts is None:
            found.append(last)
        else:
            todo += parts
    return found[::-1]


def together(conditions: Sequence[pl.Expr]) -> pl.Expr | None:
    """The condition that all of these hold; None where there are none."""
    return reduce(and_, conditions) if conditions else None


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
    """The values of a literal, be it one, a series or a list; None for what is no literal."""
    if not value.meta.is_literal(allow_aliasing=True):
        return None
    found = pl.select(value).to_series()
    return found.explode() if isinstance(found.dtype, pl.List) else found

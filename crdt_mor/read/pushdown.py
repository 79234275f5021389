"""Build the part of a condition that Parquet scans evaluate.

This part contains comparisons of a column with literals, and `and` and `or` of them. Other conditions run on merged
rows with declared types, for three reasons:

    statistics     polars computes arithmetic and casts on the minimum and maximum of a row group; an overflow there
                   would skip matching rows
    hidden values  a cast must not fail on a base file's value that a log has replaced
    stored types   conditions use declared types, files contain stored types

Literals take the column's own type, so nothing is cast: for an integer column, 5.5 becomes the nearest integers. Other
conditions run later, which is only slower.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any

import numpy as np
import polars as pl

from crdt_mor.columns.schema import META_COLUMNS, TableSchema
from crdt_mor.merge.polars_types import polars_columns, polars_schema
from crdt_mor.read.expressions import Comparison, bounds, comparison, flat, joined

_NESTED_MAX = 50
"""Nested `and` and `or`, each a level of recursion."""

_COMPARED = {"=": eq, "is": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}

_INTEGERS: dict[Any, int] = {pl.Int32(): 2**31, pl.Int64(): 2**63}

LISTED_MAX = 40
"""Longest list of values pushed down. polars' planning time is quadratic: for 100 keys longer than decoding a
million rows.
"""


@lru_cache(maxsize=256)
def same_in_polars(schema: TableSchema) -> Mapping[str, pl.DataType]:
    declared, stored = polars_columns(schema), polars_schema(schema.stored)
    equal = {name: kind for name, kind in declared.items() if stored[name] == kind}
    return {**dict.fromkeys(META_COLUMNS, pl.String()), **equal}


def parquet_form(condition: pl.Expr, schema: TableSchema) -> pl.Expr | None:
    """Return the condition for Parquet, true for the same rows, or None."""
    return _form(condition, same_in_polars(schema), 0)


def _form(condition: pl.Expr, kinds: Mapping[str, pl.DataType], depth: int) -> pl.Expr | None:
    if depth > _NESTED_MAX:
        return None
    for build, parts in ((and_, bounds(condition)), (and_, flat(condition, and_)), (or_, flat(condition, or_))):
        if parts is not None and len(parts) > 1:
            forms = [form for part in parts if (form := _form(part, kinds, depth + 1)) is not None]
            return joined(forms, build) if len(forms) == len(parts) else None
    compared = comparison(condition)
    return None if compared is None or compared.column not in kinds else _form_of(compared, kinds[compared.column])


def _form_of(compared: Comparison, kind: pl.DataType) -> pl.Expr | None:
    """Compare with values of the column's own type. NaN is the greatest value, and statistics omit it."""
    column, relation, nulls = pl.col(compared.column), compared.relation, compared.values.null_count()
    if relation in ("is", "is not") and nulls:
        null = column.is_null() if relation == "is" else column.is_not_null()
        return None if kind.is_nested() else null
    if relation in _COMPARED and kind in _INTEGERS and not nulls and _may_be_between(compared.values.dtype):
        return _between(column, relation, compared.values[0], _INTEGERS[kind])
    values = _exact(compared.values.drop_nulls() if nulls else compared.values, kind)
    if values is None:
        return None
    if relation in ("in", "in, nulls equal"):
        among = _any_of(column, values, kind)
        return among | column.is_null() if among is not None and nulls and relation != "in" else among
    if relation == "starts with":
        return column.str.starts_with(values[0]) if values else None
    compare = _COMPARED.get(relation)
    if compare is None or nulls or (kind.is_float() and relation == "<>"):
        return None
    condition: pl.Expr = compare(column, pl.lit(values[0]))
    return condition | column.is_nan() if kind.is_float() and relation in (">", ">=") else condition


def _may_be_between(literals: pl.DataType) -> bool:
    return literals.is_float() or literals.is_decimal()


def _between(column: pl.Expr, relation: str, number: float | Decimal, limit: int) -> pl.Expr:
    """Compare an integer column (from -limit to limit - 1) with a number between two integers or out of range.

    polars would convert to doubles, so several large integers would equal a float. NaN exceeds all numbers.
    """

    def rounded(integer: int) -> float:
        return float(integer) if isinstance(number, float) else integer

    if isinstance(number, float) and math.isnan(number):
        below = last = limit - 1
    else:
        below = _last(limit, lambda integer: rounded(integer) < number)
        last = _last(limit, lambda integer: rounded(integer) <= number)

    def up_to(integer: int) -> pl.Expr:
        return column <= integer if integer >= -limit else pl.lit(False)

    def above(integer: int) -> pl.Expr:
        return column > integer if integer >= -limit else column.is_not_null()

    match relation:
        case "<":
            return up_to(below)
        case "<=":
            return up_to(last)
        case ">":
            return above(last)
        case ">=":
            return above(below)
        case "<>":
            return up_to(below) | above(last)
        case _:
            return above(below) & up_to(last) if below < last else pl.lit(False)


def _last(limit: int, holds: Callable[[int], bool]) -> int:
    """Return the last integer from -limit for which the monotonic `holds` is true, or -limit - 1."""
    last, end = -limit - 1, limit
    while end - last > 1:
        middle = (last + end) // 2
        last, end = (middle, end) if holds(middle) else (last, middle)
    return last


def _any_of(column: pl.Expr, values: list[Any], kind: pl.DataType) -> pl.Expr | None:
    """Build an IN, or None for types that polars casts.

    polars compares each value of a short list with the statistics; of a longer list only the minimum and maximum.
    """
    if not values:
        return pl.lit(False)
    if kind.is_decimal() or kind == pl.Float32:
        return None
    if len(values) <= LISTED_MAX:
        return column.is_in(values)
    return one_of(column, pl.Series(values, dtype=kind))


def one_of(column: pl.Expr, values: pl.Series) -> pl.Expr:
    """Build an IN of any size, bounded by its minimum and maximum for statistics."""
    ordered = values.sort()  # NaN, the greatest value, comes last
    among = column.is_in(pl.Series([ordered]))
    if ordered.is_empty():
        return among
    least, greatest = (pl.lit(ordered[end], ordered.dtype) for end in (0, -1))
    return (column >= least) & (column <= greatest) & among


def _exact(values: pl.Series, kind: pl.DataType) -> list[Any] | None:
    """Return literals as values of the column's type that polars compares without a cast, or None.

    polars compares unsigned 64-bit integers with signed ones as doubles, which rounds.
    """
    literals = values.dtype
    try:
        if literals == kind and kind in (pl.String, pl.Boolean, pl.Date, pl.Datetime):
            return values.to_list()
        if literals.is_decimal() and kind == pl.Float64:
            values, literals = values.cast(kind), kind
        numbers = values.to_list() if literals.is_numeric() and literals != pl.UInt64 else None
    except (ValueError, OverflowError):  # a moment that Python cannot represent
        return None
    if numbers is None or not all(_holds(kind, number) for number in numbers):
        return None
    return [Decimal(n) if kind.is_decimal() else float(n) if kind.is_float() else n for n in numbers]


def _holds(kind: pl.DataType, number: float | Decimal) -> bool:
    if isinstance(kind, pl.Decimal):
        unscaled = None if isinstance(number, float) else Fraction(number) * 10**kind.scale
        return unscaled is not None and unscaled.denominator == 1 and abs(unscaled) < 10**kind.precision
    if kind.is_float():
        rounded = np.float32 if kind == pl.Float32 else float
        with np.errstate(over="ignore"):  # a number beyond all 32-bit floats becomes infinity, so the test fails
            return not isinstance(number, Decimal) and rounded(number) == number
    return isinstance(number, int) and -_INTEGERS.get(kind, 0) <= number < _INTEGERS.get(kind, 0)

"""The part of a condition that goes down to Parquet.

Only comparisons of a column with literals do, and `and` and `or` of those; all else is asked of rows that are merged
and restored to their declared types, for three reasons:

    statistics     of arithmetic and casts polars asks the least and the greatest value: where one of the two overflows,
                   a row group is skipped that has rows
    hidden values  in a base file there are values that a log has replaced: of those a cast must not fail
    stored types   a condition speaks of declared types

What goes down is built anew, of literals that the column's own type holds, so that nothing is cast on the way. Where
that cannot be, the condition stays above: reading more is only slower.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any

import numpy as np
import polars as pl

from crdt_mor.merge.polars_types import polars_schema
from crdt_mor.model.schema import META_COLUMNS, TableSchema
from crdt_mor.read.expressions import Comparison, bounds, comparison, flat

_NESTED_MAX = 50
"""`and` in `or` in `and`, each a level of recursion."""

_COMPARED = {"=": eq, "is": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}

_INTEGERS: dict[Any, int] = {pl.Int32(): 2**31, pl.Int64(): 2**63}


@lru_cache(maxsize=256)
def same_in_polars(schema: TableSchema) -> Mapping[str, pl.DataType]:
    """The columns that need no restoring, since their declared and their stored type are one to polars."""
    declared, stored = polars_schema(schema.declared), polars_schema(schema.stored)
    same = {name: kind for name, kind in declared.items() if stored[name] == kind}
    return {**dict.fromkeys(META_COLUMNS, pl.String()), **same}


def parquet_form(condition: pl.Expr, schema: TableSchema) -> pl.Expr | None:
    """A condition that holds for the same rows and that a Parquet scan may be asked; None where there is none."""
    return _form(condition, same_in_polars(schema), 0)


def _form(condition: pl.Expr, kinds: Mapping[str, pl.DataType], depth: int) -> pl.Expr | None:
    if depth > _NESTED_MAX:
        return None
    for build, parts in ((and_, bounds(condition)), (and_, flat(condition, and_)), (or_, flat(condition, or_))):
        if parts is not None and len(parts) > 1:
            forms = [form for part in parts if (form := _form(part, kinds, depth + 1)) is not None]
            return reduce(build, forms) if len(forms) == len(parts) else None
    found = comparison(condition)
    return None if found is None or found.column not in kinds else _compared(found, kinds[found.column])


def _compared(found: Comparison, kind: pl.DataType) -> pl.Expr | None:
    """A comparison with values of the column's own type. NaN, which no statistics tell of, is greater than all."""
    column, relation, nulls = pl.col(found.column), found.relation, found.values.null_count()
    if relation in ("is", "is not") and nulls:
        null = column.is_null() if relation == "is" else column.is_not_null()
        return None if kind.is_nested() else null
    values = _exact(found.values.drop_nulls(), kind)
    if values is None:
        return None
    if relation in ("in", "in, nulls equal"):
        held = _any_of(column, values, kind)
        return held | column.is_null() if held is not None and nulls and relation != "in" else held
    if relation == "starts with":
        return column.str.starts_with(values[0]) if values else None
    compare = _COMPARED.get(relation)
    if compare is None or nulls or (kind.is_float() and relation == "<>"):
        return None
    condition: pl.Expr = compare(column, pl.lit(values[0]))
    return condition | column.is_nan() if kind.is_float() and relation in (">", ">=") else condition


def _any_of(column: pl.Expr, values: list[Any], kind: pl.DataType) -> pl.Expr | None:
    """IN as a list, the one form of it that statistics are asked of; of some types a list is cast to another one."""
    if not values:
        return pl.lit(False)
    return None if kind.is_decimal() or kind == pl.Float32 else column.is_in(values)


def _exact(values: pl.Series, kind: pl.DataType) -> list[Any] | None:
    """Literals as values that the column's type holds and that polars compares as they are; None where they are not.

    An unsigned 64-bit integer is compared with a signed one by doubles, which are other values.
    """
    given = values.dtype
    try:
        if given == kind and kind in (pl.String, pl.Boolean, pl.Date, pl.Datetime):
            return values.to_list()
        if given.is_decimal() and kind == pl.Float64:
            values, given = values.cast(kind), kind
        numbers = values.to_list() if given.is_numeric() and given != pl.UInt64 else None
    except (ValueError, OverflowError):  # a moment that Python has not
        return None
    if numbers is None or not all(_holds(kind, number) for number in numbers):
        return None
    return [Decimal(n) if kind.is_decimal() else float(n) if kind.is_float() else n for n in numbers]


def _holds(kind: pl.DataType, number: float | Decimal) -> bool:
    """Whether a type holds a number exactly, and polars compares the two in this type."""
    if isinstance(kind, pl.Decimal):
        unscaled = None if isinstance(number, float) else Fraction(number) * 10**kind.scale
        return unscaled is not None and unscaled.denominator == 1 and abs(unscaled) < 10**kind.precision
    if kind.is_float():
        same = np.float32 if kind == pl.Float32 else float
        with np.errstate(over="ignore"):  # a number beyond all floats of 32 bits is infinite there, so another one
            return not isinstance(number, Decimal) and same(number) == number
    return isinstance(number, int) and -_INTEGERS.get(kind, 0) <= number < _INTEGERS.get(kind, 0)

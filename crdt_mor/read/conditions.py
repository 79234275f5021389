"""Check the filters of scans, deletes and overwrites.

A filter runs in each file slice separately, partly in Parquet and partly after the merge. It must therefore be
element-wise: an aggregate, a window or a sort would differ by slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import and_, invert, or_, xor
from typing import Final

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from crdt_mor.columns.schema import META_COLUMNS, TableSchema
from crdt_mor.errors import InvalidInputError
from crdt_mor.merge.polars_types import polars_schema
from crdt_mor.read.expressions import bounds, columns_in, comparison, literal, once_per_text, operands
from crdt_mor.read.filter_errors import inapplicable, not_a_filter, unknown_columns
from crdt_mor.read.inputs import Inputs
from crdt_mor.read.sql import Condition
from crdt_mor.read.trees import with_nulls_from

_OF_TWO = (and_, or_, xor)
_OF_TRUTHS = (pl.Expr.eq_missing, pl.Expr.ne_missing)
"""With a Boolean literal: SQL's IS [NOT] TRUE and IS [NOT] FALSE."""
_OF_ONE = (invert, lambda condition: condition.cast(pl.Boolean))
"""SQL's NOT and IS TRUE contain the cast, also for numbers."""


@once_per_text
def checked(filter: pl.Expr | str, schema: TableSchema) -> pl.Expr:
    """Check a filter on user-visible names and return it as an element-wise expression."""
    inputs = _inputs(schema)
    try:
        condition = Condition(filter, inputs).expression() if isinstance(filter, str) else filter
        if not isinstance(condition, pl.Expr):
            raise not_a_filter(filter)
        if condition.meta.has_multiple_outputs():
            raise InvalidInputError(
                f"a filter must be a single expression: write pl.col(...) for each column. filter={filter}"
            )
        unknown = [name for name in columns_in(condition) if name not in schema and name not in META_COLUMNS]
        if unknown:
            raise unknown_columns(unknown, schema, filter)
        narrow, rows = inputs.narrowed(condition)
        kind = rows.lazy().select(narrow.alias("keep")).collect_schema()["keep"]
        if kind != pl.Boolean:
            raise InvalidInputError(
                "a filter must be true or false for each row: pass a condition such as 'views > 10'. "
                f"filter={filter} type={kind}"
            )
        if not is_element_wise(narrow, rows.schema):
            raise InvalidInputError(
                "a filter must be element-wise; this one contains an aggregate, a window, a sort or a function of a "
                "whole column. Filter the rows after the scan, scan().to_polars().filter(...), and pass the result to "
                f"delete(...) or upsert(...). filter={filter}"
            )
        _refuse_numbers_beside_times(condition, inputs.columns, filter)
        rows.filter(narrow)
    except pl.exceptions.PolarsError as error:
        raise inapplicable(error, schema, filter) from error
    return condition


@lru_cache(maxsize=256)
def _inputs(schema: TableSchema) -> Inputs:
    meta = [pa.field(name, pa.string()) for name in META_COLUMNS]
    return Inputs.of_types(polars_schema(pa.schema([*meta, *schema.declared])))


def is_element_wise(condition: pl.Expr, columns: pl.Schema) -> bool:
    """Return True if a condition evaluates each row independently.

    polars decides: its optimizer pushes only element-wise filters into a source, also Python functions declared
    element-wise. It does not push a comparison with null, which it turns into a constant. The test therefore runs again
    with a null column for each null.
    """
    todo = [condition]
    while todo:
        part = todo.pop()
        if (inner := _combined(part)) is not None:
            todo += inner
        elif comparison(part) is None and not _is_one_value(part) and not _is_pushed(part, columns):
            beside_nulls = with_nulls_from(part, _NULLS)
            if beside_nulls is None or not _is_pushed(beside_nulls, pl.Schema({**columns, _NULLS: pl.Null()})):
                return False
    return True


_NULLS: Final = "\0nulls"


def _refuse_numbers_beside_times(condition: pl.Expr, columns: pl.Schema, filter: pl.Expr | str) -> None:
    todo = [condition]
    while todo:
        part = todo.pop()
        todo += _combined(part) or ()
        found = comparison(part)
        kinds = () if found is None else (columns[found.column], found.values.dtype)
        if any(kind in (pl.Time, pl.Duration) for kind in kinds) and any(kind.is_numeric() for kind in kinds):
            raise InvalidInputError(
                "a filter compares a time with a number, and the unit is unclear: write TIME '10:30:00', in Python "
                f"datetime.time(10, 30). filter={filter}"
            )


def _is_truth(value: pl.Expr) -> bool:
    values = literal(value)
    return values is not None and values.dtype == pl.Boolean and values.len() == 1


def _is_one_value(condition: pl.Expr) -> bool:
    values = literal(condition)
    return values is not None and values.len() == 1


def _combined(condition: pl.Expr) -> Sequence[pl.Expr] | None:
    parts = condition.meta.pop()
    if len(parts) == 1 and any(build(parts[0]).meta.eq(condition) for build in _OF_ONE):
        return parts
    if (sides := bounds(condition)) is not None:
        return sides
    for build in _OF_TRUTHS:
        if (sides := operands(condition, build)) is not None and any(_is_truth(side) for side in sides):
            return sides
    return next((sides for build in _OF_TWO if (sides := operands(condition, build)) is not None), None)


def _is_pushed(condition: pl.Expr, columns: pl.Schema) -> bool:
    rows = register_io_source(_no_rows, schema=columns, is_pure=True)
    source = rows.explain(optimizations=_PUSHDOWN).partition("\n")[0]
    return rows.filter(condition.cast(pl.Boolean)).explain(optimizations=_PUSHDOWN).startswith(source)


_PUSHDOWN = pl.QueryOptFlags(predicate_pushdown=True)
"""Set, because a program may change the default."""


def _no_rows(*_: object) -> Iterator[pl.DataFrame]:
    yield from ()

"""Which conditions a scan, a delete or a part of a table may be filtered by.

A table's rows lie in file slices, and a condition is decided in each slice by itself, for some rows in Parquet and for
others after they are merged. So it must be element-wise: what it says of a row depends on that row alone. An aggregate,
a window or an order would mean something else in each slice.
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
from crdt_mor.read.expressions import bounds, columns_in, comparison, literal, operands
from crdt_mor.read.filter_errors import inapplicable, not_a_filter, unknown_columns
from crdt_mor.read.sql import Condition
from crdt_mor.read.trees import with_nulls_from

_OF_TWO = (and_, or_, xor)
_OF_TRUTHS = (pl.Expr.eq_missing, pl.Expr.ne_missing)
"""Beside a truth value, what IS [NOT] TRUE and IS [NOT] FALSE of an SQL text are."""
_OF_ONE = (invert, lambda condition: condition.cast(pl.Boolean))
"""The second is part of the NOT and the IS TRUE of an SQL text, beside numbers too."""


def checked(filter: pl.Expr | str, schema: TableSchema) -> pl.Expr:
    """A filter as an expression that decides each of the table's rows by itself; tried on none of them.

    schema: the columns as people see them.
    """
    try:
        condition = Condition(filter, columns_of(schema)).expression() if isinstance(filter, str) else filter
        if not isinstance(condition, pl.Expr):
            raise not_a_filter(filter)
        if condition.meta.has_multiple_outputs():
            raise InvalidInputError(f"a filter names each of its columns: write pl.col for each. filter={filter}")
        known = schema.declared.names
        unknown = [name for name in columns_in(condition) if name not in known and name not in META_COLUMNS]
        if unknown:
            raise unknown_columns(unknown, schema, filter)
        columns = columns_of(schema)
        kind = pl.LazyFrame(schema=columns).select(condition.alias("keep")).collect_schema()["keep"]
        if kind != pl.Boolean:
            raise InvalidInputError(
                "a filter is a condition, true or false for each row, such as a comparison: 'views > 10'. "
                f"filter={filter} type={kind}"
            )
        if not is_element_wise(condition, columns):
            raise InvalidInputError(
                "a filter decides each row by itself, and this one looks at other rows as well (an aggregate, a "
                "window, an order, a function of a whole column): read the rows and filter those, "
                "scan().to_polars().filter(...). For a delete give what that leaves to delete(...), for an update "
                f"change it, and give it to upsert(...). filter={filter}"
            )
        _refuse_numbers_beside_times(condition, columns, filter)
        pl.DataFrame(schema=columns).filter(condition)
    except pl.exceptions.PolarsError as error:
        raise inapplicable(error, schema, filter) from error
    return condition


@lru_cache(maxsize=256)
def columns_of(schema: TableSchema) -> pl.Schema:
    """The columns that a condition may name, in declared types, as polars has them."""
    meta = [pa.field(name, pa.string()) for name in META_COLUMNS]
    return polars_schema(pa.schema([*meta, *schema.declared]))


def is_element_wise(condition: pl.Expr, columns: pl.Schema) -> bool:
    """Whether a condition decides each row by itself.

    polars' optimizer knows: it pushes a filter into a source, which gives its rows in pieces, only where the pieces do
    not matter. A function in Python is pushed where it is said to be row by row, by `map_elements` or
    `map_batches(is_elementwise=True)`. A comparison with null becomes a constant column before polars decides, and such
    a column it does not push. So it is asked a second time, with a column of nulls in place of each null.
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
"""A column of nulls, which no table has."""


def _refuse_numbers_beside_times(condition: pl.Expr, columns: pl.Schema, filter: pl.Expr | str) -> None:
    """Raise where a number is compared with a time of day or a duration: polars takes it for one of some unit."""
    todo = [condition]
    while todo:
        part = todo.pop()
        todo += _combined(part) or ()
        found = comparison(part)
        kinds = () if found is None else (columns[found.column], found.values.dtype)
        if any(kind in (pl.Time, pl.Duration) for kind in kinds) and any(kind.is_numeric() for kind in kinds):
            raise InvalidInputError(
                "a time is compared with a number, which does not say its unit: write TIME '10:30:00', in Python "
                f"datetime.time(10, 30), for a time of day, and a number for a number. filter={filter}"
            )


def _is_truth(value: pl.Expr) -> bool:
    values = literal(value)
    return values is not None and values.dtype == pl.Boolean and values.len() == 1


def _is_one_value(condition: pl.Expr) -> bool:
    """Whether a condition is a literal, one for all rows, such as null."""
    values = literal(condition)
    return values is not None and values.len() == 1


def _combined(condition: pl.Expr) -> Sequence[pl.Expr] | None:
    """The conditions that this one combines, row by row; None where it is none of such."""
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
    """Whether polars leaves the filter of a source to the source: then its plan begins as that of the source alone."""
    rows = register_io_source(_no_rows, schema=columns, is_pure=True)
    source = rows.explain(optimizations=_PUSHDOWN).partition("\n")[0]
    return rows.filter(condition.cast(pl.Boolean)).explain(optimizations=_PUSHDOWN).startswith(source)


_PUSHDOWN = pl.QueryOptFlags(predicate_pushdown=True)
"""Switched on by name, whatever a program has made the default."""


def _no_rows(*_: object) -> Iterator[pl.DataFrame]:
    yield from ()

"""The part of a filter that the values of a partition decide.

    region = 'eu'                 a condition on partition columns       as it is
    ts >= '2026-01-31 13:00'      on the source of a function, day(ts)   ts_day >= DATE '2026-01-31'
    name LIKE 'Ann%'              of truncate(name, 2)                   name_truncate = 'An'

A condition on a source becomes a weaker one on the function's column: no matching row is in another partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import and_, eq, ge, le, or_
from typing import Final

import polars as pl
import pyarrow as pa

from crdt_mor.columns import texts
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import CrdtMorError
from crdt_mor.ground.late_imports import pc
from crdt_mor.merge.blocks import PARTITION_PATH
from crdt_mor.merge.polars_types import polars_columns
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.partition_functions import PartitionFunction
from crdt_mor.model.partition_values import function_values, keeps_order
from crdt_mor.read.expressions import Comparison, bounds, columns_in, comparison, conjunction, operands

_NESTED_MAX: Final = 50
"""Nested `and` and `or`, each a level of recursion."""

_ORDERED: Final[dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]]] = {"<": le, "<=": le, ">": ge, ">=": ge}
_STEPS: Final = {"<": -1, ">": 1}
"""`ts < x` means `ts <= x - 1` for whole numbers, so the day that begins at x is not read."""


def on_partitions(parts: Sequence[pl.Expr], key: KeySpec, schema: TableSchema) -> list[pl.Expr]:
    """Return conditions on `key.partition_columns` and the path. parts: all must hold; in stored names."""
    implied = _Implied(key, schema)
    return [found for part in parts if (found := implied.by(part)) is not None]


@dataclass(frozen=True)
class _Implied:
    key: KeySpec
    schema: TableSchema

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset({*self.key.partition_columns, PARTITION_PATH})

    def by(self, part: pl.Expr, depth: int = 0) -> pl.Expr | None:
        """Return a condition on `_known` columns that holds wherever `part` holds; None if there is none."""
        names = columns_in(part)
        if names and self._known.issuperset(names):
            return part
        if depth > _NESTED_MAX or not self.key.functions:
            return None
        if (sides := bounds(part) or operands(part, and_)) is not None:
            there = [found for side in sides if (found := self.by(side, depth + 1)) is not None]
            return conjunction(there)
        if (sides := operands(part, or_)) is not None:
            left, right = (self.by(side, depth + 1) for side in sides)
            return None if left is None or right is None else left | right
        return self._by_comparison(comparison(part))

    def _by_comparison(self, compared: Comparison | None) -> pl.Expr | None:
        if compared is None:
            return None
        functions = [one for one in self.key.functions if one.source == compared.column]
        found = [made for one in functions if (made := _of_comparison(compared, one, self.schema)) is not None]
        return conjunction(found)


def _of_comparison(compared: Comparison, function: PartitionFunction, schema: TableSchema) -> pl.Expr | None:
    column, relation = pl.col(function.column), compared.relation
    if relation == "starts with":
        return _of_prefix(compared.values[0], function)
    values = _made(compared.values, function, schema, _STEPS.get(relation, 0))
    if values is None:
        return None
    if relation in ("=", "in"):
        return column.is_in(values.drop_nulls().implode())
    if relation in ("is", "in, nulls equal"):
        return column.is_in(values.implode(), nulls_equal=True)
    build = _ORDERED.get(relation)
    if build is None or not keeps_order(function):
        return None
    return build(column, pl.lit(values[0], values.dtype))


def _of_prefix(prefix: object, function: PartitionFunction) -> pl.Expr | None:
    if function.name != "truncate" or function.width is None or not isinstance(prefix, str):
        return None
    column = pl.col(function.column)
    return column.str.starts_with(prefix) if len(prefix) < function.width else eq(column, prefix[: function.width])


def _made(values: pl.Series, function: PartitionFunction, schema: TableSchema, step: int) -> pl.Series | None:
    """Return the function's values of literals, or None if the comparison converts them in another way.

    step: added to whole numbers, times and dates in their units.
    """
    column = schema.select([function.source])
    kind = polars_columns(schema)[function.source]
    given = values.dtype
    alike = given == kind or (given.is_integer() and kind.is_integer()) or given == pl.Null
    if not (alike or (isinstance(kind, pl.Datetime) and (given == pl.Date or _is_moment(given, kind)))):
        return None
    try:
        source = column.normalise(pa.table({function.source: values.cast(kind).to_arrow()}))[function.source]
        if step and source.type != pa.string():
            numbers = source.cast(pa.int32() if source.type == pa.date32() else pa.int64())
            source = pc.add_checked(numbers, texts.given([step], numbers.type)[0]).cast(source.type)
        return pl.Series(pl.from_arrow(function_values(function, source)))
    except (CrdtMorError, pa.ArrowException, pl.exceptions.PolarsError):
        return None


def _is_moment(given: pl.DataType, kind: pl.Datetime) -> bool:
    """Return True if both are times with a zone, or both without: polars compares the instants."""
    return isinstance(given, pl.Datetime) and (given.time_zone is None) == (kind.time_zone is None)

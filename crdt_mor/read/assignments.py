"""Check the new values that an update or a merge sets: one polars expression per column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Final

import polars as pl
from polars.datatypes import DataTypeClass

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError
from crdt_mor.merge.polars_types import polars_columns
from crdt_mor.model.config import TableConfig
from crdt_mor.read.conditions import is_element_wise
from crdt_mor.read.expressions import columns_in, once_per_text
from crdt_mor.read.filter_errors import cause_of, is_syntax_error
from crdt_mor.read.inputs import Inputs
from crdt_mor.read.sql import Condition
from crdt_mor.read.sql_names import QUOTED, in_sql, lacking_quotes

NULL: Final = pl.lit(None)
"""Null as the new value of a column: `table.update(set={"note": mor.NULL}, where="id = 1")`. The same as None and SQL's
NULL.
"""

_VALUE: Final = f"""write an SQL expression such as "price * 1.1"; {QUOTED}: '"order" + 1'"""

_CONDITION: Final = f"""write an SQL condition such as "source.at > target.at"; {QUOTED}: 'source."order" > 1'"""

Assignments = Mapping[str, pl.Expr]
"""Expressions of the new values by column. They see the row's old values."""


def assignments(given: object, schema: TableSchema, config: TableConfig) -> Assignments:
    """Check SQL texts, polars expressions or Python values by column; return expressions."""
    if not isinstance(given, Mapping) or not given:
        raise InvalidInputError(
            f'pass a dict as `set`: update(set={{"price": "price * 1.1"}}, where="id = 1"). set={given!r}'
        )
    schema.require(given)
    fixed = [name for name in given if name in config.key.fields]
    if fixed:
        raise InvalidInputError(
            "an update cannot change key columns: delete the row and upsert it with its new key, both in one "
            f"transaction(). columns={fixed}"
        )
    moving = [name for name in given if name in config.key.partition_by]
    if moving:
        raise InvalidInputError(
            "an update cannot change partition columns: move rows with move(keys, partition="
            f"{{{moving[0]!r}: …}}), or with a merge that sets the column. columns={moving}"
        )
    return {name: _assigned(value, name, schema) for name, value in given.items()}


@once_per_text
def _assigned(value: object, name: str, schema: TableSchema) -> pl.Expr:
    inputs = _inputs(schema)
    return new_value(name, value, inputs, schema, inputs.columns[name])


@lru_cache(maxsize=256)
def _inputs(schema: TableSchema) -> Inputs:
    return Inputs.of_types(polars_columns(schema))


def new_value(
    name: str, value: object, inputs: Inputs, schema: TableSchema, kind: pl.DataType | None = None
) -> pl.Expr:
    """Check a column's new value and return it as an element-wise expression.

    Args:
        inputs: columns that the value may name.
        schema: the table's schema, for hints about unknown names.
        kind: the column's type; None for a condition.
    """
    is_condition = kind is None
    what = "condition of a clause" if is_condition else "new value"
    columns = inputs.columns
    which = f"condition={value}" if is_condition else f"column={name} set={value}"
    try:
        if isinstance(value, str):
            expression = NULL if value.strip().upper() == "NULL" else Condition(value, inputs).expression()
        else:
            expression = value if isinstance(value, pl.Expr) else _literal(value, kind)
        if expression.meta.has_multiple_outputs():
            raise InvalidInputError(f"a {what} must be a single expression; this expands to several columns. {which}")
        unknown = [root for root in columns_in(expression) if root not in columns]
        if unknown:
            raise InvalidInputError(
                f"a {what} names unknown columns{_meant(unknown, columns, schema)}; put a text value in "
                f"single quotes inside the SQL, or pass pl.lit('…'). {which} "
                f"unknown={unknown} known={[*columns]}"
            )
        narrow, rows = inputs.narrowed(expression)
        found = rows.lazy().select(narrow.alias(name)).collect_schema()[name]
        if isinstance(value, str) and kind is not None and _is_number_of_sql(narrow, found, rows.schema):
            expression, narrow = (one.cast(kind) if kind.is_float() else one for one in (expression, narrow))
        if not is_element_wise(narrow.is_null(), rows.schema):
            raise InvalidInputError(
                f"a {what} must be element-wise; this one contains an aggregate, a window or a sort. "
                f"Read the rows, compute the values and upsert them. {which}"
            )
        rows.select(narrow)
    except (pl.exceptions.PolarsError, TypeError) as error:
        syntax = _CONDITION if is_condition else _VALUE
        no_field = isinstance(error, pl.exceptions.StructFieldNotFoundError)
        meant = schema.meant(str(error).splitlines()[:1]) if no_field else ""
        if is_syntax_error(error):
            names = lacking_quotes(value, _names(columns)) if isinstance(value, str) else ""
            said = f"{syntax}. Write {names}" if names else syntax
        elif isinstance(error, TypeError) and not isinstance(value, pl.Expr):
            taken = "SQL text or a polars expression" if is_condition else "SQL text, a polars expression or a value"
            said = f"pass {taken}, and no {type(value).__name__}"
        else:
            said = f"{cause_of(error)}{meant}"
        raise InvalidInputError(f"invalid {what}{'' if is_condition else ' of a column'}: {said}. {which}") from error
    return expression


def _literal(value: object, kind: pl.DataType | None) -> pl.Expr:
    """Convert a Python value to a literal. A map's values keep their type; the write checks it."""
    pairs = _pairs(value) if isinstance(kind, pl.Map) else None
    if pairs is None or not isinstance(kind, pl.Map):
        return pl.lit(value, allow_object=False)
    if len({key for key, _ in pairs}) < len(pairs):
        raise InvalidInputError(f"a map must not repeat a key: remove the duplicates. set={value!r}")
    found = pl.Series([one for _, one in pairs]).dtype
    keeps = found.is_nested() or found == pl.Null
    return pl.lit(dict(pairs), dtype=pl.Map(kind.key, kind.value if keeps else found))


def _pairs(value: object) -> list[tuple[object, object]] | None:
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, list | tuple) and all(isinstance(one, tuple) and len(one) == 2 for one in value):
        return list(value)
    return None


def _meant(unknown: Iterable[str], columns: pl.Schema, schema: TableSchema) -> str:
    inside = [name for name, kind in columns.items() if isinstance(kind, pl.Struct)]
    said = ""
    for name in unknown:
        places = [
            (one, field) for one in inside for field in _fields(columns[one]) if name in (field, f"{one}.{field}")
        ]
        if not places:
            said += schema.meant([name])
            continue
        column, field = places[0]
        several = " and of ".join(repr(one) for one, _ in places)
        ways = " or ".join(f"{in_sql(one)}.{in_sql(inner)}" for one, inner in places)
        said += (
            f"; {name!r} is a field of {several}: write {ways} in SQL, or pl.col({column!r}).struct.field({field!r}) "
            "in polars"
        )
    return said


def _names(columns: pl.Schema) -> list[str]:
    return list(dict.fromkeys([*columns, *(field for kind in columns.values() for field in _fields(kind))]))


def _fields(kind: pl.DataType) -> list[str]:
    return [field.name for field in kind.fields] if isinstance(kind, pl.Struct) else []


def _is_number_of_sql(expression: pl.Expr, kind: pl.DataType, columns: pl.Schema) -> bool:
    """Return True if only an SQL literal such as `9.5` makes the value a decimal.

    The value then stays a decimal when its decimal columns become floats.
    """
    if not isinstance(kind, pl.Decimal):
        return False
    floats = pl.Schema({root: _with_floats(columns[root]) for root in columns_in(expression)})
    with suppress(pl.exceptions.PolarsError):
        found = pl.LazyFrame(schema=floats).select(expression.alias("value")).collect_schema()["value"]
        return isinstance(found, pl.Decimal)
    return False


def _with_floats(kind: pl.DataType | DataTypeClass) -> pl.DataType | DataTypeClass:
    match kind:
        case pl.Decimal():
            return pl.Float64()
        case pl.Struct():
            return pl.Struct({field.name: _with_floats(field.dtype) for field in kind.fields})
        case pl.List():
            return pl.List(_with_floats(kind.inner))
        case pl.Array():
            return pl.Array(_with_floats(kind.inner), kind.size)
        case pl.Map():
            return pl.Map(kind.key, _with_floats(kind.value))
    return kind

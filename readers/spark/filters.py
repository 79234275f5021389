"""Convert Spark's conditions to polars expressions that hold for the same rows.

Both treat null alike: a condition on null is null, and the row is excluded. NaN is alike too: it equals itself and is
greater than every other number. But Parquet statistics exclude NaN, and a scan would skip the row. A condition that NaN
may satisfy therefore tests NaN explicitly.

Values are compared in the type of their column. Spark applies conditions that this module does not know.
"""

from __future__ import annotations

import math
from operator import eq, ge, gt, le, lt

import polars as pl
import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import datasource as sd

_COMPARED = {
    sd.EqualTo: eq,
    sd.GreaterThan: gt,
    sd.GreaterThanOrEqual: ge,
    sd.LessThan: lt,
    sd.LessThanOrEqual: le,
}

_ALIKE = frozenset(
    {
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(),
        pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(), pa.date32(),
    }
)  # fmt: skip


def expression(filter: sd.Filter, schema: pa.Schema) -> pl.Expr | None:
    """Return the condition on columns of `schema`, or None if Spark must apply it."""
    if isinstance(filter, sd.Not):
        return _negated(filter.child, schema)
    column = _column(filter, schema)
    if column is None:
        return None
    name = pl.col(column.name)
    match filter:
        case sd.IsNull():
            return name.is_null()
        case sd.IsNotNull():
            return name.is_not_null()
        case sd.In() if _known(*filter.value):
            return name.is_in(pl.Series(filter.value, dtype=_polars_type(column)).implode())
        case sd.EqualNullSafe() if filter.value is None or _known(filter.value):
            return name.eq_missing(pl.lit(filter.value))
        case sd.StringStartsWith():
            return name.str.starts_with(filter.value)
        case sd.StringEndsWith():
            return name.str.ends_with(filter.value)
        case sd.StringContains():
            return name.str.contains(filter.value, literal=True)
    compare = _COMPARED.get(type(filter))
    if compare is None or not _known(filter.value):  # type: ignore[attr-defined]
        return None
    condition: pl.Expr = compare(name, pl.lit(filter.value))  # type: ignore[attr-defined]
    return condition | name.is_nan() if pt.is_floating(column.type) and compare in (gt, ge) else condition


def _negated(filter: sd.Filter, schema: pa.Schema) -> pl.Expr | None:
    inner, column = expression(filter, schema), _column(filter, schema)
    if inner is None or column is None:
        return None
    may_be_nan = pt.is_floating(column.type) and not isinstance(
        filter, sd.GreaterThan | sd.GreaterThanOrEqual | sd.IsNull | sd.IsNotNull
    )
    return ~inner | pl.col(column.name).is_nan() if may_be_nan else ~inner


def _column(filter: sd.Filter, schema: pa.Schema) -> pa.Field | None:
    path: tuple[str, ...] = getattr(filter, "attribute", ())
    if len(path) != 1 or path[0] not in schema.names:
        return None
    column = schema.field(path[0])
    moment = pt.is_timestamp(column.type) and not (column.type.tz or "").startswith(("+", "-"))  # polars has no offsets
    return column if column.type in _ALIKE or moment or pt.is_decimal128(column.type) else None


def _known(*values: object) -> bool:
    return not any(value is None or (isinstance(value, float) and math.isnan(value)) for value in values)


def _polars_type(column: pa.Field) -> pl.DataType:
    return pl.DataFrame(pl.from_arrow(pa.schema([column]).empty_table())).schema[column.name]

"""Replace Arrow types that polars lacks.

polars panics on fixed offsets from UTC, unknown time zones and 256-bit decimals. Moments are converted to UTC, and
decimals to 128 bits, which hold every decimal of a table. The oldest supported polars crashes on text and binary views
that pyarrow has cast.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import polars as pl
import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns.casts import to_declared
from crdt_mor.columns.decimals import near_scale
from crdt_mor.columns.types import without_views


def polars_frame(data: pa.Table) -> pl.DataFrame:
    if not data.num_columns:
        return pl.DataFrame(height=data.num_rows)
    kinds = [_known(kind) for kind in data.schema.types]
    columns = [to_declared(column, kind) for column, kind in zip(data.columns, kinds, strict=True)]
    return pl.DataFrame(pl.from_arrow(pa.table(columns, names=data.column_names)))


def selected(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Select columns of a frame, or none, and keep its height: polars' own `select` of no columns has no rows."""
    return frame.select(columns) if columns else pl.DataFrame(height=frame.height)


def polars_schema(schema: pa.Schema) -> pl.Schema:
    return polars_frame(pa.Table.from_batches([], schema)).schema


@lru_cache(maxsize=1024)
def _known(kind: pa.DataType) -> pa.DataType:
    if pt.is_timestamp(kind) and kind.tz is not None:
        return kind if _has_zone(kind.tz) else pa.timestamp(kind.unit, "UTC")
    if pt.is_decimal256(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if pt.is_string_view(kind) or pt.is_binary_view(kind):
        return without_views(kind)
    if pt.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _known(kind.value_type), ordered=kind.ordered)
    if pt.is_map(kind):
        return pa.map_(kind.key_type, _field(kind.item_field), keys_sorted=kind.keys_sorted)
    if pt.is_struct(kind):
        return pa.struct([_field(field) for field in kind])
    if pt.is_fixed_size_list(kind):
        return pa.list_(_field(kind.value_field), kind.list_size)
    if pt.is_list(kind) or pt.is_large_list(kind):
        build = pa.large_list if pt.is_large_list(kind) else pa.list_
        return build(_field(kind.value_field))
    return kind


def _field(field: pa.Field) -> pa.Field:
    return field.with_type(_known(field.type))


@lru_cache(maxsize=1024)
def _has_zone(name: str) -> bool:
    try:
        pl.Series([0]).cast(pl.Datetime("us", name))
    except pl.exceptions.PolarsError:
        return False
    return True


def stored_array(series: pl.Series, kind: pa.DataType) -> pa.Array:
    values = series.to_arrow(compat_level=pl.CompatLevel.newest())  # keys and ordering values: never nested
    return near_scale(values, kind.scale if pt.is_decimal(kind) else 0).cast(kind)

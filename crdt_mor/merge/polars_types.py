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

from crdt_mor.columns import decimals
from crdt_mor.columns.casts import to_declared
from crdt_mor.columns.kinds import kind_of
from crdt_mor.columns.schema import TableSchema
from crdt_mor.columns.types import with_leaves


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


@lru_cache(maxsize=256)
def polars_columns(schema: TableSchema) -> pl.Schema:
    """Return the declared columns with polars types."""
    return polars_schema(schema.declared)


@lru_cache(maxsize=1024)
def _known(kind: pa.DataType) -> pa.DataType:
    return with_leaves(kind, _leaf)


def _leaf(kind: pa.DataType) -> pa.DataType:
    zone = getattr(kind, "tz", None)
    return kind_of(kind).in_polars(kind) if zone is None or _has_zone(zone) else pa.timestamp(kind.unit, "UTC")


@lru_cache(maxsize=1024)
def _has_zone(name: str) -> bool:
    try:
        pl.Series([0]).cast(pl.Datetime("us", name))
    except pl.exceptions.PolarsError:
        return False
    return True


def stored_array(series: pl.Series, kind: pa.DataType) -> pa.Array:
    values = series.to_arrow(compat_level=pl.CompatLevel.newest())  # keys and ordering values: never nested
    return decimals.cast(values, kind)

"""Markers of unavailable values: `PartialUpdate(unavailable="__debezium_unavailable_value")`.

    given   id 1, name "ann", bio "__debezium_unavailable_value"       a row with a marker
    kept    id 1, name "ann"                                           sets what it would set without the column

A cell with a marker becomes null, and a column of the rows names the cells that set nothing (`precombine.LEFT`). It is
only needed where a null would set null. A payload skips nulls anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import polars as pl
import pyarrow as pa

from crdt_mor.columns.markers import Marker, marker_in
from crdt_mor.errors import InvalidInputError
from crdt_mor.laws.merging import Merging
from crdt_mor.merge.precombine import LEFT, LEFT_END
from crdt_mor.model.config import TableConfig

Masks = Mapping[str, pl.Series]
"""By column, a mask of the cells that are not given; only columns with such cells."""


def not_given(rows: pl.DataFrame, config: TableConfig, merging: Merging) -> Masks:
    """Find the cells with markers. A row that gives one column of a payload at most gives none of them."""
    identity = {*config.key.identity, config.merge.ordering}
    found = dict[str, pl.Series]()
    for column, marker in config.merge.unavailable:
        for name in rows.columns if column is None else [column]:
            if name not in rows.columns or name in identity:
                continue
            mask = _equal(rows[name], marker)
            if mask is not None and mask.any():
                found[name] = mask
    for member in merging.rule.members:
        for columns in member.groups:
            if len(columns) > 1 and not found.keys().isdisjoint(columns):
                masks = _of_payload(found, columns, member.payload.name)
                found |= {name: mask for name, mask in masks.items() if name not in member.shared}
    return found


def _equal(values: pl.Series, marker: Marker) -> pl.Series | None:
    kind = values.clear().to_arrow(compat_level=pl.CompatLevel.oldest()).type
    value = marker_in(kind, marker)
    if value is None:
        return None
    return values.alias("cell").to_frame().select(pl.col("cell").eq_missing(pl.lit(value, values.dtype))).to_series()


def _of_payload(found: Masks, columns: Sequence[str], payload: str) -> Masks:
    missing = pl.select(pl.sum_horizontal(found[name].cast(pl.Int64) for name in columns if name in found)).to_series()
    partial = (missing > 0) & (missing < len(columns) - 1)
    if partial.any():
        row = int(partial.arg_max() or 0)
        raise InvalidInputError(
            f"{payload} merges these columns together, and a row gives some of them, with the marker of unavailable "
            f"values in the others: give all of them, or only one. columns={list(columns)} row={row}"
        )
    return dict.fromkeys(columns, missing > 0)


def given_parts(rows: pa.Table, masks: Masks) -> Iterator[pa.Table]:
    """Yield the rows in parts that give the same columns, without the other columns."""
    if not masks:
        yield rows
        return
    left = _left(masks)
    for names in left.unique():
        absent = {*names.split(LEFT_END)}
        yield rows.filter((left == names).to_arrow()).select([n for n in rows.column_names if n not in absent])


def without_markers(rows: pl.DataFrame, masks: Masks, merging: Merging, nulls: Collection[str]) -> pl.DataFrame:
    """Set the cells that are not given to null, and name them in `LEFT` where a null would set null.

    nulls: as in `RowsWrite`.
    """
    if not masks:
        return rows
    of_payloads = merging.rule.merged
    setting = {*rows.columns} - of_payloads if merging.rule.nulls == "value" else {*nulls}
    named = {name: mask for name, mask in masks.items() if name in setting}
    nulled = [pl.when(~mask).then(pl.col(name)).alias(name) for name, mask in masks.items()]
    return rows.with_columns(*nulled, *([_left(named).alias(LEFT)] if named else []))


def _left(masks: Masks) -> pl.Series:
    parts = [pl.when(mask).then(pl.lit(name + LEFT_END)).otherwise(pl.lit("")) for name, mask in masks.items()]
    return pl.select(pl.concat_str(parts).alias(LEFT)).to_series()

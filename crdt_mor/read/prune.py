"""Skip partitions, file groups and row groups that cannot contain matching rows.

    condition ─ split at `and` ─► conjuncts, all of which must hold
      conditions on partition columns         evaluated on the partitions' values           ─► partitions
      equality on all key columns             `=`, IN, and `or` of them ─► keys ─► buckets  ─► file groups
      comparisons with literals (pushdown.py) compared with row-group statistics, by polars ─► rows

A condition that cannot be analysed skips nothing: a wrong skip would lose rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod
from operator import and_, or_
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from crdt_mor.columns.schema import TableSchema
from crdt_mor.columns.texts import integers, texts
from crdt_mor.errors import CrdtMorError, InvalidInputError, UnsupportedFeatureError
from crdt_mor.merge.blocks import RECORD_KEY
from crdt_mor.merge.polars_types import polars_columns
from crdt_mor.model.config import TableConfig
from crdt_mor.model.keys import KeySpec, buckets
from crdt_mor.model.names import bucket_of_file_id
from crdt_mor.model.slices import FileSlice, Slices
from crdt_mor.read.expressions import Comparison, comparison, conjuncts, operands
from crdt_mor.read.partition_filters import on_partitions
from crdt_mor.read.partition_rows import PartitionRows

KEYS_MAX = 100_000
"""Above this many keys, assume that every bucket is touched."""

LOOKUP_KEYS_MAX = 100
"""Above this many keys, nearly every unsorted row group contains one."""

_ALTERNATIVES_MAX = 200
"""Limit of nested `or`, each a level of recursion. IN takes any number."""

_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
"""Integer types with exact equality. Comparisons with UInt64 or floats may round."""

Values = frozenset[Any]
Pins = dict[str, Values]
"""Allowed values per column. A row with any other value cannot match."""


@dataclass(frozen=True, slots=True)
class Pruning:
    """The slices of a snapshot; its slices in partitions that may match; and of these the slices in such buckets.

    keys: as in `allowed_keys`.
    """

    slices: Slices
    in_partitions: Slices
    kept: Slices
    keys: pa.Array | None = None

    @property
    def by_partition(self) -> list[FileSlice]:
        return _without(self.slices, self.in_partitions)

    @property
    def by_bucket(self) -> list[FileSlice]:
        return _without(self.in_partitions, self.kept)


def prune(
    slices: Slices, condition: pl.Expr | None, config: TableConfig, schema: TableSchema, rows: PartitionRows
) -> Pruning:
    """Skip slices that cannot match. rows: remembers the values of the partitions."""
    if condition is None:
        return Pruning(slices, slices, slices)
    parts = conjuncts(condition)
    decidable = on_partitions(parts, config.key, schema) if config.key.partition_by else []
    left = slices.within(rows.matching(slices.partitions, decidable, config.key, schema)) if decidable else slices
    keys = allowed_keys(condition, config, schema)
    if keys is None or config.buckets is None:
        return Pruning(slices, left, left, keys)
    wanted = frozenset(buckets(keys, config.key, config.buckets).tolist())
    return Pruning(slices, left, Slices(s for s in left if _may_hold(s.file_id, wanted, config.buckets)), keys)


def partitions_left(paths: Collection[str], parts: Sequence[pl.Expr], key: KeySpec, schema: TableSchema) -> list[str]:
    """Return the partitions that may match."""
    decidable = on_partitions(parts, key, schema)
    return PartitionRows().matching(tuple(paths), decidable, key, schema) if decidable else list(paths)


def _without(slices: Sequence[FileSlice], others: Sequence[FileSlice]) -> list[FileSlice]:
    groups = {slice_.group for slice_ in others}
    return [slice_ for slice_ in slices if slice_.group not in groups]


def pinned_partitions(condition: pl.Expr | None, config: TableConfig, schema: TableSchema) -> tuple[str, ...] | None:
    """Return the partition paths that the condition allows; None if unlimited or too many."""
    fields = config.key.partition_fields
    if condition is None or not fields or not config.ours:
        return None
    pins = reduce(_intersection, (_pins(part, schema) for part in conjuncts(condition)))
    if not set(fields) <= pins.keys() or prod(len(pins[name]) for name in fields) > KEYS_MAX:
        return None
    rows = list(product(*(sorted(pins[name]) for name in fields)))
    if not rows:
        return ()
    try:
        stored = schema.select(fields).normalise(
            pa.table({name: [row[i] for row in rows] for i, name in enumerate(fields)})
        )
        return tuple(sorted(set(config.key.partition_paths(stored).to_pylist())))
    except CrdtMorError:
        return None


# --- keys and buckets -----------------------------------------------------------------------------------------------


def _may_hold(file_id: str, wanted: frozenset[int], count: int) -> bool:
    bucket = bucket_of_file_id(file_id)
    return bucket is None or bucket >= count or bucket in wanted


def allowed_keys(condition: pl.Expr | None, config: TableConfig, schema: TableSchema) -> pa.Array | None:
    """Return the record keys that a condition allows; None if unlimited or too many.

    None also for tables made by Hudi: their bucket hash may cover only some key columns.
    """
    if condition is None or not config.ours:
        return None
    return _record_keys(reduce(_intersection, (_pins(part, schema) for part in conjuncts(condition))), config.key)


def few(keys: pa.Array | None) -> tuple[str, ...] | None:
    """Return the keys as text, or None above LOOKUP_KEYS_MAX."""
    return None if keys is None or len(keys) > LOOKUP_KEYS_MAX else tuple(keys.to_pylist())


def _record_keys(pins: Pins, key: KeySpec) -> pa.Array | None:
    if RECORD_KEY in pins:
        return texts(sorted(pins[RECORD_KEY]))
    if not set(key.fields) <= pins.keys():
        return None
    values = [pins[name] if key.composite else pins[name] - {""} for name in key.fields]
    if prod(map(len, values)) > KEYS_MAX:
        return None
    rows = list(product(*values))
    columns = {name: _column([row[i] for row in rows]) for i, name in enumerate(key.fields)}
    if not rows:
        return texts([])
    try:
        return key.record_keys(pa.table(columns))
    except (InvalidInputError, UnsupportedFeatureError):
        return None


def _column(values: Sequence[Any]) -> pa.Array:
    if all(isinstance(value, str) for value in values):
        return texts(values)
    if all(type(value) is int and value.bit_length() < 64 for value in values):
        return integers(np.array(values, np.int64))
    return pa.array(values)


def _pins(part: pl.Expr, schema: TableSchema, depth: int = 0) -> Pins:
    """Collect each column's values for which the condition can be true."""
    if (sides := operands(part, and_)) is not None and depth < _ALTERNATIVES_MAX:
        return _intersection(*(_pins(side, schema, depth + 1) for side in sides))
    if (sides := operands(part, or_)) is not None and depth < _ALTERNATIVES_MAX:
        left, right = (_pins(side, schema, depth + 1) for side in sides)
        return {name: left[name] | right[name] for name in left.keys() & right.keys()}
    compared = comparison(part)
    return {} if compared is None or compared.relation not in ("=", "in") else _pinned(compared, schema)


def _intersection(left: Pins, right: Pins) -> Pins:
    shared = {name: left[name] & right[name] for name in left.keys() & right.keys()}
    return {**left, **right, **shared}


def _pinned(compared: Comparison, schema: TableSchema) -> Pins:
    """Return the compared values if equality is exact for the type, else {}."""
    name, values = compared.column, compared.values
    kind = pl.String() if name == RECORD_KEY else polars_columns(schema).get(name)
    texts = values.dtype == kind and kind in (pl.String, pl.Date)
    numbers = values.dtype in _INTEGERS and kind in _INTEGERS
    if not (texts or numbers or values.dtype == pl.Null):
        return {}
    return {name: frozenset(value for value in values if value is not None)}

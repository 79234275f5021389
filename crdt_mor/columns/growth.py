"""Widen a column's type for a batch as little as possible, also inside nested types.

    fits             True if the declared type can represent every value of the batch's type
    grown            the declared type with wider leaves and the batch's new struct fields
    without_nulls    the batch's type without fields of type null, at every depth; None if nothing is left
    with_fields_of   a type plus another type's extra struct fields, so that a cast drops none

Struct fields are matched by name; fields missing in a batch stay. If two writers grow a struct at once,
`types.join_types` combines the results.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns import kinds
from crdt_mor.columns.types import combined, inner_pairs, is_list, join_types, values_of, with_inner, without_views


def without_nulls(kind: pa.DataType) -> pa.DataType | None:
    if pt.is_null(kind):
        return None
    if pt.is_struct(kind):
        fields = [field.with_type(inner) for field in kind if (inner := without_nulls(field.type)) is not None]
        return pa.struct(fields) if fields or not kind.num_fields else None
    if pt.is_map(kind) or is_list(kind):
        inner = without_nulls(kind.item_type if pt.is_map(kind) else kind.value_type)
        return None if inner is None else with_inner(kind, lambda field: field.with_type(inner))
    return kind


def with_fields_of(kind: pa.DataType, other: pa.DataType) -> pa.DataType:
    found = combined(kind, other, lambda _, mine, its: with_fields_of(mine, its))
    return kind if found is None else found


def grown(declared: pa.DataType, batch: pa.DataType, column: str) -> pa.DataType:
    if fits(batch, declared):
        return declared

    def inner(name: str, mine: pa.DataType, its: pa.DataType) -> pa.DataType:
        return grown(mine, its, f"{column}.{name}")

    def added(field: pa.Field) -> pa.Field:
        return field.with_type(without_views(field.type))

    found = combined(declared, batch, inner, added) if _has_room(declared, batch) else None
    return join_types(declared, batch, column) if found is None else found


def _has_room(declared: pa.DataType, batch: pa.DataType) -> bool:
    if not pt.is_fixed_size_list(declared):
        return True
    return bool(pt.is_fixed_size_list(batch) and batch.list_size == declared.list_size)


def fits(batch: pa.DataType, declared: pa.DataType) -> bool:
    batch, declared = values_of(batch), values_of(declared)
    if pt.is_nested(declared):
        return bool(batch == declared) or _parts_fit(batch, declared)
    if pt.is_nested(batch):
        return kinds.kind_of(declared).accepts(batch, declared)
    return kinds.fits(batch, declared)


def _parts_fit(batch: pa.DataType, declared: pa.DataType) -> bool:
    pairs = inner_pairs(batch, declared)
    if pairs is None or not _has_room(declared, batch):
        return False
    if pt.is_map(batch) and not fits(batch.key_type, declared.key_type):
        return False
    return all(room is not None and fits(kind, room) for _, kind, room in pairs)

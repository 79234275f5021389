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
from crdt_mor.columns.types import field_of, is_list, join_types, list_like, values_of, without_views


def without_nulls(kind: pa.DataType) -> pa.DataType | None:
    if pt.is_null(kind):
        return None
    if pt.is_struct(kind):
        fields = [field.with_type(inner) for field in kind if (inner := without_nulls(field.type)) is not None]
        return pa.struct(fields) if fields or not kind.num_fields else None
    if pt.is_map(kind):
        inner = without_nulls(kind.item_type)
        return inner and pa.map_(kind.key_type, kind.item_field.with_type(inner), keys_sorted=kind.keys_sorted)
    if is_list(kind):
        inner = without_nulls(kind.value_type)
        return inner and list_like(kind, kind.value_field.with_type(inner))
    return kind


def with_fields_of(kind: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pt.is_struct(kind) and pt.is_struct(other):
        fields = [
            field if (same := field_of(other, field.name)) is None else _with_fields_of(field, same.type)
            for field in kind
        ]
        return pa.struct([*fields, *(field for field in other if field_of(kind, field.name) is None)])
    if pt.is_map(kind) and pt.is_map(other):
        item = _with_fields_of(kind.item_field, other.item_type)
        return pa.map_(kind.key_type, item, keys_sorted=kind.keys_sorted)
    if is_list(kind) and is_list(other):
        return list_like(kind, _with_fields_of(kind.value_field, other.value_type))
    return kind


def _with_fields_of(field: pa.Field, other: pa.DataType) -> pa.Field:
    return field.with_type(with_fields_of(field.type, other))


def grown(declared: pa.DataType, batch: pa.DataType, column: str) -> pa.DataType:
    if fits(batch, declared):
        return declared
    if pt.is_struct(declared) and pt.is_struct(batch):
        fields = [_grown_field(field, batch, column) for field in declared]
        new = (field for field in batch if field_of(declared, field.name) is None)
        return pa.struct([*fields, *(field.with_type(without_views(field.type)) for field in new)])
    if pt.is_map(declared) and pt.is_map(batch):
        item = declared.item_field.with_type(grown(declared.item_type, batch.item_type, f"{column}.value"))
        return pa.map_(declared.key_type, item, keys_sorted=declared.keys_sorted)
    if is_list(declared) and is_list(batch) and _has_room(declared, batch):
        item = grown(declared.value_type, batch.value_type, f"{column}.element")
        return list_like(declared, declared.value_field.with_type(item))
    return join_types(declared, batch, column)


def _grown_field(field: pa.Field, batch: pa.StructType, column: str) -> pa.Field:
    written = field_of(batch, field.name)
    return field if written is None else field.with_type(grown(field.type, written.type, f"{column}.{field.name}"))


def _has_room(declared: pa.DataType, batch: pa.DataType) -> bool:
    if not pt.is_fixed_size_list(declared):
        return True
    return bool(pt.is_fixed_size_list(batch) and batch.list_size == declared.list_size)


def fits(batch: pa.DataType, declared: pa.DataType) -> bool:
    batch, declared = values_of(batch), values_of(declared)
    if pt.is_nested(declared):
        return bool(batch == declared) or _parts_fit(batch, declared)
    return not pt.is_nested(batch) and kinds.fits(batch, declared)


def _parts_fit(batch: pa.DataType, declared: pa.DataType) -> bool:
    if is_list(declared):
        return is_list(batch) and _has_room(declared, batch) and fits(batch.value_type, declared.value_type)
    if pt.is_map(declared):
        return bool(pt.is_map(batch)) and fits(batch.item_type, declared.item_type)
    if not (pt.is_struct(declared) and pt.is_struct(batch)):
        return False
    places = ((field.type, field_of(declared, field.name)) for field in batch)
    return all(place is not None and fits(kind, place.type) for kind, place in places)

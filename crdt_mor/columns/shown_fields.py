"""Give types and values from files the declared names of struct fields (`columns.fields`), and the declared meaning."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns.fields import is_stored_name, stored_field
from crdt_mor.columns.kinds import kind_of
from crdt_mor.columns.types import as_in_files, combined, stored_type, values_of

Leaf = Callable[[pa.DataType, pa.DataType], pa.DataType]


def _unchanged(kind: pa.DataType, _: pa.DataType) -> pa.DataType:
    return kind


def with_shown_fields(kind: pa.DataType, declared: pa.DataType, leaf: Leaf = _unchanged) -> pa.DataType:
    """Return a file's type with the struct field names of the declared type, at every depth.

    leaf: changes other types, given the declared ones.
    """
    if pt.is_struct(kind) and pt.is_struct(declared) and declared.num_fields:
        shown = {stored_field(field.name): field for field in declared}
        return pa.struct([_shown(field, shown.get(field.name), leaf) for field in kind])
    found = combined(kind, declared, lambda _, mine, its: with_shown_fields(mine, its, leaf))
    return leaf(kind, declared) if found is None else found


def as_declared(kind: pa.DataType, declared: pa.DataType) -> pa.DataType:
    """Return the type that Hudi's values have in a declared column, at every depth. Hudi knows only types of files."""
    return with_shown_fields(kind, declared, _leaf_as_declared)


def _leaf_as_declared(kind: pa.DataType, declared: pa.DataType) -> pa.DataType:
    parts = as_in_files(declared)
    if parts == declared:
        return kind_of(values_of(declared)).from_files(kind, values_of(declared))
    if pt.is_struct(declared):
        return declared if kind == parts else kind
    if not (pt.is_list(kind) and pt.is_struct(kind.value_type)):
        return kind
    entries = {field.name: field.type for field in as_declared(kind, parts).value_type}
    if entries.keys() != {"key", "value"}:
        return kind
    is_same = stored_type(declared.key_type, "") == kind.value_type.field("key").type
    return pa.map_(declared.key_type if is_same else entries["key"], entries["value"])


def stored_leaves(kind: pa.DataType, column: str) -> pa.DataType:
    """Return the stored type of a payload's type, with the payload's field names."""
    return with_shown_fields(stored_type(kind, column), kind)


def odd_fields(kind: pa.DataType) -> list[str]:
    inner = [kind.field(index) for index in range(kind.num_fields)]
    odd = [field.name for field in inner if pt.is_struct(kind) and not is_stored_name(field.name)]
    return [*odd, *(name for field in inner for name in odd_fields(field.type))]


def _shown(field: pa.Field, declared: pa.Field | None, leaf: Leaf) -> pa.Field:
    if declared is None:
        return field
    return pa.field(declared.name, with_shown_fields(field.type, declared.type, leaf), field.nullable)


def called(data: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return the same values in a type with other names, without a copy."""
    if data.type == kind:
        return data
    return pa.chunked_array([pa.array(_Called(chunk, kind)) for chunk in data.chunks], kind)


class _Called:
    def __init__(self, data: pa.Array, kind: pa.DataType) -> None:
        self._data, self._kind = data, kind

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        del requested_schema
        return self._kind.__arrow_c_schema__(), self._data.__arrow_c_array__()[1]

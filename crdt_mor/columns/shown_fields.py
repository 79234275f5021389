"""Give types and values from files the user-visible names of struct fields; see `columns.fields`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns.fields import is_stored_name, stored_field
from crdt_mor.columns.types import combined, stored_type


def with_shown_fields(kind: pa.DataType, declared: pa.DataType) -> pa.DataType:
    """Return a file's type with the struct field names of the declared type, at every depth."""
    if pt.is_struct(kind) and pt.is_struct(declared):
        shown = {stored_field(field.name): field for field in declared}
        return pa.struct([_shown(field, shown.get(field.name)) for field in kind])
    found = combined(kind, declared, lambda _, mine, its: with_shown_fields(mine, its))
    return kind if found is None else found


def stored_leaves(kind: pa.DataType, column: str) -> pa.DataType:
    """Return the stored type of a payload's type, with the payload's field names."""
    return with_shown_fields(stored_type(kind, column), kind)


def odd_fields(kind: pa.DataType) -> list[str]:
    inner = [kind.field(index) for index in range(kind.num_fields)]
    odd = [field.name for field in inner if pt.is_struct(kind) and not is_stored_name(field.name)]
    return [*odd, *(name for field in inner for name in odd_fields(field.type))]


def _shown(field: pa.Field, declared: pa.Field | None) -> pa.Field:
    if declared is None:
        return field
    return pa.field(declared.name, with_shown_fields(field.type, declared.type), field.nullable)


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

"""Types without views, for Arrow's CSV readers and writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crdt_mor.ground.late_imports import Late

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.types as pt

    from crdt_mor.columns import types
else:
    pa = Late("pyarrow")
    pt = Late("pyarrow.types")
    types = Late("crdt_mor.columns.types")


def without_views(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_plain(field.type)) for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    plain = types.without_views(kind)
    return plain.value_type if pt.is_dictionary(plain) else plain

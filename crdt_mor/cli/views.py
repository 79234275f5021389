"""Types without views: Arrow's readers and writers of CSV know texts and bytes in the older layout alone."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt


def without_views(schema: pa.Schema) -> pa.Schema:
    """The schema with each view of texts or bytes, and each dictionary, as a plain column of the same values."""
    return pa.schema([field.with_type(_plain(field.type)) for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pt.is_string_view(kind):
        return pa.string()
    if pt.is_binary_view(kind):
        return pa.binary()
    return _plain(kind.value_type) if pt.is_dictionary(kind) else kind

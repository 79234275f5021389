"""The schema and protocol of a Delta mirror.

The mirror is unpartitioned: partition columns are in the files like all others, and their bounds prune files. polars
refuses column mapping, so it is used only if a shown name differs from a stored one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.mirror.columns import MirrorColumn
from crdt_mor.mirror.refresh import TYPES

Json = Mapping[str, Any]

OURS: Final = "crdt_mor"
"""A writer feature that no other engine knows, so engines that follow Delta's protocol refuse to write, optimize and
vacuum. They would delete files of the table."""

TABLE_ID: Final = "crdt_mor.table_id"
MODE: Final = "crdt_mor.deletes"

VECTORS: Final = "vectors"
REWRITE: Final = "rewrite"

_NEVER: Final = "interval 36500 days"
"""Engines that ignore the writer feature would otherwise vacuum files of the table after a week."""

_LEAVES: Final = {
    pa.bool_(): "boolean", pa.int32(): "integer", pa.int64(): "long", pa.float32(): "float", pa.float64(): "double",
    pa.string(): "string", pa.binary(): "binary", pa.date32(): "date", pa.timestamp("us", "UTC"): "timestamp",
}  # fmt: skip


def stands(stored: pa.DataType, in_file: pa.DataType) -> bool:
    """Return True if every Delta reader reads a file's type as the stored type.

    Without the feature typeWidening, which most readers lack, a narrower number is no such type.
    """
    return stored == in_file or (pt.is_timestamp(stored) and pt.is_timestamp(in_file) and in_file.tz is not None)


def is_mapped(columns: Iterable[MirrorColumn]) -> bool:
    return any(one.shown != one.stored for column in columns for _, one in column.all())


def schema_json(columns: Sequence[MirrorColumn]) -> str:
    """Return Delta's schema; raise `UnsupportedFeatureError` for a type that Delta lacks."""
    mapped = is_mapped(columns)
    fields = [_field(column, column.shown, mapped) for column in columns]
    return json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))


def _field(column: MirrorColumn, path: str, mapped: bool) -> Json:
    mapping = {"delta.columnMapping.id": column.id, "delta.columnMapping.physicalName": column.stored}
    return {
        "name": column.shown,
        "type": _type(column, path, mapped),
        "nullable": True,
        "metadata": mapping if mapped else {},
    }


def _type(column: MirrorColumn, path: str, mapped: bool) -> str | Json:
    kind, inner = column.type, [(child, f"{path}.{child.shown}") for child in column.children]
    if pt.is_struct(kind):
        return {"type": "struct", "fields": [_field(child, there, mapped) for child, there in inner]}
    types = [_type(child, there, mapped) for child, there in inner]
    if pt.is_map(kind):
        return {"type": "map", "keyType": types[0], "valueType": types[1], "valueContainsNull": True}
    if pt.is_list(kind):
        return {"type": "array", "elementType": types[0], "containsNull": True}
    if pt.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= 38:
        return f"decimal({kind.precision},{kind.scale})"
    if kind in _LEAVES:
        return _LEAVES[kind]
    raise UnsupportedFeatureError(
        f"Delta Lake lacks the type of a column, so the table cannot be mirrored: drop the column, or mirror a copy "
        f"with another type. column={path} type={kind}"
    )


def protocol(columns: Sequence[MirrorColumn], mode: str) -> Json:
    features = (("deletionVectors", mode == VECTORS), ("columnMapping", is_mapped(columns)))
    read = [name for name, is_needed in features if is_needed]
    if not read:
        return {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [OURS]}
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": read, "writerFeatures": [*read, OURS]}


def configuration(
    columns: Sequence[MirrorColumn], mode: str, table_id: str, types: Mapping[str, str]
) -> dict[str, str]:
    found = {
        TABLE_ID: table_id,
        MODE: mode,
        TYPES: json.dumps(types, separators=(",", ":")),
        "delta.deletedFileRetentionDuration": _NEVER,
    }
    if mode == VECTORS:
        found["delta.enableDeletionVectors"] = "true"
    if is_mapped(columns):
        ids = [one.id for column in columns for _, one in column.all()]
        found |= {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": str(max(ids))}
    return found

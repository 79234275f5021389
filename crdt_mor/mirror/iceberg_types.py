"""Columns in Iceberg's words: types, schemas, and the name mapping for files without field ids.

A name mapping must give an id to every column of the files. DuckDB reads all columns of a file as null if one of its
columns has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns.schema import META_COLUMNS
from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.mirror.columns import MirrorColumn
from crdt_mor.model.field_ids import OWN_IDS, inner_fields

Json = dict[str, Any]

META_IDS: Final = OWN_IDS
"""First id of Hudi's columns in a name mapping, as in files. No column of a table has an id this high."""

HIGHEST_ID: Final = OWN_IDS + 999_999
"""The highest id that the metadata reserve. ClickHouse refuses a file with a higher one, such as that of
`_hoodie_commit_time`."""

_PLAIN: Final[Mapping[pa.DataType, str]] = {
    pa.bool_(): "boolean", pa.int32(): "int", pa.int64(): "long", pa.float32(): "float", pa.float64(): "double",
    pa.string(): "string", pa.binary(): "binary", pa.date32(): "date", pa.time64("us"): "time",
    pa.timestamp("us"): "timestamp",
}  # fmt: skip

_WIDER: Final = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}
"""Types in older files and types now that Iceberg's readers convert, besides decimals with more digits."""


def iceberg_type(column: MirrorColumn, path: str = "") -> str | Json:
    """Return the Iceberg type of a column; raise `UnsupportedFeatureError` with its path if there is none."""
    kind, path = column.type, path or column.shown
    if pt.is_struct(kind):
        return {"type": "struct", "fields": [_field(child, f"{path}.{child.shown}") for child in column.children]}
    if pt.is_map(kind):
        key, value = column.children
        return {
            "type": "map", "key-id": key.id, "key": iceberg_type(key, f"{path}.key"),
            "value-id": value.id, "value": iceberg_type(value, f"{path}.value"), "value-required": False,
        }  # fmt: skip
    if pt.is_list(kind):
        (element,) = column.children
        of = iceberg_type(element, f"{path}.element")
        return {"type": "list", "element-id": element.id, "element": of, "element-required": False}
    return _plain(kind, path)


def _plain(kind: pa.DataType, path: str) -> str:
    if pt.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return f"decimal({kind.precision}, {kind.scale})"
    if pt.is_timestamp(kind) and kind.unit == "us" and kind.tz == "UTC":
        return "timestamptz"
    if pt.is_fixed_size_binary(kind):
        return f"fixed[{kind.byte_width}]"
    if kind in _PLAIN:
        return _PLAIN[kind]
    raise UnsupportedFeatureError(
        "Iceberg has no type for a column of this table: drop the column, or copy the table with the column cast. "
        f"column={path} type={kind}"
    )


def _field(column: MirrorColumn, path: str) -> Json:
    return {"id": column.id, "name": column.shown, "required": False, "type": iceberg_type(column, path)}


def schema_fields(columns: Sequence[MirrorColumn]) -> list[Json]:
    """Return the fields of the Iceberg schema; raise for a type or a name that Iceberg lacks."""
    fields = [_field(column, column.shown) for column in columns]
    paths = Counter(path for column in columns for path in _paths(column))
    if repeated := [path for path, count in paths.items() if count > 1]:
        raise UnsupportedFeatureError(
            "Iceberg separates the names of nested fields by dots, so two columns would have one name: rename a "
            f"column. columns={repeated}"
        )
    return fields


def _paths(column: MirrorColumn, above: str = "") -> Iterator[str]:
    path = f"{above}{column.shown}"
    yield path
    for child in column.children:
        yield from _paths(child, f"{path}.")


def name_mapping(
    columns: Sequence[MirrorColumn], others: Iterable[pa.Field], before: Sequence[Json] = ()
) -> list[Json]:
    """Return the ids of columns by their names in files.

    Args:
        columns: the visible columns.
        others: further columns in files. They and their fields get ids that no schema contains, as Hudi's columns do.
        before: the last mapping, with columns that were dropped since; older snapshots show them.
    """
    mapped = [_mapped(column) for column in columns]
    known = {column.stored for column in columns}
    gone = [entry for entry in before if known.isdisjoint(entry["names"])]
    known |= {name for entry in gone for name in entry["names"]}
    in_files = {**dict.fromkeys(META_COLUMNS, pa.string()), **{field.name: field.type for field in others}}
    ids = count(max([META_IDS, *(id_ + 1 for entry in gone for id_ in _ids(entry))]))
    complete = [_completed(entry, in_files.get(entry["names"][0], pa.null()), ids) for entry in gone]
    unknown = [_other(name, kind, ids) for name, kind in in_files.items() if name not in known]
    return [*complete, *unknown, *mapped]


def _ids(entry: Json) -> Iterator[int]:
    yield entry["field-id"]
    for inner in entry.get("fields", ()):
        yield from _ids(inner)


def _other(name: str, kind: pa.DataType, ids: Iterator[int]) -> Json:
    """Return the entry of a column in files that the schema lacks. pyiceberg wants the fields inside, too."""
    return _completed({"field-id": next(ids), "names": [name]}, kind, ids)


def _completed(entry: Json, kind: pa.DataType, ids: Iterator[int]) -> Json:
    """Add the fields inside a file's column that its entry lacks."""
    known = {one["names"][0]: one for one in entry.get("fields", ())}
    for name, inner in inner_fields(kind):
        one = known.get(name)
        known[name] = _other(name, inner.type, ids) if one is None else _completed(one, inner.type, ids)
    return {**entry, "fields": [*known.values()]} if known else entry


def _mapped(column: MirrorColumn) -> Json:
    nested = {"fields": [_mapped(child) for child in column.children]} if column.children else {}
    return {"field-id": column.id, "names": [column.stored], **nested}


def stands(stored: pa.DataType, in_file: pa.DataType) -> bool:
    """Return True if Iceberg's readers read a file's type as the table's stored type, both without inner types."""
    if pt.is_decimal128(stored) and pt.is_decimal128(in_file):
        return bool(stored.scale == in_file.scale and stored.precision >= in_file.precision)
    return stored == in_file or (in_file, stored) in _WIDER

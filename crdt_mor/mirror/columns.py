"""The visible columns of a table as other formats see them: a field id, a shown name and a stored name each.

Shown names are the users'. Parquet files contain stored names and stored types. The schema decides the ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns.fields import stored_field
from crdt_mor.columns.schema import TableSchema
from crdt_mor.columns.types import as_in_files, is_list, values_of
from crdt_mor.model.field_ids import FieldIds, Path, field_ids, with_field_ids
from crdt_mor.model.timeline import Timeline


@dataclass(frozen=True, slots=True)
class MirrorColumn:
    """A visible column, or a field inside one.

    Attributes:
        id: stable through renames, never reused.
        shown: the users' name.
        stored: the name in Parquet files.
        type: the stored type.
        children: the fields of a struct; the element of a list; key and value of a map.
    """

    id: int
    shown: str
    stored: str
    type: pa.DataType
    children: tuple[MirrorColumn, ...] = ()

    def all(self, above: Path = ()) -> Iterator[tuple[Path, MirrorColumn]]:
        """Yield this column and all fields inside, by stored path."""
        path = (*above, self.stored)
        yield path, self
        for child in self.children:
            yield from child.all(path)


def mirror_columns(value: Timeline) -> tuple[MirrorColumn, ...]:
    """Return the visible columns of a timeline value, in order."""
    schema, names, ids = TableSchema.from_json(value.schema), value.names, field_ids(value.schema)
    visible = frozenset(names.visible(schema.declared.names))
    return tuple(
        _column(ids, (declared.name,), names.shown(declared.name), declared.type, stored.type)
        for declared, stored in zip(schema.declared, schema.stored, strict=True)
        if declared.name in visible
    )


def stored_schema(columns: Sequence[MirrorColumn]) -> pa.Schema:
    """Return the schema of a mirror's Parquet files: stored names and types, with field ids."""
    ids = {path: one.id for column in columns for path, one in column.all()}
    return with_field_ids(pa.schema([pa.field(column.stored, column.type) for column in columns]), ids)


def _column(ids: FieldIds, path: Path, shown: str, declared: pa.DataType, stored: pa.DataType) -> MirrorColumn:
    nested = as_in_files(values_of(declared))
    parts = _inside(nested if pt.is_nested(nested) else stored, stored)  # a variant is a struct in files
    inner = [_column(ids, (*path, name), seen, there, kept) for name, seen, there, kept in parts]
    return MirrorColumn(ids[path], shown, path[-1], stored, tuple(inner))


def _inside(declared: pa.DataType, stored: pa.DataType) -> Iterator[tuple[str, str, pa.DataType, pa.DataType]]:
    """Yield the stored name, shown name, declared type and stored type of each field inside a type."""
    if pt.is_struct(declared):
        for there, kept in zip(declared, stored, strict=True):
            assert kept.name == stored_field(there.name), f"struct fields keep their order: {kept.name}"
            yield kept.name, there.name, there.type, kept.type
    elif pt.is_map(declared):
        yield "key", "key", declared.key_type, stored.key_type
        yield "value", "value", declared.item_type, stored.item_type
    elif is_list(declared):
        yield "element", "element", declared.value_type, stored.value_type

"""The visible columns of a table as other formats see them: a field id, a shown name and a stored name each.

Shown names are the users'. Parquet files contain stored names and stored types. Ids come from `_Ids` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns.fields import stored_field
from crdt_mor.columns.schema import TableSchema
from crdt_mor.columns.types import is_list, values_of
from crdt_mor.model.timeline import Timeline

FIELD_ID = "PARQUET:field_id"
"""The metadata of an Arrow field that becomes its field id in Parquet."""

_NESTED_FROM = 1000


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

    @property
    def arrow(self) -> pa.Field:
        """The field of a Parquet file, with the ids of this field and all fields inside."""
        return pa.field(self.stored, self._type_with_ids(), metadata={FIELD_ID: str(self.id)})

    def _type_with_ids(self) -> pa.DataType:
        if pt.is_struct(self.type):
            return pa.struct([child.arrow for child in self.children])
        if pt.is_map(self.type):
            key, value = self.children
            return pa.map_(key.arrow.with_nullable(False), value.arrow)
        return pa.list_(self.children[0].arrow) if pt.is_list(self.type) else self.type

    def all(self) -> Iterator[MirrorColumn]:
        """Yield this column and all fields inside."""
        yield self
        for child in self.children:
            yield from child.all()


@dataclass(slots=True)
class _Ids:
    """Field ids: a column's place in the stored schema, from 1 on; of nested fields, numbers from 1000 on."""

    nested: Iterator[int] = field(default_factory=lambda: count(_NESTED_FROM))

    def of(self, path: Sequence[str], place: int) -> int:
        return place + 1 if len(path) == 1 else next(self.nested)


def mirror_columns(value: Timeline) -> tuple[MirrorColumn, ...]:
    """Return the visible columns of a timeline value, in order."""
    schema, names, ids = TableSchema.from_json(value.schema), value.names, _Ids()
    columns = [
        _column(ids, (declared.name,), names.shown(declared.name), declared.type, stored.type, place)
        for place, (declared, stored) in enumerate(zip(schema.declared, schema.stored, strict=True))
    ]
    visible = frozenset(names.visible(schema.declared.names))
    return tuple(column for column in columns if column.stored in visible)


def stored_schema(columns: Iterable[MirrorColumn]) -> pa.Schema:
    """Return the schema of a mirror's Parquet files: stored names and types, with field ids."""
    return pa.schema([column.arrow for column in columns])


def _column(
    ids: _Ids, path: tuple[str, ...], shown: str, declared: pa.DataType, stored: pa.DataType, place: int
) -> MirrorColumn:
    own = ids.of(path, place)
    inner = [
        _column(ids, (*path, name), seen, there, kept, at)
        for at, (name, seen, there, kept) in enumerate(_inside(values_of(declared), stored))
    ]
    return MirrorColumn(own, shown, path[-1], stored, tuple(inner))


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

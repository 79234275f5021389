"""Ids of columns and nested fields, for readers that match Parquet columns by id: Iceberg, Delta and others.

    field_ids        the ids of a version's columns, by path
    numbered         the next version's schema, with ids for its new fields
    with_field_ids   a data file's columns, with the ids as Parquet stores them

A path names a column and its nested fields as files do: `("address", "city")`, `("tags", "element")`, `("map", "key")`.
A path is never used for another field, since stored names are never reused; so an id is as stable as its path. Only
the event that adds a field gives the id: of two writers that add fields at once, the later one numbers its own after
the other's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import count
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns.schema import RESERVED_PREFIXES, TableSchema
from crdt_mor.errors import FormatError

Path = tuple[str, ...]
FieldIds = Mapping[Path, int]

OWN_IDS: Final = 2_000_000_000
"""The first id of Hudi's columns and of payloads' states in a file. Iceberg reserves ids from 2,147,483,447 on."""

PARQUET_ID: Final = b"PARQUET:field_id"
"""The key of a field's metadata from which pyarrow writes, and to which it reads, the id."""


@lru_cache(maxsize=64)
def field_ids(schema: str) -> FieldIds:
    """Return the id of each column and nested field. schema: the text of a published version.

    A text without ids has the default ones: the columns are 1 to n in order, and the nested fields follow.
    """
    paths = [[*_paths((column.name,), column.type)] for column in TableSchema.from_json(schema).stored]
    entries: list[list[Any]] = [[*entry] for entry in json.loads(schema)]
    if not has_ids(schema):
        return _after({}, [path for some in paths for path in some])
    ids = dict[Path, int]()
    for entry, some in zip(entries, paths, strict=True):
        given = entry[_PLAIN] if len(entry) == _PLAIN + 1 else None
        if not isinstance(given, list) or len(given) != len(some):
            raise FormatError(f"not a table schema: the ids do not fit the columns. schema={schema[:200]!r}")
        ids.update(zip(some, given, strict=True))
    if not all(type(id_) is int and 0 < id_ < OWN_IDS for id_ in ids.values()) or len({*ids.values()}) < len(ids):
        raise FormatError(f"not a table schema: ids must be different numbers. schema={schema[:200]!r}")
    return MappingProxyType(ids)


_PLAIN: Final = 3
"""The number of parts of a column's entry without ids: name, type, and 0 if not nullable."""


def has_ids(schema: str) -> bool:
    """Return True if the text contains ids. A schema that an earlier release grew does not, and its defaults change."""
    return any(len(entry) > _PLAIN for entry in json.loads(schema))


def numbered(before: str, after: str) -> str:
    """Return the schema `after` of the version that follows `before`: its fields keep their ids, new ones get the next.

    Default ids stay out of the text.
    """
    columns = TableSchema.from_json(after)
    plain, known = columns.to_json(), field_ids(before)
    paths = [[*_paths((column.name,), column.type)] for column in columns.stored]
    ids = _after(known, [path for some in paths for path in some])
    if all(ids[path] == id_ for path, id_ in field_ids(plain).items()):
        return plain
    entries = [
        [name, kind, rest[0] if rest else 1, [ids[path] for path in some]]
        for (name, kind, *rest), some in zip(json.loads(plain), paths, strict=True)
    ]
    return json.dumps(entries, separators=(",", ":"), ensure_ascii=False)


def with_field_ids(columns: pa.Schema, ids: FieldIds) -> pa.Schema:
    """Return a file's columns with their ids, as metadata that the Parquet writer stores.

    If a column is not among `ids`, its id is not decided yet, and another writer could get it: then no column has one.
    """
    own = count(OWN_IDS)
    found = dict[Path, int]()
    for column in columns:
        is_own = (column.name,) not in ids and column.name.startswith(RESERVED_PREFIXES)
        for path in _paths((column.name,), column.type):
            if (id_ := next(own) if is_own else ids.get(path)) is None:
                return columns
            found[path] = id_
    return pa.schema([_with_id(column, (column.name,), found) for column in columns])


def ids_in_file(columns: pa.Schema) -> FieldIds:
    """Return the ids in a file's columns, as pyarrow reads them."""
    return {
        path: int(field.metadata[PARQUET_ID])
        for column in columns
        for path, field in _fields((column.name,), column)
        if field.metadata is not None and PARQUET_ID in field.metadata
    }


def _after(known: FieldIds, paths: Iterable[Path]) -> FieldIds:
    new = sorted((path for path in paths if path not in known), key=lambda path: len(path) > 1)
    first = max(known.values(), default=0) + 1
    return MappingProxyType({**known, **dict(zip(new, count(first), strict=False))})


# --- the fields of a type ---------------------------------------------------------------------------------------------


def inner_fields(kind: pa.DataType) -> list[tuple[str, pa.Field]]:
    """Return the parts of a stored type, under the names that Parquet gives them."""
    if pt.is_struct(kind):
        return [(field.name, field) for field in kind]
    if pt.is_map(kind):
        return [("key", kind.key_field), ("value", kind.item_field)]
    return [("element", kind.value_field)] if pt.is_list(kind) else []


def _fields(path: Path, field: pa.Field) -> Iterator[tuple[Path, pa.Field]]:
    yield path, field
    for name, inner in inner_fields(field.type):
        yield from _fields((*path, name), inner)


def _paths(path: Path, kind: pa.DataType) -> Iterator[Path]:
    yield path
    for name, inner in inner_fields(kind):
        yield from _paths((*path, name), inner.type)


def _with_id(field: pa.Field, path: Path, ids: FieldIds) -> pa.Field:
    parts = [_with_id(inner, (*path, name), ids) for name, inner in inner_fields(field.type)]
    kind = field.type
    if pt.is_struct(kind):
        kind = pa.struct(parts)
    elif pt.is_map(kind):
        kind = pa.map_(*parts, keys_sorted=kind.keys_sorted)
    elif pt.is_list(kind):
        kind = pa.list_(*parts)
    return field.with_type(kind).with_metadata({PARQUET_ID: str(ids[path]).encode()})

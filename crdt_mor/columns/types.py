"""Map column types between user schemas, Parquet files and Avro, and join the types of two writers.

    declared (Arrow)  --stored_type-->  stored (Arrow, in Parquet)  --to_avro-->  Avro (table schema)
                      <--------------- reads return the declared types, which are kept

`docs/types.md` lists all types; its test reads the page.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns import kinds
from crdt_mor.columns.fields import check_fields, is_stored_name, stored_fields
from crdt_mor.columns.kinds import UNKNOWN, kind_of, type_named, unsupported
from crdt_mor.columns.kinds_variants import VARIANT, is_marked
from crdt_mor.errors import InvalidInputError, SchemaMismatchError

_TEXTS = {pa.string(), pa.large_string(), pa.string_view()}
_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
_NOTHING: Final = pa.field("_empty", pa.bool_())
"""The field of a struct without fields in files, always null: Parquet has no such structs."""

_NARROW = {**_VIEWS, pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


def is_list(kind: pa.DataType) -> bool:
    """Return True for any of Arrow's five list types."""
    return bool(
        pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind)
        or pt.is_list_view(kind) or pt.is_large_list_view(kind)
    )  # fmt: skip


def values_of(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pt.is_dictionary(kind) else kind


def list_like(kind: pa.DataType, item: pa.Field) -> pa.DataType:
    if pt.is_fixed_size_list(kind):
        return pa.list_(item, kind.list_size)
    return pa.large_list(item) if pt.is_large_list(kind) or pt.is_large_list_view(kind) else pa.list_(item)


def field_of(kind: pa.StructType | pa.Schema, name: str) -> pa.Field | None:
    index = kind.get_field_index(name)
    return None if index < 0 else kind.field(index)


def inner_pairs(kind: pa.DataType, other: pa.DataType) -> list[tuple[str, pa.DataType, pa.DataType | None]] | None:
    """Return the names of inner types, and the types in `kind` and in `other` (None: no such field).

    None if the two are not both structs, maps or lists.
    """
    if pt.is_struct(kind) and pt.is_struct(other):
        found = [(field, field_of(other, field.name)) for field in kind]
        return [(field.name, field.type, None if same is None else same.type) for field, same in found]
    if pt.is_map(kind) and pt.is_map(other):
        return [("value", kind.item_type, other.item_type)]
    return [("element", kind.value_type, other.value_type)] if is_list(kind) and is_list(other) else None


def entries_of(kind: pa.MapType) -> pa.DataType:
    return pa.list_(pa.field("element", pa.struct([("key", kind.key_type), ("value", kind.item_type)])))


def as_in_files(kind: pa.DataType) -> pa.DataType:
    """Return a nested type with the parts that files contain. Avro's maps have text keys."""
    if pt.is_map(kind) and kind.key_type not in _TEXTS:
        return entries_of(kind)
    return pa.struct([_NOTHING]) if pt.is_struct(kind) and not kind.num_fields else kind


def has_other_parts(kind: pa.DataType) -> bool:
    """Return True if files contain other parts of the type at some depth, so that Arrow has no cast."""
    inner = (kind.field(index).type for index in range(kind.num_fields))
    return bool(as_in_files(kind) != kind or any(map(has_other_parts, inner)))


def declared_type(kind: pa.DataType, column: str) -> pa.DataType:
    """Return the type that reads will return for `kind`; raise `SchemaMismatchError` if it cannot be stored.

    Nested fields become nullable, as in Parquet files of several writers. List views become lists; dictionaries get
    32-bit indices, because they grow with the table. Inside nested types, dictionaries become their values and times of
    day microseconds. Arrow's JSON becomes text.
    """
    if pt.is_dictionary(kind):
        value = declared_type(kind.value_type, column)
        if pt.is_nested(stored_type(value, column)) or pt.is_dictionary(value):
            raise unsupported(kind, column, "a dictionary of scalars can be stored")
        return pa.dictionary(pa.int32(), value, ordered=kind.ordered)
    if is_list(kind):
        return list_like(kind, pa.field(kind.value_field.name, _inner(kind.value_type, column)))
    if pt.is_struct(kind):
        return VARIANT if is_marked(kind) else _declared_struct(kind, column)
    if pt.is_map(kind):
        key, item = _inner(kind.key_type, column), pa.field("value", _inner(kind.item_type, column))
        if pt.is_nested(stored_type(key, column)):
            raise unsupported(kind, column, "a map's key has no inner types: use a list of structs")
        return pa.map_(key, item, keys_sorted=kind.keys_sorted)
    return kind_of(kind).declared(kind, column)


def _inner(kind: pa.DataType, column: str) -> pa.DataType:
    declared = declared_type(kind, column)
    return kind_of(declared).inner(values_of(declared))


def _declared_struct(kind: pa.StructType, column: str) -> pa.DataType:
    check_fields([field.name for field in kind], column)
    return pa.struct([pa.field(field.name, _inner(field.type, f"{column}.{field.name}")) for field in kind])


def check_name(name: str, column: str) -> None:
    if not is_stored_name(name):
        raise InvalidInputError(
            f"rename the column: Avro, Hudi's schema format, allows ASCII letters, digits and _. column={column!r}"
        )


def without_views(kind: pa.DataType) -> pa.DataType:
    """Replace text and binary views, at every depth: libraries such as polars use them, but no user declares them."""
    return with_leaves(kind, lambda leaf: _VIEWS.get(leaf, leaf))


@lru_cache(maxsize=1024)
def narrow(kind: pa.DataType) -> pa.DataType:
    """Replace views and large types of text, bytes and lists by the types that every reader supports."""
    return with_leaves(kind, lambda leaf: _NARROW.get(leaf, leaf), _narrow_list)


def _narrow_list(kind: pa.DataType, item: pa.Field) -> pa.DataType:
    return list_like(kind, item) if pt.is_fixed_size_list(kind) else pa.list_(item)


def without_dictionaries(schema: pa.Schema) -> pa.Schema:
    """Return columns that Arrow's CSV readers and writers accept: no views, and values instead of dictionaries."""
    return pa.schema([column.with_type(values_of(without_views(column.type))) for column in schema])


def with_leaves(
    kind: pa.DataType,
    change: Callable[[pa.DataType], pa.DataType],
    lists: Callable[[pa.DataType, pa.Field], pa.DataType] = list_like,
) -> pa.DataType:
    """Apply `change` to each type without inner types."""

    def within(field: pa.Field) -> pa.Field:
        return field.with_type(with_leaves(field.type, change, lists))

    if pt.is_dictionary(kind):
        return pa.dictionary(kind.index_type, with_leaves(kind.value_type, change), ordered=kind.ordered)
    if pt.is_map(kind):
        return pa.map_(change(kind.key_type), within(kind.item_field), keys_sorted=kind.keys_sorted)
    return with_inner(kind, within, lists) if pt.is_nested(kind) else change(kind)


def with_inner(
    kind: pa.DataType,
    change: Callable[[pa.Field], pa.Field],
    lists: Callable[[pa.DataType, pa.Field], pa.DataType] = list_like,
) -> pa.DataType:
    """Apply `change` to the fields of a struct, or to the field of a map's or list's items."""
    if pt.is_struct(kind):
        return pa.struct([*map(change, kind)])
    if pt.is_map(kind):
        return pa.map_(kind.key_type, change(kind.item_field), keys_sorted=kind.keys_sorted)
    return lists(kind, change(kind.value_field)) if is_list(kind) else kind


def combined(
    kind: pa.DataType,
    other: pa.DataType,
    join: Callable[[str, pa.DataType, pa.DataType], pa.DataType],
    added: Callable[[pa.Field], pa.Field] = lambda field: field,
) -> pa.DataType | None:
    """Join the inner types of `kind` with those of `other`, and append the fields that only the other struct has.

    None if the two are not both structs, maps or lists, or only one struct has fields.
    """
    pairs = inner_pairs(kind, other)
    if pairs is None or (pt.is_struct(kind) and bool(kind.num_fields) != bool(other.num_fields)):
        return None
    joined = iter([mine if its is None else join(name, mine, its) for name, mine, its in pairs])
    found = with_inner(kind, lambda field: field.with_type(next(joined)))
    if not pt.is_struct(kind):
        return found
    return pa.struct([*found, *map(added, (field for field in other if field_of(kind, field.name) is None))])


def stored_type(kind: pa.DataType, column: str) -> pa.DataType:
    if (leaf := kind_of(kind)) is not UNKNOWN:
        return leaf.stored(kind, column)
    if pt.is_dictionary(kind):
        return stored_type(kind.value_type, column)
    kind = as_in_files(kind)
    if is_list(kind):
        return pa.list_(pa.field("element", stored_type(kind.value_type, column)))
    if pt.is_struct(kind):
        stored = [stored_type(field.type, f"{column}.{field.name}") for field in kind]
        return pa.struct([*map(pa.field, stored_fields([field.name for field in kind], column), stored)])
    if pt.is_map(kind):
        return pa.map_(pa.string(), pa.field("value", stored_type(kind.item_type, column)))
    return UNKNOWN.stored(kind, column)


# --- join ---------------------------------------------------------------------------------------------------------


def join_types(left: pa.DataType, right: pa.DataType, column: str) -> pa.DataType:
    """Return the least declared type for values of both; commutative and associative.

    Integers, floats and decimals widen, at every depth, if no value is rounded: rounding would depend on the time of a
    compaction. Structs get the fields of both.
    """
    if left == right and str(left) == str(right):
        return left
    nested = pt.is_nested(left) or pt.is_nested(right)
    joined = _join_nested(left, right, column) if nested else kinds.join(values_of(left), values_of(right))
    if joined is None:
        why = kinds.apart(values_of(left), values_of(right))
        raise SchemaMismatchError(
            f"the column's two types have no common type for all values: {why}. "
            f"column={column} left={left} right={right}"
        )
    return joined


def _join_nested(left: pa.DataType, right: pa.DataType, column: str) -> pa.DataType | None:
    if is_list(left) and is_list(right):
        return pa.list_(pa.field("element", join_types(left.value_type, right.value_type, f"{column}.element")))
    if pt.is_map(left) and pt.is_map(right):
        key = left.key_type
        if key != right.key_type:
            if not _TEXTS.issuperset((key, right.key_type)):
                return None
            key = pa.string()
        return pa.map_(key, pa.field("value", join_types(left.item_type, right.item_type, f"{column}.value")))
    return combined(left, right, lambda name, mine, its: join_types(mine, its, f"{column}.{name}"))


# --- JSON ---------------------------------------------------------------------------------------------------------

TypeJson = str | list["TypeJson | int"]
"""Scalars by name, nested types as `[kind, ...]`."""


def type_to_json(kind: pa.DataType) -> TypeJson:
    if (leaf := kind_of(kind)) is not UNKNOWN:
        return leaf.spelled(kind)
    if pt.is_dictionary(kind):
        return ["dictionary", type_to_json(kind.value_type), int(kind.ordered)]
    if pt.is_struct(kind):
        return ["struct", *(part for field in kind for part in (field.name, type_to_json(field.type)))]
    if pt.is_map(kind):
        return ["map", type_to_json(kind.key_type), type_to_json(kind.item_type), int(kind.keys_sorted)]
    item = [kind.value_field.name, type_to_json(kind.value_type)]
    if pt.is_fixed_size_list(kind):
        return ["fixed_size_list", *item, kind.list_size]
    assert pt.is_list(kind) or pt.is_large_list(kind), f"not a declared type: {kind}"
    return ["list" if pt.is_list(kind) else "large_list", *item]


def type_from_json(value: TypeJson | int) -> pa.DataType:
    """Parse `type_to_json` output; raise `ValueError` for other values."""
    match value:
        case str():
            return _scalar_from_text(value)
        case ["dictionary", inner, ordered]:
            return pa.dictionary(pa.int32(), type_from_json(inner), ordered=bool(ordered))
        case ["struct", *parts]:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            return pa.struct([pa.field(str(name), type_from_json(kind)) for name, kind in pairs])
        case ["map", key, item, keys_sorted]:
            inner_field = pa.field("value", type_from_json(item))
            return pa.map_(type_from_json(key), inner_field, keys_sorted=bool(keys_sorted))
        case ["fixed_size_list", name, kind, int(size)]:
            return pa.list_(pa.field(str(name), type_from_json(kind)), size)
        case [("list" | "large_list") as which, name, kind]:
            item_field = pa.field(str(name), type_from_json(kind))
            return pa.list_(item_field) if which == "list" else pa.large_list(item_field)
    raise ValueError(f"no such type: {value!r}")


def _scalar_from_text(text: str) -> pa.DataType:
    with suppress(ValueError, TypeError):
        kind = type_named(text)
        if kind_of(kind) is not UNKNOWN and kind_of(kind).spelled(kind) == text:
            return kind
    raise ValueError(f"no such type: {text!r}")

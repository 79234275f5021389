"""Map column types between user schemas, Parquet files and Avro, and join the types of two writers.

    declared (Arrow)  --stored_type-->  stored (Arrow, in Parquet)  --to_avro-->  Avro (table schema)
                      <--------------- reads return the declared types, which are kept

`docs/types.md` lists all types; its test reads the page.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns.fields import check_fields, is_stored_name, stored_fields
from crdt_mor.errors import InvalidInputError, SchemaMismatchError

TIMESTAMP: Final = pa.timestamp("us", "UTC")
TIME: Final = pa.time64("us")
"""The declared type of a time of day, stored as microseconds since midnight."""

_OFFSET: Final = re.compile(r"[+-]([01][0-9]|2[0-3]):[0-5][0-9]")
"""A time zone given as an offset from UTC."""

_STRINGS = {pa.string(), pa.large_string(), pa.string_view()}
_BINARIES = {pa.binary(), pa.large_binary(), pa.binary_view()}
_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
_SCALARS: dict[pa.DataType, pa.DataType] = {
    pa.bool_(): pa.bool_(),
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()), pa.int32()),
    **dict.fromkeys((pa.uint32(), pa.int64()), pa.int64()),
    pa.uint64(): pa.decimal128(20, 0),
    **dict.fromkeys((pa.float16(), pa.float32()), pa.float32()),
    pa.float64(): pa.float64(),
    **dict.fromkeys(_STRINGS, pa.string()),
    **dict.fromkeys(_BINARIES, pa.binary()),
    **dict.fromkeys((pa.date32(), pa.date64()), pa.date32()),
    **dict.fromkeys((pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")), pa.int64()),
}
# By size: the first one that holds two integer types is their least upper bound.
_INTEGERS: dict[pa.DataType, tuple[int, int]] = {
    pa.uint8(): (0, 2**8), pa.int8(): (-(2**7), 2**7), pa.uint16(): (0, 2**16), pa.int16(): (-(2**15), 2**15),
    pa.uint32(): (0, 2**32), pa.int32(): (-(2**31), 2**31), pa.int64(): (-(2**63), 2**63),
}  # fmt: skip


def is_list(kind: pa.DataType) -> bool:
    """Return True for any of Arrow's five list types."""
    return bool(
        pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind)
        or pt.is_list_view(kind) or pt.is_large_list_view(kind)
    )  # fmt: skip


def list_like(kind: pa.DataType, item: pa.Field) -> pa.DataType:
    if pt.is_fixed_size_list(kind):
        return pa.list_(item, kind.list_size)
    return pa.large_list(item) if pt.is_large_list(kind) or pt.is_large_list_view(kind) else pa.list_(item)


def field_of(kind: pa.StructType, name: str) -> pa.Field | None:
    index = kind.get_field_index(name)
    return None if index < 0 else kind.field(index)


def declared_type(kind: pa.DataType, column: str) -> pa.DataType:
    """Return the type that reads will return for `kind`; raise `SchemaMismatchError` if it cannot be stored.

    Nested fields become nullable, as in Parquet files of several writers. List views become lists; dictionaries get
    32-bit indices, because they grow with the table. Inside nested types, dictionaries become their values and times of
    day microseconds. Arrow's JSON becomes text.
    """
    if isinstance(kind, pa.JsonType):
        return kind.storage_type
    if pt.is_dictionary(kind):
        value = declared_type(kind.value_type, column)
        if pt.is_nested(value) or pt.is_dictionary(value):
            raise _unsupported(kind, column, "a dictionary of scalars can be stored")
        return pa.dictionary(pa.int32(), value, ordered=kind.ordered)
    if is_list(kind):
        item = pa.field(kind.value_field.name, _inner(kind.value_type, column))
        if pt.is_fixed_size_list(kind):
            return pa.list_(item, kind.list_size)
        wide = pt.is_large_list(kind) or pt.is_large_list_view(kind)
        return pa.large_list(item) if wide else pa.list_(item)
    if pt.is_struct(kind):
        return _declared_struct(kind, column)
    if pt.is_map(kind):
        if kind.key_type not in _STRINGS:
            raise _unsupported(kind, column, "Avro maps have string keys: use a list of structs")
        return pa.map_(kind.key_type, pa.field("value", _inner(kind.item_type, column)), keys_sorted=kind.keys_sorted)
    if pt.is_timestamp(kind) and kind.tz is not None:
        _require_zone(kind.tz, column)
    stored_type(kind, column)
    return kind


def _require_zone(name: str, column: str) -> None:
    """Refuse a time zone that does not exist: readers could not show the column's values."""
    if not (name == "UTC" or _OFFSET.fullmatch(name) or _has_zone(name)) and _has_zone("UTC"):
        raise InvalidInputError(
            f"no such time zone: take a name like Europe/Berlin or UTC, or +02:00. column={column} zone={name!r}"
        )


def _has_zone(name: str) -> bool:
    """Return True if this machine's time zone database contains the name; some machines lack a database."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return True


def _inner(kind: pa.DataType, column: str) -> pa.DataType:
    declared = declared_type(kind, column)
    if pt.is_time(declared):
        return TIME
    return declared.value_type if pt.is_dictionary(declared) else declared


def _declared_struct(kind: pa.StructType, column: str) -> pa.DataType:
    names = [field.name for field in kind]
    if not names:
        raise _unsupported(kind, column, "a struct needs at least one field")
    check_fields(names, column)
    return pa.struct([pa.field(field.name, _inner(field.type, f"{column}.{field.name}")) for field in kind])


def check_name(name: str, column: str) -> None:
    if not is_stored_name(name):
        raise InvalidInputError(
            f"rename the column: Avro, Hudi's schema format, allows ASCII letters, digits and _. column={column!r}"
        )


def without_views(kind: pa.DataType) -> pa.DataType:
    """Replace text and binary views, at every depth: libraries such as polars use them, but no user declares them."""
    return with_leaves(kind, lambda leaf: _VIEWS.get(leaf, leaf))


def with_leaves(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Apply `change` to each type without inner types."""
    if pt.is_dictionary(kind):
        return pa.dictionary(kind.index_type, with_leaves(kind.value_type, change), ordered=kind.ordered)
    if pt.is_struct(kind):
        return pa.struct([field.with_type(with_leaves(field.type, change)) for field in kind])
    if pt.is_map(kind):
        item = kind.item_field.with_type(with_leaves(kind.item_type, change))
        return pa.map_(with_leaves(kind.key_type, change), item, keys_sorted=kind.keys_sorted)
    if is_list(kind):
        item = kind.value_field.with_type(with_leaves(kind.value_type, change))
        if pt.is_fixed_size_list(kind):
            return pa.list_(item, kind.list_size)
        return pa.large_list(item) if pt.is_large_list(kind) else pa.list_(item)
    return change(kind)


def stored_type(kind: pa.DataType, column: str) -> pa.DataType:
    """Return the file type of a declared type."""
    if (scalar := _SCALARS.get(kind)) is not None:
        return scalar
    if pt.is_fixed_size_binary(kind):
        return pa.binary()
    if pt.is_timestamp(kind):
        return TIMESTAMP
    if pt.is_decimal(kind):
        return _stored_decimal(kind, column)
    if pt.is_dictionary(kind):
        return stored_type(kind.value_type, column)
    if is_list(kind):
        return pa.list_(pa.field("element", stored_type(kind.value_type, column)))
    if pt.is_struct(kind):
        kinds = [stored_type(field.type, f"{column}.{field.name}") for field in kind]
        names = stored_fields([field.name for field in kind], column)
        return pa.struct([*map(pa.field, names, kinds)])
    if pt.is_map(kind):
        return pa.map_(pa.string(), pa.field("value", stored_type(kind.item_type, column)))
    raise _unsupported(kind, column, _advice(kind))


def _stored_decimal(kind: pa.DataType, column: str) -> pa.DataType:
    if kind.precision > 38:
        raise _unsupported(kind, column, "a decimal has at most 38 digits")
    if not 0 <= kind.scale <= kind.precision:
        raise _unsupported(kind, column, "the scale of a decimal lies between 0 and its precision")
    return pa.decimal128(kind.precision, kind.scale)


def _advice(kind: pa.DataType) -> str:
    if isinstance(kind, pa.UuidType):
        return f"cast to text, or to bytes, {kind.storage_type}"
    if isinstance(kind, pa.BaseExtensionType):
        return f"cast to its storage type, {kind.storage_type}"
    if pt.is_duration(kind):
        return "cast to int64, and note the unit in the column's name or comment"
    if pt.is_null(kind):
        return "give the column a type"
    return "cast to a type in docs/types.md"


def advice_between(kind: pa.DataType, declared: pa.DataType) -> str:
    """Advise how to convert data to a column's type."""
    if pt.is_timestamp(kind) and pt.is_timestamp(declared):
        return "add the time zone of the data" if kind.tz is None else "drop the data's time zone, as in the column"
    if pt.is_time(declared) and not pt.is_nested(kind):
        return (
            "convert it to times of day, pa.time64, datetime.time or in SQL TIME '10:30:00', because the unit of a "
            "number is unknown; from Spark, a bigint of microseconds since midnight is accepted"
        )
    if isinstance(kind, pa.UuidType):
        return f"cast to text, or to bytes, {kind.storage_type}"
    if pt.is_duration(kind) or pt.is_time(kind):
        return "cast to an integer, in the column's unit"
    return "cast to the column's type"


def _unsupported(kind: pa.DataType, column: str, advice: str) -> SchemaMismatchError:
    return SchemaMismatchError(f"Hudi tables cannot store this type: {advice}. column={column} type={kind}")


# --- join ---------------------------------------------------------------------------------------------------------


def join_types(left: pa.DataType, right: pa.DataType, column: str) -> pa.DataType:
    """Return the least declared type for values of both; commutative and associative.

    Only int -> long, float -> double and int -> double widen, at every depth. Long with float is refused: rounding
    would depend on the time of a compaction. Structs get the fields of both.
    """
    if left == right and str(left) == str(right):
        return left
    nested = pt.is_nested(left) or pt.is_nested(right)
    joined = _join_nested(left, right, column) if nested else _join(left, right)
    if joined is None:
        raise SchemaMismatchError(
            "the column's two types have no common type for all values: cast one side. "
            f"column={column} left={left} right={right}"
        )
    return joined


def _join(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    left = left.value_type if pt.is_dictionary(left) else left
    right = right.value_type if pt.is_dictionary(right) else right
    if left in _INTEGERS and right in _INTEGERS:
        low = min(_INTEGERS[left][0], _INTEGERS[right][0])
        high = max(_INTEGERS[left][1], _INTEGERS[right][1])
        return next(kind for kind, (least, end) in _INTEGERS.items() if least <= low and high <= end)
    if pt.is_timestamp(left) and pt.is_timestamp(right):
        if (left.tz is None) != (right.tz is None):
            return None  # the zone of a naive time would be a guess
        return left if left == right else pa.timestamp("us") if left.tz is None else TIMESTAMP
    if pt.is_time(left) or pt.is_time(right):
        both = pt.is_time(left) and pt.is_time(right)
        return left if left == right else TIME if both else None
    stored = {stored_type(left, ""), stored_type(right, "")}
    if len(stored) == 1:
        return left if left == right else stored.pop()
    if stored <= {pa.int32(), pa.float32(), pa.float64()}:
        return pa.float64()
    return None


def _join_nested(left: pa.DataType, right: pa.DataType, column: str) -> pa.DataType | None:
    if is_list(left) and is_list(right):
        return pa.list_(pa.field("element", join_types(left.value_type, right.value_type, f"{column}.element")))
    if pt.is_map(left) and pt.is_map(right):
        key = left.key_type if left.key_type == right.key_type else pa.string()
        return pa.map_(key, pa.field("value", join_types(left.item_type, right.item_type, f"{column}.value")))
    if not (pt.is_struct(left) and pt.is_struct(right)):
        return None
    fields = [_join_fields(field, field_of(right, field.name), column) for field in left]
    return pa.struct([*fields, *(field for field in right if field_of(left, field.name) is None)])


def _join_fields(left: pa.Field, right: pa.Field | None, column: str) -> pa.Field:
    kind = left.type if right is None else join_types(left.type, right.type, f"{column}.{left.name}")
    return pa.field(left.name, kind)


# --- JSON ---------------------------------------------------------------------------------------------------------

TypeJson = str | list["TypeJson | int"]
"""Scalars by name, nested types as `[kind, ...]`."""

_NAMED: dict[str, pa.DataType] = {
    "bool": pa.bool_(), "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(),
    "uint8": pa.uint8(), "uint16": pa.uint16(), "uint32": pa.uint32(), "uint64": pa.uint64(),
    "float16": pa.float16(), "float32": pa.float32(), "float64": pa.float64(),
    "string": pa.string(), "large_string": pa.large_string(), "string_view": pa.string_view(),
    "binary": pa.binary(), "large_binary": pa.large_binary(), "binary_view": pa.binary_view(),
    "date32": pa.date32(), "date64": pa.date64(),
    "time32[s]": pa.time32("s"), "time32[ms]": pa.time32("ms"), "time64[us]": pa.time64("us"),
    "time64[ns]": pa.time64("ns"),
}  # fmt: skip
_NAMES = {kind: name for name, kind in _NAMED.items()}
_DECIMALS = {
    "decimal32": pa.decimal32, "decimal64": pa.decimal64, "decimal128": pa.decimal128, "decimal256": pa.decimal256,
}  # fmt: skip
_PARAMETERS = re.compile(r"(\w+)[\[(]([^\])]*)[\])]\Z")


def type_to_json(kind: pa.DataType) -> TypeJson:
    """Return a declared type as JSON for `type_from_json`."""
    if (name := _NAMES.get(kind)) is not None:
        return name
    if pt.is_timestamp(kind):
        return f"timestamp[{kind.unit}, {kind.tz}]" if kind.tz else f"timestamp[{kind.unit}]"
    if pt.is_decimal(kind):
        return f"decimal{kind.bit_width}({kind.precision}, {kind.scale})"
    if pt.is_fixed_size_binary(kind):
        return f"fixed_size_binary[{kind.byte_width}]"
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


def type_from_json(value: TypeJson) -> pa.DataType:
    """Parse `type_to_json` output; raise `ValueError` for other values."""
    match value:
        case str():
            return _scalar_from_text(value)
        case ["dictionary", inner, ordered]:
            return pa.dictionary(pa.int32(), type_from_json(_type(inner)), ordered=bool(ordered))
        case ["struct", *parts]:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            return pa.struct([pa.field(str(name), type_from_json(_type(kind))) for name, kind in pairs])
        case ["map", key, item, keys_sorted]:
            inner_field = pa.field("value", type_from_json(_type(item)))
            return pa.map_(type_from_json(_type(key)), inner_field, keys_sorted=bool(keys_sorted))
        case ["fixed_size_list", name, kind, int(size)]:
            return pa.list_(pa.field(str(name), type_from_json(_type(kind))), size)
        case [("list" | "large_list") as which, name, kind]:
            item_field = pa.field(str(name), type_from_json(_type(kind)))
            return pa.list_(item_field) if which == "list" else pa.large_list(item_field)
    raise ValueError(f"no such type: {value!r}")


def _type(value: TypeJson | int) -> TypeJson:
    if isinstance(value, int):
        raise ValueError(f"no such type: {value!r}")
    return value


def _scalar_from_text(text: str) -> pa.DataType:
    if (named := _NAMED.get(text)) is not None:
        return named
    if (match := _PARAMETERS.match(text)) is not None:
        name, parameters = match[1], match[2].split(", ")
        if name == "timestamp":
            return pa.timestamp(*parameters)
        if name == "fixed_size_binary":
            return pa.binary(int(parameters[0]))
        if name in _DECIMALS and len(parameters) == 2:
            return _DECIMALS[name](int(parameters[0]), int(parameters[1]))
    raise ValueError(f"no such type: {text!r}")

"""Convert values between batch, file and declared types without changing any value.

Arrow's safe casts check the values. If a cast fails, the first bad row is found by halving, for the error.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns import decimals, kinds
from crdt_mor.columns.fields import stored_field
from crdt_mor.columns.kinds import kind_of
from crdt_mor.columns.shown_fields import called, with_shown_fields
from crdt_mor.columns.types import entries_of, has_other_parts, inner_pairs, stored_type, values_of, without_views
from crdt_mor.errors import InvalidInputError, SchemaMismatchError
from crdt_mor.ground.late_imports import pc

_DIGITS_OF_INT64 = 19
_OF_CASTS = "whole number of days"
"""Arrow's message for a date with a time of day; the cast reports its row."""


class _InexactError(pa.ArrowInvalid):  # type: ignore[misc]
    """A value that would change, with its field's path."""

    def __init__(self, path: str, kind: pa.DataType, declared: pa.DataType, why: str) -> None:
        super().__init__(why)
        self.path, self.kind, self.declared, self.why = path, kind, declared, why


def require_sound(data: pa.ChunkedArray, column: str) -> None:
    """Raise `InvalidInputError` for invalid data that Arrow does not check, such as text that is not UTF-8.

    Otherwise a commit with such a column could not be read.
    """
    try:
        data.validate(full=True)
    except pa.ArrowInvalid as error:
        if _OF_CASTS in str(error):
            return
        if unsound := kind_of(data.type).unsound:
            raise InvalidInputError(f"{unsound}: {error}. column={column}") from error
        raise InvalidInputError(
            f"the column is damaged: read it again, or declare it binary if its text is not UTF-8. column={column} "
            f"cause={error}"
        ) from error


def require_bounds(data: pa.ChunkedArray) -> pa.ChunkedArray:
    """Raise `pyarrow.ArrowInvalid` for values outside of their type, such as a time of day of 25 hours."""
    if _is_bounded(data.type):
        data.validate(full=True)
    return data


@lru_cache(maxsize=1024)
def _is_bounded(kind: pa.DataType) -> bool:
    inner = values_of(kind)
    return bool(kind_of(inner).unsound) or any(_is_bounded(inner.field(i).type) for i in range(inner.num_fields))


def to_stored(data: pa.ChunkedArray, column: pa.Field, target: pa.DataType) -> pa.ChunkedArray:
    """Convert a batch's column to the stored type of `column`, `target`; errors name field, row and value."""
    plain = plain_values(data)
    if not column.nullable and plain.null_count:
        row = pc.index(plain.is_null(), True).as_py()
        raise SchemaMismatchError(f"the column is declared without nulls: fill them in. column={column.name} row={row}")
    if _is_stored(data.type, column.type, target):
        return data if _same(data.type, target) else data.cast(target)  # texts, or names inside lists
    if pt.is_nested(column.type):
        _refuse_unknown_fields(data.type, column.type, column.name)
    if not meets(data.type, column.type):
        raise _mismatch(data.type, column)
    try:
        return _stored(plain, column.type, column.name, target)
    except _InexactError as error:
        row = _first_failure(plain, column, target)
        advice = _of_int96(error.kind) or _of_wider(error.kind, error.declared)
        raise SchemaMismatchError(
            f"the column cannot hold this value unchanged{error.why}: cast or round it yourself{advice}. "
            f"column={error.path} row={row} value={_show(plain, row)} type={error.kind} column_type={error.declared}"
        ) from error


def _of_wider(kind: pa.DataType, declared: pa.DataType) -> str:
    """Advise to widen the column, if a type holds all values of both."""
    kind, declared = values_of(kind), values_of(declared)
    plain = not (pt.is_nested(kind) or pt.is_nested(declared))
    grows = plain and kinds.join(kind, declared) is not None and not kinds.fits(kind, declared)
    advice = ', or widen the column with alter(widen=) or schema_mode="merge", unless it is the ordering column'
    return advice if grows else ""


def _of_int96(kind: pa.DataType) -> str:
    """Advise how to read INT96 times: as nanoseconds, times of far years are wrong."""
    if not (pt.is_timestamp(kind) and kind.unit == "ns"):
        return ""
    return "; INT96 times of Parquet files, as of Spark, do not fit nanoseconds: read them with mor.read_files"


def to_declared(data: pa.ChunkedArray, declared: pa.DataType) -> pa.ChunkedArray:
    """Convert a stored column (or a string view of it) to its declared type and field names."""
    if pt.is_nested(declared):
        if has_other_parts(declared):
            return pa.chunked_array([_rebuilt(chunk, declared) for chunk in data.chunks], declared)
        data = called(data, with_shown_fields(data.type, declared))
    if _same(data.type, declared):
        return data
    if pt.is_fixed_size_list(declared):  # for nulls alone, without memory for items, pyarrow 26's cast crashes
        chunks = [pa.nulls(len(c), declared) if c.null_count == len(c) else c.cast(declared) for c in data.chunks]
        return pa.chunked_array(chunks, declared)
    if not pt.is_dictionary(declared):
        return kind_of(declared).shown(data, declared)
    encoded = _one(plain_values(data).cast(stored_type(declared, ""))).dictionary_encode()
    values = encoded.dictionary.cast(declared.value_type)
    return pa.chunked_array([pa.DictionaryArray.from_arrays(encoded.indices, values, ordered=declared.ordered)])


def _rebuilt(data: pa.Array, declared: pa.DataType) -> pa.Array:
    """Convert nested values part by part, where Arrow has no cast."""
    if not has_other_parts(declared):
        return _one(to_declared(pa.chunked_array([data]), declared))
    mask = data.is_null()
    if pt.is_struct(declared):
        parts = dict(zip((field.name for field in data.type), data.flatten(), strict=True))
        absent = pa.nulls(len(data))
        given = [parts.get(stored_field(field.name), parts.get(field.name, absent)) for field in declared]
        made = [_rebuilt(part, field.type) for part, field in zip(given, declared, strict=True)]
        return _struct(made, declared, mask)
    lists = data.cast(entries_of(data.type)) if pt.is_map(data.type) else data
    offsets, values = offsets_of(lists), lists.flatten()
    if pt.is_map(declared):
        keys, items = values.flatten()
        keys, items = _rebuilt(keys, declared.key_type), _rebuilt(items, declared.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, declared, mask=mask)
    item = _rebuilt(values, declared.value_type)
    made_list = pa.ListArray.from_arrays(offsets, item, pa.list_(declared.value_field), mask=mask)
    return made_list if pt.is_list(declared) else made_list.cast(declared)


def _struct(fields: list[pa.Array], kind: pa.StructType, mask: pa.Array) -> pa.Array:
    if fields:
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=mask)
    return pa.Array.from_buffers(kind, len(mask), [pc.invert(mask).buffers()[1]])


def _one(data: pa.ChunkedArray) -> pa.Array:
    found = data.combine_chunks()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


# --- convertible types ------------------------------------------------------------------------------------------------


def _refuse_unknown_fields(kind: pa.DataType, declared: pa.DataType, path: str) -> None:
    if pt.is_struct(kind) and pt.is_struct(declared):
        _require_fields(kind, declared, path)
    for name, inner, known in inner_pairs(kind, declared) or ():
        _refuse_unknown_fields(inner, known, f"{path}.{name}")


def _require_fields(kind: pa.StructType, declared: pa.StructType, path: str) -> None:
    names = [field.name for field in kind]
    if len(set(names)) < len(names):
        raise InvalidInputError(f"a struct repeats a field name: rename a field. column={path} type={kind}")
    known = {field.name.lower(): field.name for field in declared}
    exact = {*known.values()}
    unknown = [field for field in kind if field.name not in exact]
    if not unknown:
        return
    misspelt = {field.name: known[field.name.lower()] for field in unknown if field.name.lower() in known}
    if misspelt:
        advice = f"field names differ from the column's only in case: rename them. fields={misspelt}"
    elif any(pt.is_null(field.type) for field in unknown):
        advice = "the rows have a field of type null that the column lacks: drop the field, or give it a type."
    else:
        advice = 'no such fields: drop them, or add them with schema_mode="merge".'
    raise SchemaMismatchError(
        f"{advice} column={path} unknown={[field.name for field in unknown]} type={kind} column_type={declared}"
    )


def _mismatch(kind: pa.DataType, column: pa.Field) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"the data is of another type than the column: {kind_of(column.type).advice(kind, column.type)}. "
        f"column={column.name} type={kind} column_type={column.type}"
    )


def meets(kind: pa.DataType, declared: pa.DataType) -> bool:
    """Return True if values of `kind` may convert to `declared`; values are checked later."""
    kind, declared = values_of(kind), values_of(declared)
    if pt.is_null(kind):
        return True
    return _nested_meets(kind, declared) if pt.is_nested(declared) else kind_of(declared).accepts(kind, declared)


def _nested_meets(kind: pa.DataType, declared: pa.DataType) -> bool:
    pairs = inner_pairs(kind, declared)
    if pairs is None or (pt.is_map(kind) and not meets(kind.key_type, declared.key_type)):
        return False
    return all(known is not None and not _is_view(inner) and meets(inner, known) for _, inner, known in pairs)


def _is_view(kind: pa.DataType) -> bool:
    return bool(pt.is_list_view(kind) or pt.is_large_list_view(kind))


# --- casting ----------------------------------------------------------------------------------------------------------


def _same(left: pa.DataType, right: pa.DataType) -> bool:
    # Equality alone does not look at names inside of lists.
    return bool(left == right and (left.num_fields == 0 or str(left) == str(right)))


def plain_values(data: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decode dictionaries, JSON and list views, which Arrow casts poorly."""
    if pt.is_dictionary(data.type):
        kind = data.type.value_type
        kind = without_views(kind)  # Arrow lacks `take` for views
        return pa.chunked_array([chunk.dictionary.cast(kind).take(chunk.indices) for chunk in data.chunks], kind)
    if isinstance(data.type, pa.JsonType):
        return data.cast(data.type.storage_type)
    if pt.is_list_view(data.type) or pt.is_large_list_view(data.type):
        item = data.type.value_field
        kind = pa.list_(item) if pt.is_list_view(data.type) else pa.large_list(item)
        return pa.chunked_array([_list_of_view(chunk, kind) for chunk in data.chunks], kind)
    return data


def _list_of_view(view: pa.Array, kind: pa.DataType) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(view), 0)
    offsets = pa.concat_arrays([pa.array([0], lengths.type), pc.cumulative_sum(lengths)])
    build = pa.ListArray if pt.is_list(kind) else pa.LargeListArray
    return build.from_arrays(offsets, view.flatten(), type=kind, mask=view.is_null())


# --- into stored types, at every depth --------------------------------------------------------------------------------


def _is_stored(kind: pa.DataType, declared: pa.DataType, target: pa.DataType) -> bool:
    """Return True if values of `kind` need no check for the declared column with stored type `target`.

    Text views, as in polars, are texts.
    """
    if kind != target and not (pt.is_string_view(kind) and pt.is_string(target)):
        return False
    plain = values_of(declared)
    takes_all = declared == target or kind_of(plain).takes_all(plain)
    return takes_all and not (pt.is_nested(kind) and _has_map(kind))


def _has_map(kind: pa.DataType) -> bool:
    return bool(pt.is_map(kind) or any(_has_map(kind.field(index).type) for index in range(kind.num_fields)))


def _stored(data: pa.ChunkedArray, declared: pa.DataType, path: str, target: pa.DataType) -> pa.ChunkedArray:
    """Convert plain values to the stored type of `declared`, `target`; raise `_InexactError` if one would change."""
    if _is_stored(data.type, declared, target):
        return data.cast(target)
    if pt.is_nested(declared) and pt.is_nested(data.type):
        return pa.chunked_array([_stored_nested(chunk, declared, path, target) for chunk in data.chunks], target)
    try:
        plain, stored = values_of(declared), data
        for step in kind_of(plain).steps(data.type, plain, target):
            stored = _cast(stored, step)
        kind_of(plain).require_whole(stored)
        return stored
    except (pa.ArrowInvalid, OverflowError) as error:
        raise _InexactError(path, data.type, declared, "") from error
    except pa.ArrowNotImplementedError as error:
        raise _mismatch(data.type, pa.field(path, declared)) from error


def _stored_nested(data: pa.Array, declared: pa.DataType, path: str, target: pa.DataType) -> pa.Array:
    """Convert nested values field by field, by name; missing fields are null.

    Values below nulls, or outside a slice, are skipped.
    """

    def inner(values: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
        plain = plain_values(pa.chunked_array([values]))
        return _one(_stored(plain, kind, f"{path}.{name}", stored_type(kind, f"{path}.{name}")))

    mask = data.is_null()
    if pt.is_struct(declared):
        given = dict(zip((field.name for field in data.type), data.flatten(), strict=True))
        fields = [inner(given.get(f.name, pa.nulls(len(data))), f.type, f.name) for f in declared]
        return _struct(fields or [pa.nulls(len(data), pa.bool_())], target, mask)
    lists = data.cast(entries_of(data.type)) if pt.is_map(declared) else data
    offsets, values = offsets_of(lists), lists.flatten()
    if pt.is_map(declared):
        keys, items = values.flatten()
        keys = inner(keys, declared.key_type, "key")
        if keys.null_count or not _all_differ(keys, offsets):
            raise _InexactError(path, data.type, declared, ", a map with one key twice or a null for a key")
        items = inner(items, declared.item_type, "value")
        if pt.is_map(target):
            return pa.MapArray.from_arrays(offsets, keys, items, target, mask=mask)
        entries = pa.StructArray.from_arrays([keys, items], fields=list(target.value_type))
        return pa.ListArray.from_arrays(offsets, entries, target, mask=mask)
    if pt.is_fixed_size_list(declared):
        fitting = pc.fill_null(pc.equal(pc.list_value_length(lists), declared.list_size), True)
        if not pc.all(fitting, min_count=0).as_py():
            raise _InexactError(path, data.type, declared, ", a list of another length")
    return pa.ListArray.from_arrays(offsets, inner(values, declared.value_type, "element"), target, mask=mask)


def offsets_of(lists: pa.Array) -> pa.Array:
    if lists.null_count or pt.is_fixed_size_list(lists.type):
        lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64())
        offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    else:
        offsets = pc.subtract(lists.offsets, lists.offsets[0])
    return offsets.cast(pa.int32())


def _all_differ(keys: pa.Array, offsets: pa.Array) -> bool:
    """Return True if no map repeats a key: other engines would drop one of the entries."""
    codes = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    ends = offsets.to_numpy()
    maps = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    entries = np.sort((maps << 32) | codes, kind="stable")
    return not bool((entries[1:] == entries[:-1]).any())


def _cast(data: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    if _same(data.type, target):
        return data
    if pt.is_integer(data.type) and pt.is_decimal(target):
        # Arrow wants room for every integer first, then the decimal may shrink.
        data = data.cast(pa.decimal128(min(38, _DIGITS_OF_INT64 + 1 + target.scale), target.scale))
    if pt.is_decimal(data.type) and pt.is_floating(target) and data.null_count < len(data):
        raise pa.ArrowInvalid("a decimal is not exact as a float")
    result = decimals.cast(data, target) if pt.is_decimal(data.type) else data.cast(target)
    if pt.is_integer(data.type) and pt.is_float16(target):
        exact = pc.equal(result.cast(pa.float64()), data.cast(pa.float64(), safe=False))
        if not pc.all(exact, skip_nulls=True, min_count=0).as_py():
            raise pa.ArrowInvalid("integer would be rounded")
    if pt.is_floating(data.type) and pt.is_floating(target) and data.type.bit_width > target.bit_width:
        exact = pc.or_(pc.equal(result.cast(data.type), data), pc.is_nan(data))
        if not pc.all(exact, skip_nulls=True, min_count=0).as_py():
            raise pa.ArrowInvalid("float would be rounded")
    return result


def _first_failure(data: pa.ChunkedArray, column: pa.Field, target: pa.DataType) -> int:
    good, bad = 0, len(data)
    while good + 1 < bad:
        middle = (good + bad) // 2
        try:
            _stored(data.slice(good, middle - good), column.type, column.name, target)
            good = middle
        except _InexactError:
            bad = middle
    return good


def _show(data: pa.ChunkedArray, row: int) -> str:
    try:
        value = data[row]
        text = (
            str(value.cast(pa.string())) if pt.is_time(data.type) else repr(value.as_py())
        )  # Python's lack nanoseconds
    except (ValueError, OverflowError):  # a time outside of Python's own range, or with nanoseconds
        if pt.is_nested(data.type):
            text = " ".join(str(data.slice(row, 1)).split())
        else:
            text = str(data.slice(row, 1).cast(pa.int64())[0].as_py())
    return text if len(text) <= 80 else text[:77] + "..."

"""Moving values between the types of a batch, of files and of a declared column, without changing one of them.

Arrow's safe casts do the checking; where one refuses, the first bad row is found by halving, so that the error can
name it. Knows columns, not tables.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from crdt_mor.errors import SchemaMismatchError
from crdt_mor.model.types import is_list, stored_type

_DIGITS_OF_INT64 = 19


def to_stored(data: pa.ChunkedArray, column: pa.Field) -> pa.ChunkedArray:
    """A column of a batch in the stored type of the declared `column`; the error names column, row and value."""
    if not column.nullable and data.null_count:
        row = pc.index(data.is_null(), True).as_py()
        raise SchemaMismatchError(f"the column is declared without nulls: fill them in. column={column.name} row={row}")
    target = stored_type(column.type, column.name)
    if data.type == target and str(data.type) == str(target):
        return data
    _refuse_other_kind(data.type, column)
    try:
        return _cast(data, target)
    except (pa.ArrowInvalid, OverflowError) as error:
        row = _first_failure(data, target)
        raise SchemaMismatchError(
            "the column cannot hold this value unchanged: cast or round it yourself. "
            f"column={column.name} row={row} value={_show(data, row)} type={data.type} column_type={column.type}"
        ) from error
    except pa.ArrowNotImplementedError as error:
        raise _mismatch(data.type, column) from error


def to_declared(data: pa.ChunkedArray, declared: pa.DataType) -> pa.ChunkedArray:
    """A stored column (or a string view of one) in its declared type."""
    if data.type == declared and str(data.type) == str(declared):
        return data
    if not pt.is_dictionary(declared):
        return data.cast(declared)
    encoded = data.cast(stored_type(declared, "")).combine_chunks()
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    encoded = encoded.dictionary_encode()
    values = encoded.dictionary.cast(declared.value_type)
    return pa.chunked_array([pa.DictionaryArray.from_arrays(encoded.indices, values, ordered=declared.ordered)])


def fits(batch: pa.DataType, declared: pa.DataType) -> bool:
    """Whether every value of the type `batch` has a place in the declared type, so that the column need not grow."""
    ours, theirs = stored_type(declared, ""), stored_type(batch, "")
    if ours == theirs:
        return batch == declared or not (pt.is_integer(ours) and pt.is_integer(declared)) or _holds(declared, batch)
    wider = {(pa.int32(), pa.int64()), (pa.int32(), pa.float64()), (pa.float32(), pa.float64())}
    return (theirs, ours) in wider


def _holds(declared: pa.DataType, batch: pa.DataType) -> bool:
    signed = pt.is_signed_integer(declared)
    if pt.is_signed_integer(batch):
        return signed and bool(batch.bit_width <= declared.bit_width)
    return bool(batch.bit_width < declared.bit_width or (not signed and batch.bit_width == declared.bit_width))


# --- which kinds of type meet -----------------------------------------------------------------------------------------


def _refuse_other_kind(kind: pa.DataType, column: pa.Field) -> None:
    if not _meets(kind, column.type):
        raise _mismatch(kind, column)


def _mismatch(kind: pa.DataType, column: pa.Field) -> SchemaMismatchError:
    advice = "cast it to the column's type"
    if pt.is_timestamp(kind) and pt.is_timestamp(column.type):
        advice = "say the time zone of the data" if kind.tz is None else "the column has no time zone: drop the data's"
    return SchemaMismatchError(
        f"the data has another type than the column: {advice}. "
        f"column={column.name} type={kind} column_type={column.type}"
    )


def _meets(kind: pa.DataType, declared: pa.DataType) -> bool:
    """Whether values of `kind` may stand in a column of `declared`, value by value checked later."""
    kind = kind.value_type if pt.is_dictionary(kind) else kind
    declared = declared.value_type if pt.is_dictionary(declared) else declared
    if pt.is_null(kind):
        return True
    if pt.is_nested(declared):
        return _nested_meets(kind, declared)
    if pt.is_timestamp(declared):
        return pt.is_timestamp(kind) and (kind.tz is None) == (declared.tz is None)
    if _is_number(declared):
        return _is_number(kind) and not (pt.is_decimal(declared) and pt.is_floating(kind))
    try:
        return bool(stored_type(kind, "") == stored_type(declared, ""))
    except SchemaMismatchError:
        return False


def _nested_meets(kind: pa.DataType, declared: pa.DataType) -> bool:
    if pt.is_map(declared):
        keys_meet = pt.is_map(kind) and _meets(kind.key_type, declared.key_type)
        return keys_meet and _meets(kind.item_type, declared.item_type)
    if pt.is_struct(declared):
        return (
            pt.is_struct(kind)
            and [field.name for field in kind] == [field.name for field in declared]
            and all(_meets(mine.type, theirs.type) for mine, theirs in zip(kind, declared, strict=True))
        )
    return is_list(kind) and _meets(kind.value_type, declared.value_type)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))


# --- casting ----------------------------------------------------------------------------------------------------------


def _cast(data: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """A safe cast, with the two checks that Arrow leaves out."""
    if pt.is_dictionary(data.type):
        data = data.cast(data.type.value_type)
    if pt.is_integer(data.type) and pt.is_decimal(target):
        # Arrow wants room for every integer first, then the decimal may shrink.
        data = data.cast(pa.decimal128(min(38, _DIGITS_OF_INT64 + 1 + target.scale), target.scale))
    if pt.is_decimal(data.type) and pt.is_floating(target):
        raise pa.ArrowInvalid("a decimal is not exact as a float")
    result = data.cast(target)
    if pt.is_floating(data.type) and pt.is_floating(target) and data.type.bit_width > target.bit_width:
        same = pc.or_(pc.equal(result.cast(data.type), data), pc.is_nan(data))
        if not pc.all(same, skip_nulls=True, min_count=0).as_py():
            raise pa.ArrowInvalid("float would be rounded")
    return result


def _first_failure(data: pa.ChunkedArray, target: pa.DataType) -> int:
    """The first row whose value cannot be cast: the shortest prefix that fails ends in it."""
    good, bad = 0, len(data)
    while good + 1 < bad:
        middle = (good + bad) // 2
        try:
            _cast(data.slice(good, middle - good), target)
            good = middle
        except (pa.ArrowInvalid, OverflowError):
            bad = middle
    return good


def _show(data: pa.ChunkedArray, row: int) -> str:
    try:
        text = repr(data[row].as_py())
    except (ValueError, OverflowError):  # outside of Python's own range, nanoseconds say
        text = str(data[row])
    return text if len(text) <= 80 else text[:77] + "..."

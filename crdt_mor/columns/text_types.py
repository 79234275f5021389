"""Types of columns in text files, CSV and JSON, which have no types of their own.

    given     by the user or by the written table; other values are refused
    guessed   from the first file; inexact values are refused

Arrow's readers know some types. Values of other types are read as texts and lists, and `in_type` converts them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns.casts import offsets_of, to_declared
from crdt_mor.columns.kinds import kind_of
from crdt_mor.columns.types import is_list, values_of
from crdt_mor.ground.late_imports import pc

LONG_NUMBER: Final = r"[0-9][0-9.]{15,}|[eE][-+]?[0-9]{3,}"
"""A number with many digits or a large exponent, perhaps inexact as a double."""

_LEADING_ZERO: Final = r"^\s*[-+]?0[0-9xX]"
_NOT_NUMBERS: Final = frozenset({"nan", "inf", "infinity"})
_PLAIN_NUMBER: Final = re.compile(r"[-+]?([0-9]*)\.?([0-9]*)(?:[eE][-+]?[0-9]{1,9})?")
_DIGITS_MAX: Final = 800
"""The digits of the longest double, all written out, and a few."""

_NOT_EXACT: Final = "is not exact as a double"
_EXACT_ADVICE: Final = "give the column's type, schema={'%s': pa.string()} or pa.decimal128(38, 2)"


@dataclass(frozen=True, slots=True)
class ColumnTypes:
    """Types of columns by their names. Columns in neither schema are guessed."""

    given: pa.Schema = field(default_factory=lambda: pa.schema([]))
    guessed: pa.Schema = field(default_factory=lambda: pa.schema([]))

    def all(self) -> dict[str, pa.DataType]:
        return {column.name: column.type for schema in (self.guessed, self.given) for column in schema}

    def is_given(self, name: str) -> bool:
        return bool(self.given.get_field_index(name) >= 0)


# --- how Arrow's readers take a type ----------------------------------------------------------------------------------


def csv_type(kind: pa.DataType) -> pa.DataType:
    """Return the type for Arrow's CSV reader: the type itself, or text."""
    plain = values_of(kind)
    return kind_of(plain).in_csv(plain)


def json_type(kind: pa.DataType) -> pa.DataType:
    """Return the type for Arrow's JSON reader. A map becomes a list of entries, bytes become text."""
    if pt.is_map(kind):
        return pa.list_(pa.struct([("key", json_type(kind.key_type)), ("value", json_type(kind.item_type))]))
    if pt.is_struct(kind):
        return pa.struct([inner.with_type(json_type(inner.type)) for inner in kind])
    if is_list(kind):
        return pa.list_(kind.value_field.with_type(json_type(kind.value_type)))
    plain = values_of(kind)
    return kind_of(plain).in_json(plain)


def in_type(data: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Convert values from Arrow's readers to their column's type; raise `pyarrow.ArrowInvalid` for other values.

    A time names its offset from UTC if its column has a zone, and only then.
    """
    if data.type == kind and str(data.type) == str(kind):
        return data
    if pt.is_nested(kind) and pt.is_nested(data.type):
        return pa.chunked_array([_nested(chunk, kind) for chunk in data.chunks], kind)
    if pt.is_dictionary(kind):
        return to_declared(in_type(data, kind.value_type), kind)
    return kind_of(kind).from_reader(data, kind)


def _nested(data: pa.Array, kind: pa.DataType) -> pa.Array:
    def inner(values: pa.Array, wanted: pa.DataType) -> pa.Array:
        found = in_type(pa.chunked_array([values]), wanted).combine_chunks()
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found

    mask = data.is_null()
    if pt.is_struct(kind):
        if more := [part.name for part in data.type if part.name not in {inner.name for inner in kind}]:
            raise pa.ArrowInvalid(f"the type lacks these fields, so leave them out. fields={more} type={kind}")
        parts = dict(zip((part.name for part in data.type), data.flatten(), strict=True))
        absent = pa.nulls(len(data))
        return pa.StructArray.from_arrays(
            [inner(parts.get(part.name, absent), part.type) for part in kind], fields=list(kind), mask=mask
        )
    offsets, values = offsets_of(data), data.flatten()
    if pt.is_map(kind):
        keys, items = values.flatten()
        if keys.null_count:
            raise pa.ArrowInvalid("a key of a map is null")
        return pa.MapArray.from_arrays(
            offsets, inner(keys, kind.key_type), inner(items, kind.item_type), kind, mask=mask
        )
    item = inner(values, kind.value_type)
    lists = pa.ListArray.from_arrays(offsets, item, pa.list_(kind.value_field), mask=mask)
    return to_declared(pa.chunked_array([lists]), kind).chunk(0)


# --- guessed types ----------------------------------------------------------------------------------------------------


def guessed_from(texts: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.DataType:
    """Return the type of a column of numbers: text if a number has a leading zero, as some keys have."""
    return pa.string() if _first(pc.match_substring_regex(texts, _LEADING_ZERO)) is not None else kind


def numbers_of(texts: pa.ChunkedArray, kind: pa.DataType, column: str) -> pa.ChunkedArray:
    """Parse numbers in a guessed type; raise `InexactTextError` for the first inexact number."""
    _refuse(texts, _first(pc.match_substring_regex(texts, _LEADING_ZERO)), "has a leading zero", column)
    trimmed = pc.utf8_trim_whitespace(texts)
    try:
        numbers = trimmed.cast(kind)
    except pa.ArrowInvalid as error:
        row = next(row for row, text in enumerate(trimmed) if not _casts(text, kind))
        raise InexactTextError(row, f"{error} column={column}") from error
    if pt.is_floating(kind):
        _refuse(texts, _first_inexact(trimmed, numbers), _NOT_EXACT, column)
    return numbers


class InexactTextError(pa.ArrowInvalid):  # type: ignore[misc]
    """A text without an exact value in its column's guessed type. row: its place."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


def _inexact(why: str, column: str, text: str) -> str:
    return f"a value of a guessed column {why}: {_EXACT_ADVICE % column}. column={column} value={text}"


def inexact(text: str, column: str) -> str:
    """Return the message about a number that is not exact in its column's guessed type."""
    return _inexact(_NOT_EXACT, column, text)


def _refuse(texts: pa.ChunkedArray, row: int | None, why: str, column: str) -> None:
    if row is not None:
        raise InexactTextError(row, _inexact(why, column, str(texts[row])))


def _casts(text: pa.Scalar, kind: pa.DataType) -> bool:
    try:
        text.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _first(found: pa.ChunkedArray) -> int | None:
    row = pc.index(found, True).as_py()
    return None if row < 0 else int(row)


def _first_inexact(texts: pa.ChunkedArray, numbers: pa.ChunkedArray) -> int | None:
    """Return the row of the first number that changes as a double.

    Python checks only long numbers, and of these only texts other than Arrow's text of the double.
    """
    long = pc.match_substring_regex(texts, LONG_NUMBER)
    suspects = pc.and_(long, pc.not_equal(numbers.cast(pa.string()), texts))
    rows = pc.indices_nonzero(pc.fill_null(suspects, False)).to_pylist()
    return next((row for row in rows if not is_exact(texts[row].as_py())), None)


def is_exact(text: str) -> bool:
    """Return True if the number's double, written with as many digits, is the same number."""
    match = _PLAIN_NUMBER.fullmatch(text)
    if match is None:
        return text.lstrip("+-").lower() in _NOT_NUMBERS
    digits = len((match[1] + match[2]).strip("0")) or 1
    number = float(text)
    return math.isfinite(number) and digits <= _DIGITS_MAX and Decimal(f"{number:.{digits - 1}e}") == Decimal(text)

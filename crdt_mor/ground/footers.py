"""Check a Parquet footer before pyarrow reads its column chunks.

pyarrow aborts the process, without an error, if a chunk does not match: another type than the schema's, fewer chunks
than columns, encryption, short statistics, or level histograms of a wrong length. Foreign footers are checked here
first, once per file and process. Arrow's C++ trusts the declared kinds of lists and skips fields of other kinds, so
footers with other kinds are refused.

Source: Parquet's `parquet.thrift`; `ColumnChunkMetaData`, `RowGroupMetaData`, `SizeStatistics::Validate`,
`TypedStatisticsImpl::PlainDecode` and `schema::Unflatten` of Arrow's C++.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from crdt_mor.errors import FormatError
from crdt_mor.ground.thrift import BINARY, I32, I64, LIST, STRUCT, Items, Parts, Struct, decode, decode_items

TAIL_BYTES: Final = 8
"""A footer's length and the magic number."""

_SCHEMA, _GROUPS = 2, 4
_TYPE, _LENGTH, _REPETITION, _CHILDREN = 1, 2, 3, 5
_COLUMNS = 1
_META, _CRYPTO = 3, 8
_STATISTICS, _SIZES = 12, 16
_TEXT_BYTES, _REPETITIONS, _DEFINITIONS = 1, 2, 3

_OPTIONAL, _REPEATED = 1, 2
_BYTE_ARRAY, _FIXED = 6, 7
_WIDTHS: Final = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""Bytes per value of fixed-width types."""

Shape = int | Mapping[int, Any] | list[Any]
"""A kind; a struct's shapes by field number; or the shape of list items."""

_ENDS: Final = dict.fromkeys((1, 2, 5, 6), BINARY)
"""Minimum and maximum in statistics, by old and new numbers."""

_ELEMENT: Final = {_TYPE: I32, _LENGTH: I32, _REPETITION: I32, _CHILDREN: I32}
_META_DATA: Final = {
    _TYPE: I32,
    2: [I32],
    3: [BINARY],
    8: [{}],
    _STATISTICS: _ENDS,
    13: [{}],
    _SIZES: {_TEXT_BYTES: I64, _REPETITIONS: [I64], _DEFINITIONS: [I64]},
}
_FOOTER: Final = {_SCHEMA: [_ELEMENT], _GROUPS: [{_COLUMNS: LIST, 4: [{}]}], 5: [{}], 7: [{}]}
_CHUNK: Final = {_META: _META_DATA}
_BESIDE_CHUNKS: Final[Parts] = {_SCHEMA: {}, _GROUPS: {4: {}}, 5: {}, 7: {}}
"""The decoded parts of a footer, with a single chunk in memory."""


class _Column(NamedTuple):
    """A column of the schema: bytes per value, if fixed, and maximum levels."""

    type: int
    width: int | None
    repetition: int
    definition: int


@lru_cache(maxsize=64)
def fits(footer: bytes) -> bool:
    """Return True if each row group has an unencrypted chunk for each column that pyarrow can read."""
    try:
        file = decode(footer, _BESIDE_CHUNKS)
        if not _has_shape(_FOOTER, STRUCT, file):
            return False
        columns = _columns(file[_SCHEMA].value.values)
        groups = file[_GROUPS].value.values
        return all(_match_columns(columns, decode_items(group[_COLUMNS].value)) for group in groups)
    except (FormatError, LookupError):
        return False


def _has_shape(shape: Shape, kind: int, value: Any) -> bool:
    if isinstance(shape, int):
        return kind == shape
    if isinstance(shape, list):
        return kind == LIST and all(_has_shape(shape[0], value.kind, item) for item in value.values)
    return kind == STRUCT and all(_has_shape(shape[n], value[n].kind, value[n].value) for n in shape if n in value)


def _columns(elements: list[Struct]) -> list[_Column]:
    """Return a schema's leaves, depth first; raises LookupError."""
    columns = list[_Column]()
    above = [[_number(elements[0], _CHILDREN), 0, 0]]  # per open node: remaining children, levels
    for element in elements[1:]:
        while not above[-1][0]:
            above.pop()
        above[-1][0] -= 1
        _, repetition, definition = above[-1]
        repeats = _number(element, _REPETITION)
        levels = repetition + (repeats == _REPEATED), definition + (repeats in (_OPTIONAL, _REPEATED))
        if children := _number(element, _CHILDREN):
            above.append([children, *levels])
        else:
            type_ = element[_TYPE].value
            width = _number(element, _LENGTH) if type_ == _FIXED else _WIDTHS.get(type_)
            columns.append(_Column(type_, width, *levels))
    if any(left for left, *_ in above):
        raise LookupError("a schema without some of its columns")
    return columns


def _number(element: Struct, field: int) -> int:
    number = int(element[field].value) if field in element else 0
    if number < 0:
        raise LookupError("negative number of children, bytes or repetitions")
    return number


def _match_columns(columns: Iterable[_Column], chunks: Iterable[Struct]) -> bool:
    return all(
        None not in (column, chunk)
        and _has_shape(_CHUNK, STRUCT, chunk)
        and _CRYPTO not in chunk
        and _is_chunk(column, chunk[_META].value)
        for column, chunk in zip_longest(columns, chunks)
    )


def _is_chunk(column: _Column, meta: Struct) -> bool:
    statistics: Struct = meta[_STATISTICS].value if _STATISTICS in meta else {}
    sizes: Struct = meta[_SIZES].value if _SIZES in meta else {}
    return (
        meta[_TYPE].value == column.type
        and all(column.width in (None, len(statistics[end].value)) for end in _ENDS if end in statistics)
        and (_TEXT_BYTES not in sizes or column.type == _BYTE_ARRAY)
        and _is_histogram(sizes, _REPETITIONS, column.repetition)
        and _is_histogram(sizes, _DEFINITIONS, column.definition)
    )


def _is_histogram(sizes: Struct, field: int, level_max: int) -> bool:
    counts = sizes[field].value if field in sizes else Items(I64, [])
    return len(counts.values) in (0, level_max + 1)

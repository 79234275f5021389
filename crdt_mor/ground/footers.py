"""Whether the parts of a Parquet footer fit each other, which is asked before pyarrow looks at its column chunks.

pyarrow checks a chunk when that is asked for, and ends the process, with no error, where it does not fit: it is of
another type than the schema says, its row group has fewer chunks than the schema has columns, or it is encrypted. So
the footer of a file of elsewhere is looked through here first, once for each file that a process meets.

Source: the field numbers in Parquet's `parquet.thrift`; `ColumnChunkMetaData` and `RowGroupMetaData` of Arrow's C++.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from crdt_mor.errors import FormatError
from crdt_mor.ground.thrift import LIST, STRUCT, Struct, Value, decode

TAIL_BYTES: Final = 8
"""Bytes after a footer: its length, and the magic number."""

_SCHEMA, _GROUPS = 2, 4
_TYPE, _CHILDREN = 1, 5
_COLUMNS = 1
_META, _CRYPTO = 3, 8


@lru_cache(maxsize=64)
def fits(footer: bytes) -> bool:
    """Whether each row group has a chunk in plain for each column of the schema, and of its type."""
    try:
        file = decode(footer)
        leaves = [element[_TYPE].value for element in _structs(file[_SCHEMA])[1:] if not _children(element)]
        return all(_types(group) == leaves for group in _structs(file[_GROUPS]))
    except (FormatError, LookupError, TypeError, AttributeError):
        return False


def _structs(value: Value) -> list[Struct]:
    if value.kind != LIST or (value.value.values and value.value.kind != STRUCT):
        raise TypeError("no list of structs")
    return list(value.value.values)


def _children(element: Struct) -> int:
    return int(element[_CHILDREN].value) if _CHILDREN in element else 0


def _types(group: Struct) -> list[object]:
    """The types of the chunks in a row group; raises LookupError for one that is encrypted or says none."""
    chunks = _structs(group[_COLUMNS])
    if any(_CRYPTO in chunk for chunk in chunks):
        raise LookupError("an encrypted chunk")
    return [chunk[_META].value[_TYPE].value for chunk in chunks]

"""One Parquet file from several that were encoded side by side, nothing of which is encoded again.

    PAR1 [pages of each file] [column indexes] [offset indexes] footer, its length, PAR1

pyarrow encodes a file in one thread. Row groups know nothing of each other, so their pages move as they are, and what
says where pages lie is moved with them: the result is, byte for byte, what one writer would have written.

Source: the field numbers in Parquet's `parquet.thrift`; the order of the indexes in its `PageIndex.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from crdt_mor.format.thrift import BINARY, LIST, STRUCT, Items, Struct, Value, decode, encode

_MAGIC: Final = b"PAR1"
_END: Final = 8
"""Bytes after a footer: its length, and the magic number."""

# Numbers of fields, by the struct they are in.
_FILE_ROWS, _FILE_ROW_GROUPS, _FILE_METADATA = 3, 4, 5
_GROUP_COLUMNS, _GROUP_OFFSET = 1, 5
_COLUMN_META, _COLUMN_INDEX, _OFFSET_INDEX = 3, (6, 7), (4, 5)
"""Of an index: where it is, and how long."""
_META_PAGES: Final = (9, 10, 11)
"""Where the pages of data, of an index and of the dictionary begin."""
_INDEX_PAGES, _PAGE_OFFSET = 1, 1


def joined(files: Iterable[memoryview], metadata: Callable[[], Mapping[str, str]]) -> Iterator[bytes | memoryview]:
    """The row groups of `files`, at least one, as one file, piece by piece.

    `files`: Parquet as `write_parquet` makes it, all of one schema. `metadata`: of the new file, asked for when
    they have all been taken; theirs is left out.
    """
    footer: Struct = {}
    groups: list[Struct] = []
    indexes: dict[tuple[int, int], list[tuple[Struct, bytes]]] = {_COLUMN_INDEX: [], _OFFSET_INDEX: []}
    rows, at = 0, len(_MAGIC)
    yield _MAGIC
    for file in files:
        pages_end = footer_at = len(file) - _END - int.from_bytes(file[-_END:-4], "little")
        footer = decode(bytes(file[footer_at:-_END]))
        distance = at - len(_MAGIC)
        for group in footer[_FILE_ROW_GROUPS].value.values:
            _move(group, _GROUP_OFFSET, distance)
            groups.append(group)
            for column in group[_GROUP_COLUMNS].value.values:
                for pages in _META_PAGES:
                    _move(column[_COLUMN_META].value, pages, distance)
                for place, found in indexes.items():
                    if place[0] in column:
                        start, length = (column[number].value for number in place)
                        pages_end = min(pages_end, start)
                        index = bytes(file[start : start + length])
                        found.append((column, index if place == _COLUMN_INDEX else _moved(index, distance)))
        rows += footer[_FILE_ROWS].value
        yield file[len(_MAGIC) : pages_end]
        at += pages_end - len(_MAGIC)
    assert footer, "one file at least"
    for place, found in indexes.items():
        for column, index in found:
            column[place[0]].value, column[place[1]].value = at, len(index)
            yield index
            at += len(index)
    footer[_FILE_ROWS].value = rows
    footer[_FILE_ROW_GROUPS].value = Items(STRUCT, groups)
    end = encode(_with_metadata(footer, metadata()))
    yield end + len(end).to_bytes(4, "little") + _MAGIC


def _move(struct: Struct, field: int, distance: int) -> None:
    if field in struct:
        struct[field].value += distance


def _moved(offset_index: bytes, distance: int) -> bytes:
    index = decode(offset_index)
    for page in index[_INDEX_PAGES].value.values:
        _move(page, _PAGE_OFFSET, distance)
    return encode(index)


def _with_metadata(footer: Struct, metadata: Mapping[str, str]) -> Struct:
    said = [{1: Value(BINARY, k.encode()), 2: Value(BINARY, v.encode())} for k, v in metadata.items()]
    rest = {field: value for field, value in footer.items() if field != _FILE_METADATA}
    mine = {_FILE_METADATA: Value(LIST, Items(STRUCT, said))} if said else {}
    return dict(sorted((rest | mine).items()))

"""Join Parquet files that were encoded in parallel, without encoding them again.

    PAR1 [pages of each file] [Bloom filters] [column indexes] [offset indexes] footer, its length, PAR1

Row groups are independent, so their pages move unchanged. Only footers and offset indexes contain places, and are
decoded, moved and encoded. The result equals a single writer's file byte by byte, except for Bloom filters: they lie
side by side, so that one request reads them.

Source: Parquet's `parquet.thrift`, and `PageIndex.md` for the order of the indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from crdt_mor.format.row_groups.choosing import MAGIC
from crdt_mor.ground.footers import TAIL_BYTES
from crdt_mor.ground.thrift import BINARY, LIST, STRUCT, Items, Parts, Struct, Value, decode, encode

# Numbers of fields, by the struct they are in.
_FILE_ROWS, _FILE_ROW_GROUPS, _FILE_METADATA = 3, 4, 5
_GROUP_COLUMNS, _GROUP_OFFSET = 1, 5
_COLUMN_META, _COLUMN_INDEX, _OFFSET_INDEX = 3, (6, 7), (4, 5)
"""The fields of an index's offset and length."""
_META_PAGES: Final = (9, 10, 11)
"""The offsets of the first data page, the index page and the dictionary page."""
_META_FILTER = 14, 15
"""The offset and the length of the Bloom filter."""
_INDEX_PAGES, _PAGE_OFFSET = 1, 1
_WITH_OFFSETS: Final[Parts] = {_FILE_ROW_GROUPS: {_GROUP_COLUMNS: {_COLUMN_META: {}}}}


def join_row_groups(
    files: Iterable[memoryview], metadata: Callable[[], Mapping[str, str]]
) -> Iterator[bytes | memoryview]:
    """Join the row groups of `files`, in order, into the pieces of one Parquet file.

    files: at least one, from `write_parquet`, of one schema; each is freed before the next is taken.
    metadata: returns the joined file's key-value metadata, which replaces the files' own; called after the last file.
    """
    footer: Struct = {}
    groups: list[Struct] = []
    indexes: dict[tuple[int, int], list[tuple[Struct, bytes]]] = {_COLUMN_INDEX: [], _OFFSET_INDEX: []}
    filters: list[tuple[Struct, bytes]] = []
    rows, position = 0, len(MAGIC)
    yield MAGIC
    for file in files:
        pages_end = footer_start = len(file) - TAIL_BYTES - int.from_bytes(file[-TAIL_BYTES:-4], "little")
        footer = decode(bytes(file[footer_start:-TAIL_BYTES]), _WITH_OFFSETS)
        distance = position - len(MAGIC)
        for group in footer[_FILE_ROW_GROUPS].value.values:
            _move(group, _GROUP_OFFSET, distance)
            groups.append(group)
            for column in group[_GROUP_COLUMNS].value.values:
                for pages in _META_PAGES:
                    _move(column[_COLUMN_META].value, pages, distance)
                if _META_FILTER[0] in (meta := column[_COLUMN_META].value):
                    start, length = (meta[number].value for number in _META_FILTER)
                    pages_end = min(pages_end, start)
                    filters.append((meta, bytes(file[start : start + length])))
                for place, collected in indexes.items():
                    if place[0] in column:
                        start, length = (column[number].value for number in place)
                        pages_end = min(pages_end, start)
                        index = bytes(file[start : start + length])
                        collected.append((column, index if place == _COLUMN_INDEX else _moved(index, distance)))
        rows += footer[_FILE_ROWS].value
        yield file[len(MAGIC) : pages_end]
        position += pages_end - len(MAGIC)
    assert footer, "a join needs at least one file"
    for meta, bloom in filters:
        meta[_META_FILTER[0]].value = position
        yield bloom
        position += len(bloom)
    for (offset_field, length_field), collected in indexes.items():
        for column, index in collected:
            column[offset_field].value, column[length_field].value = position, len(index)
            yield index
            position += len(index)
    footer[_FILE_ROWS].value = rows
    footer[_FILE_ROW_GROUPS].value = Items(STRUCT, groups)
    encoded = encode(_with_metadata(footer, metadata()))
    yield encoded + len(encoded).to_bytes(4, "little") + MAGIC


def _move(struct: Struct, field: int, distance: int) -> None:
    """Add `distance` to an offset, where the struct has it."""
    if field in struct:
        struct[field].value += distance


def _moved(offset_index: bytes, distance: int) -> bytes:
    """Move all pages of an encoded offset index by `distance`."""
    index = decode(offset_index)
    for page in index[_INDEX_PAGES].value.values:
        _move(page, _PAGE_OFFSET, distance)
    return encode(index)


def _with_metadata(footer: Struct, metadata: Mapping[str, str]) -> Struct:
    """Replace a footer's key-value metadata; without any if `metadata` is empty."""
    fields = {field: value for field, value in footer.items() if field != _FILE_METADATA}
    if metadata:
        pairs = [{1: Value(BINARY, k.encode()), 2: Value(BINARY, v.encode())} for k, v in metadata.items()]
        fields[_FILE_METADATA] = Value(LIST, Items(STRUCT, pairs))
    return dict(sorted(fields.items()))

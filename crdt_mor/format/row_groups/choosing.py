"""Make a smaller Parquet file of some columns and row groups, from bytes fetched for it alone.

    footer ─ choose ─► places of the chunks that are needed ─ fetch ─► PAR1 [chunks] footer, its length, PAR1

Readers see the same values and statistics as in the whole file. Page indexes, Bloom filters and the whole file's
metadata are left out.

Source: the field numbers in Parquet's `parquet.thrift`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from crdt_mor.errors import FormatError
from crdt_mor.ground.thrift import I64, LIST, STRUCT, Items, Struct, Value, decode, encode

MAGIC: Final = b"PAR1"
# Numbers of fields, by the struct they are in.
_FILE_SCHEMA, _FILE_ROWS, _FILE_GROUPS, _FILE_METADATA, _FILE_ORDERS = 2, 3, 4, 5, 7
_ELEMENT_NAME, _ELEMENT_CHILDREN = 4, 5
_GROUP_COLUMNS, _GROUP_BYTES, _GROUP_ROWS, _GROUP_STORED = 1, 2, 3, 6
_COLUMN_FILE, _COLUMN_OFFSET, _COLUMN_META = 1, 2, 3
_META_BYTES, _META_STORED, _META_DATA, _META_INDEX, _META_DICTIONARY = 6, 7, 9, 10, 11
_META_ELSEWHERE = 14, 15
"""Where the Bloom filter is."""
_ARROW_SCHEMA: Final = b"ARROW:schema"


@dataclass(frozen=True, slots=True)
class ChosenParts:
    """The needed parts of a file. places: first byte and length of each chunk, in file order."""

    places: tuple[tuple[int, int], ...]
    _footer: Struct

    @property
    def size(self) -> int:
        return sum(length for _, length in self.places)

    def is_before(self, end: int) -> bool:
        """Return True if all chunks lie before a byte of the file, such as the footer's."""
        return all(start >= len(MAGIC) and 0 <= length <= end - start for start, length in self.places)

    def file(self, chunks: Sequence[bytes]) -> bytes:
        """The smaller file, made of the bytes at `places`."""
        encoded = encode(self._footer)
        return b"".join((MAGIC, *chunks, encoded, len(encoded).to_bytes(4, "little"), MAGIC))


def choose(footer: bytes, columns: Collection[str] | None, groups: Collection[int]) -> ChosenParts | None:
    """Choose columns, by top-level name, and row groups, by number, from the file with this footer.

    columns: None for all; unknown names are ignored.

    Returns None if the whole file is needed: it is encrypted, its columns are in other files, or Arrow's schema
    describes them. Raises `FormatError` for bytes that are no footer.
    """
    try:
        return _choose(decode(footer), columns, groups)
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise FormatError(f"not the footer of a Parquet file: {error!r}. bytes={len(footer)}") from error


def _choose(whole: Struct, columns: Collection[str] | None, groups: Collection[int]) -> ChosenParts | None:
    elements: Sequence[Struct] = whole[_FILE_SCHEMA].value.values
    if columns is not None and _has_arrow_schema(whole):
        return None
    kept_elements, leaves = _kept_schema(elements, columns)
    places: list[tuple[int, int]] = []
    kept: list[Struct] = []
    position, rows = len(MAGIC), 0
    for number, group in enumerate(whole[_FILE_GROUPS].value.values):
        if number not in groups:
            continue
        chunks = []
        for leaf, chunk in enumerate(group[_GROUP_COLUMNS].value.values):
            if leaf not in leaves:
                continue
            place = _place(chunk)
            if place is None:
                return None
            places.append(place)
            chunks.append(_moved(chunk, position - place[0]))
            position += place[1]
        kept.append(_group(group, chunks))
        rows += group[_GROUP_ROWS].value
    fields = {number: value for number, value in whole.items() if number != _FILE_METADATA or columns is None}
    fields[_FILE_SCHEMA] = Value(LIST, Items(STRUCT, kept_elements))
    fields[_FILE_ROWS] = Value(I64, rows)
    fields[_FILE_GROUPS] = Value(LIST, Items(STRUCT, kept))
    if _FILE_ORDERS in fields:
        orders = fields[_FILE_ORDERS].value
        fields[_FILE_ORDERS] = Value(LIST, Items(orders.kind, [orders.values[leaf] for leaf in sorted(leaves)]))
    return ChosenParts(tuple(places), fields)


def _has_arrow_schema(footer: Struct) -> bool:
    pairs = footer[_FILE_METADATA].value.values if _FILE_METADATA in footer else ()
    return any(pair[1].value == _ARROW_SCHEMA for pair in pairs)


def _kept_schema(elements: Sequence[Struct], columns: Collection[str] | None) -> tuple[list[Struct], set[int]]:
    """Return the schema elements of the columns and the numbers of their leaves.

    If the file lacks all columns, its first column is kept, for the number of rows.
    """
    tops: list[tuple[str, int, list[int]]] = []
    at, leaf = 1, 0
    while at < len(elements):
        end, leaves = _subtree(elements, at, leaf)
        tops.append((elements[at][_ELEMENT_NAME].value.decode(), end, leaves))
        at, leaf = end, leaf + len(leaves)
    wanted = [columns is None or name in columns for name, _, _ in tops]
    if tops and not any(wanted):
        wanted[0] = True
    kept, numbers, start = list[Struct](), set[int](), 1
    for (_, end, leaves), is_wanted in zip(tops, wanted, strict=True):
        if is_wanted:
            kept += elements[start:end]
            numbers |= set(leaves)
        start = end
    root = dict(elements[0])
    root[_ELEMENT_CHILDREN] = Value(root[_ELEMENT_CHILDREN].kind, sum(wanted))
    return [root, *kept], numbers


def _subtree(elements: Sequence[Struct], at: int, leaf: int) -> tuple[int, list[int]]:
    """Return the end of the subtree at a place, and the numbers of its leaves."""
    children = elements[at][_ELEMENT_CHILDREN].value if _ELEMENT_CHILDREN in elements[at] else 0
    if not children:
        return at + 1, [leaf]
    end, leaves = at + 1, list[int]()
    for _ in range(children):
        end, more = _subtree(elements, end, leaf + len(leaves))
        leaves += more
    return end, leaves


def _place(chunk: Struct) -> tuple[int, int] | None:
    """Return the place of a chunk's pages; None if in another file or encrypted."""
    if _COLUMN_META not in chunk or _COLUMN_FILE in chunk:
        return None
    meta = chunk[_COLUMN_META].value
    start = meta[_META_DATA].value
    if _META_DICTIONARY in meta and 0 < meta[_META_DICTIONARY].value < start:
        start = meta[_META_DICTIONARY].value
    return start, meta[_META_STORED].value


def _moved(chunk: Struct, distance: int) -> Struct:
    """Return a moved column chunk, without references outside of its pages."""
    meta = {number: value for number, value in chunk[_COLUMN_META].value.items() if number not in _META_ELSEWHERE}
    for number in (_META_DATA, _META_INDEX, _META_DICTIONARY):
        if number in meta and meta[number].value > 0:
            meta[number] = Value(I64, meta[number].value + distance)
    return {_COLUMN_OFFSET: Value(I64, 0), _COLUMN_META: Value(STRUCT, meta)}


def _group(group: Struct, chunks: Sequence[Struct]) -> Struct:
    """Return a row group of these chunks, without totals over all columns."""
    metas = [chunk[_COLUMN_META].value for chunk in chunks]
    stored = sum(meta[_META_STORED].value for meta in metas)
    return {
        _GROUP_COLUMNS: Value(LIST, Items(STRUCT, chunks)),
        _GROUP_BYTES: Value(I64, sum(meta[_META_BYTES].value for meta in metas)),
        _GROUP_ROWS: group[_GROUP_ROWS],
        _GROUP_STORED: Value(I64, stored),
    }

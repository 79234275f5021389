"""Check the CRCs of a Parquet file's pages without decoding values.

Source: `PageHeader` of Parquet's `parquet.thrift`, and its README, *Checksumming*.
"""

from __future__ import annotations

import zlib
from typing import Final

import pyarrow.parquet as pq

from crdt_mor.errors import FormatError
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.ground.thrift import decode_front

_COMPRESSED_SIZE: Final = 3
_CRC: Final = 4


def check_pages(source: ParquetSource) -> None:
    """Raise `FormatError` for a page with a wrong CRC. Pages of earlier releases have none."""
    metadata = source.metadata()
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for column in range(group.num_columns):
            chunk = group.column(column)
            if not _are_sound(source.read(_start(chunk), chunk.total_compressed_size)):
                raise FormatError(
                    "damaged Parquet, a page has another CRC: run crdt-mor repair URI --from COPY to restore the file "
                    f"from a copy of the table. file={source.name} column={chunk.path_in_schema} row_group={number}"
                )


def _start(chunk: pq.ColumnChunkMetaData) -> int:
    first = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
    return int(min(first or chunk.data_page_offset, chunk.data_page_offset))


def _are_sound(pages: bytes) -> bool:
    view, place = memoryview(pages), 0
    while place < len(view):
        try:
            header, length = decode_front(view[place:])
            size, crc = header[_COMPRESSED_SIZE].value, header.get(_CRC)
        except (FormatError, LookupError):
            return False
        start = place + length
        place = start + size
        if size < 0 or (crc is not None and zlib.crc32(view[start:place]) != crc.value & 0xFFFF_FFFF):
            return False
    return place == len(view)

"""The part of Avro's framing that is written here: zigzag numbers, object containers, and heads of log blocks.

    container   "Obj" 1 | header map (avro.schema) | sync (16) | block
    block       count | size | datums | sync

Log blocks contain bare datums. Wrapped as a container, polars decodes a whole column at once. Containers depend only on
their content: the sync marker is a hash of it. The header has no `avro.codec`, as in Hudi's files.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from crdt_mor.errors import FormatError, UnsupportedVersionError

Json: TypeAlias = "str | bool | int | float | list[Json] | dict[str, Json] | None"
"""An Avro schema, as JSON."""

MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16

CONTENT_VERSION: Final = 3
CONTENT_HEAD: Final = struct.Struct(">ii")
"""The head of a log block's content: its version, and a number."""


def encode_long(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def decode_long(data: bytes | memoryview, offset: int) -> tuple[int, int]:
    """Return the number at `offset` and the offset after it. IndexError past the end, ValueError above ten bytes."""
    rest = shift = 0
    while True:
        byte = data[offset]
        offset += 1
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (rest >> 1) ^ -(rest & 1), offset
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than ten bytes")


def encode_container(header: bytes, count: int, datums: bytes | memoryview) -> bytes:
    """Encode a block of `count` datums after a `header` from `container_header`."""
    sync = hashlib.md5(header + datums[:65536], usedforsecurity=False).digest()
    size = encode_long(len(datums))
    return b"".join((header, sync, encode_long(count), size, datums, sync))


def is_as_encoded(data: bytes) -> bool:
    """Return True if `encode_container` made these bytes, judged by the sync marker."""
    sync = data[-_SYNC_BYTES:]
    start = data.find(sync) + _SYNC_BYTES
    try:
        count, at = decode_long(data, start)
        _, at = decode_long(data, at)
    except (IndexError, ValueError):
        return False
    return encode_container(data[: start - _SYNC_BYTES], count, data[at:-_SYNC_BYTES]) == data


def container_header(schema: str, notes: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """Encode everything before the sync marker. `notes`: further file metadata, which readers ignore."""
    metadata = {"avro.schema": schema, **notes}
    texts = [text.encode() for entry in metadata.items() for text in entry]
    entries = b"".join(encode_long(len(text)) + text for text in texts)
    return b"".join((MAGIC, encode_long(len(metadata)), entries, b"\x00"))


def content_of(content: memoryview, block: str, where: str) -> tuple[int, memoryview]:
    """Return the number in the head of a log block's content, and the rest. block: its kind, for errors."""
    if len(content) < CONTENT_HEAD.size:
        raise FormatError(f"damaged {block}: cut short. {where}")
    version, number = CONTENT_HEAD.unpack_from(content)
    if version != CONTENT_VERSION:
        raise UnsupportedVersionError(
            f"{block} of an older or newer Hudi: let Hudi compact the table first. "
            f"{where} found={version} supported={CONTENT_VERSION}"
        )
    return number, content[CONTENT_HEAD.size :]

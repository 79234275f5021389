"""What of Avro's framing is written here: zigzag numbers, and object containers around datums that are bytes already.

    container   "Obj" 1 | header map (avro.schema) | sync (16) | block
    block       count | size | datums | sync

fastavro writes and reads containers as well, but writes them datum by datum. Log blocks hold bare datums, and wrapping
these as a container, without a look at them, lets polars decode a whole column in one go. And a container written here
depends on nothing but its content, since the sync marker is a hash of it, and its header says nothing that is not asked
for, mostly `avro.schema` alone, as in Hudi's files; fastavro adds `avro.codec`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

Json: TypeAlias = "str | bool | int | float | list[Json] | dict[str, Json] | None"
"""A schema of Avro's, which is JSON."""

MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16


def encode_long(value: int) -> bytes:
    """Zigzag, then seven bits a byte, lowest first."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def decode_long(data: bytes | memoryview, offset: int) -> tuple[int, int]:
    """The number at `offset`, and the offset after it. IndexError past the end, ValueError for more than ten bytes."""
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
    """One block of `count` datums behind a `header` made by `container_header`."""
    sync = hashlib.md5(header + datums[:65536], usedforsecurity=False).digest()
    size = encode_long(len(datums))
    return b"".join((header, sync, encode_long(count), size, datums, sync))


def is_as_encoded(data: bytes) -> bool:
    """Return whether `encode_container` made these bytes, by the sync marker, which is a hash of the first 64 KiB."""
    sync = data[-_SYNC_BYTES:]
    start = data.find(sync) + _SYNC_BYTES
    try:
        count, at = decode_long(data, start)
        _, at = decode_long(data, at)
    except (IndexError, ValueError):
        return False
    return encode_container(data[: start - _SYNC_BYTES], count, data[at:-_SYNC_BYTES]) == data


def container_header(schema: str, notes: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """Everything before the sync marker; the codec is null.

    notes: metadata of the file beside `avro.schema`, which is all that Hudi's files have. Readers pass over it.
    """
    metadata = {"avro.schema": schema, **notes}
    texts = [text.encode() for entry in metadata.items() for text in entry]
    entries = b"".join(encode_long(len(text)) + text for text in texts)
    return b"".join((MAGIC, encode_long(len(metadata)), entries, b"\x00"))

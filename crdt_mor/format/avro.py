"""Avro's framing: zigzag numbers and object containers, as bytes.

    container   "Obj" 1 | header map (avro.schema, avro.codec) | sync (16) | blocks
    block       count | size | datums | sync

Hudi keeps one record per timeline file in a container. Log blocks hold bare datums; wrapping them as a container lets
a columnar decoder have them in one go. fastavro reads and writes the datums themselves; here only the frame is known.
A container that we write depends on nothing but its content: the sync marker is a hash of it.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from crdt_mor.errors import FormatError, UnsupportedFeatureError

MAGIC: Final = b"Obj\x01"
_SYNC_SIZE: Final = 16


@dataclass(frozen=True, slots=True)
class Container:
    """A container that was read: its writer's schema, and its blocks as (number of datums, their bytes)."""

    schema: str
    blocks: tuple[tuple[int, bytes], ...]


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


def container_header(schema: str) -> bytes:
    """Everything before the sync marker: `avro.schema` is the only metadata, as in Hudi's files; the codec is null."""
    text = schema.encode()
    key = b"avro.schema"
    return b"".join((MAGIC, encode_long(1), encode_long(len(key)), key, encode_long(len(text)), text, b"\x00"))


def decode_container(data: bytes, path: str) -> Container:
    """Take the frame apart; anything that is not a whole container is a `FormatError`."""
    if data[:4] != MAGIC:
        what = "an empty file" if not data else f"it begins with {data[:4]!r}"
        raise FormatError(f"not an Avro container: {what}. The file is damaged or not Hudi's. path={path}")
    try:
        metadata, offset = _decode_header(data)
        schema = metadata["avro.schema"].decode()
        codec = metadata.get("avro.codec", b"null").decode()
        return Container(schema, tuple(_decode_blocks(data, offset, codec)))
    except (IndexError, KeyError, ValueError, zlib.error) as error:
        raise FormatError(f"damaged Avro container: {error}. path={path} size={len(data)}") from error


def _decode_header(data: bytes) -> tuple[dict[str, bytes], int]:
    metadata: dict[str, bytes] = {}
    count, offset = decode_long(data, len(MAGIC))
    while count:
        if count < 0:  # a negative count is followed by the size in bytes
            count = -count
            _, offset = decode_long(data, offset)
        for _ in range(count):
            key, offset = _take(data, offset)
            metadata[key.decode()], offset = _take(data, offset)
        count, offset = decode_long(data, offset)
    return metadata, offset


def _decode_blocks(data: bytes, offset: int, codec: str) -> Iterator[tuple[int, bytes]]:
    if codec not in ("null", "deflate"):
        raise UnsupportedFeatureError(f"Avro codec not supported; known are null and deflate. codec={codec}")
    sync = data[offset : offset + _SYNC_SIZE]
    offset += _SYNC_SIZE
    while offset < len(data):
        count, offset = decode_long(data, offset)
        datums, offset = _take(data, offset)
        if count < 0:
            raise ValueError(f"a block of {count} records")
        if data[offset : offset + _SYNC_SIZE] != sync or len(sync) != _SYNC_SIZE:
            raise ValueError(f"no sync marker at {offset}")
        offset += _SYNC_SIZE
        yield count, zlib.decompress(datums, -15) if codec == "deflate" else datums


def _take(data: bytes, offset: int) -> tuple[bytes, int]:
    size, offset = decode_long(data, offset)
    if not 0 <= size <= len(data) - offset:
        raise ValueError(f"{size} bytes announced at {offset}, {len(data) - offset} left")
    return data[offset : offset + size], offset + size

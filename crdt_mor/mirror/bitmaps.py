"""Deletion vectors as bytes, the same in Delta's files and in Iceberg's Puffin files."""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

from crdt_mor.errors import InvalidInputError
from crdt_mor.mirror.slices import Positions

MAGIC: Final = b"\xd1\xd3\x39\x64"

FRAME_BYTES: Final = 8
"""Length of the length and the CRC-32 around a vector."""


def vector(positions: Positions) -> bytes:
    """Return a magic number and a portable 64-bit Roaring bitmap."""
    serialized: bytes = _bitmap()(positions.tolist()).serialize()
    return MAGIC + serialized


def _bitmap() -> Any:
    try:
        from pyroaring import BitMap64
    except ImportError as error:
        raise InvalidInputError(
            "deletion vectors need the package pyroaring: run pip install 'crdt-mor[mirror]'. missing=pyroaring"
        ) from error
    return BitMap64


def positions_in(framed: bytes) -> list[int]:
    """Return the positions of a framed vector; raise ValueError if it is damaged."""
    (length,), (crc,) = struct.unpack(">i", framed[:4]), struct.unpack(">I", framed[-4:])
    found = framed[4:-4]
    if (len(found), zlib.crc32(found), found[:4]) != (length, crc, MAGIC):
        raise ValueError("a deletion vector is damaged")
    return [*_bitmap().deserialize(found[4:])]


def framed(found: bytes) -> bytes:
    """Return a vector between its length and its CRC-32."""
    return struct.pack(">i", len(found)) + found + struct.pack(">I", zlib.crc32(found))

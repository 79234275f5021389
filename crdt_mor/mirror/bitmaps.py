"""Deletion vectors as bytes, the same in Delta's files and in Iceberg's Puffin files."""

from __future__ import annotations

import struct
import zlib
from typing import Final

from crdt_mor.errors import InvalidInputError
from crdt_mor.mirror.slices import Positions

MAGIC: Final = b"\xd1\xd3\x39\x64"


def vector(positions: Positions) -> bytes:
    """Return a magic number and a portable 64-bit Roaring bitmap."""
    try:
        from pyroaring import BitMap64
    except ImportError as error:
        raise InvalidInputError(
            "deletion vectors need the package pyroaring: run pip install 'crdt-mor[mirror]'. missing=pyroaring"
        ) from error
    serialized: bytes = BitMap64(positions.tolist()).serialize()
    return MAGIC + serialized


def framed(found: bytes) -> bytes:
    """Return a vector between its length and its CRC-32."""
    return struct.pack(">i", len(found)) + found + struct.pack(">I", zlib.crc32(found))

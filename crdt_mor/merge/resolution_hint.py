"""A resolution as bytes that lie beside a table, so that a process need not find out what another one has found out.

    magic (8) | name (32) | rows and ones of the base, of the logs (4 x 8) | masks (zstd) | digest of all before (32)

The name is that of the files of which the resolution is. Whatever has another one, or is not whole, says nothing: what
a hint tells can be found out of the files, so that one that is damaged or of other files costs time alone.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from crdt_mor.merge.resolution import Bits, Resolution

MAGIC: Final = b"CRDTRES1"
ROWS_MAX: Final = 1 << 28
"""The most rows of a mask: more are not unpacked, as bytes that somebody made up may claim any number."""

_DIGEST: Final = 32
_HEAD: Final = struct.Struct(f"<{len(MAGIC)}s{_DIGEST}s4Q")
_CODEC: Final = "zstd"


def name_of(parts: Iterable[str]) -> bytes:
    """The name of what these texts tell apart, 32 bytes: each part counts by itself."""
    digest = hashlib.blake2b(digest_size=_DIGEST)
    for part in parts:
        encoded = part.encode()
        digest.update(struct.pack("<Q", len(encoded)) + encoded)
    return digest.digest()


def to_bytes(resolution: Resolution, name: bytes) -> bytes:
    """The hint of a resolution."""
    base, logs = resolution.base, resolution.logs
    head = _HEAD.pack(MAGIC, name, base.rows, base.ones, logs.rows, logs.ones)
    masks: bytes = pa.compress(base.packed + logs.packed, codec=_CODEC, asbytes=True)
    return head + masks + hashlib.blake2b(head + masks, digest_size=_DIGEST).digest()


def from_bytes(hint: bytes, name: bytes) -> Resolution | None:
    """The resolution that a hint tells of the files of this name; None if it tells none."""
    whole, digest = hint[:-_DIGEST], hint[-_DIGEST:]
    if len(whole) <= _HEAD.size or hashlib.blake2b(whole, digest_size=_DIGEST).digest() != digest:
        return None
    magic, named, base_rows, base_ones, log_rows, log_ones = _HEAD.unpack_from(whole)
    if magic != MAGIC or named != name or max(base_rows, log_rows) > ROWS_MAX:
        return None
    base_bytes, log_bytes = _bytes_of(base_rows), _bytes_of(log_rows)
    try:
        masks = pa.decompress(whole[_HEAD.size :], base_bytes + log_bytes, codec=_CODEC, asbytes=True)
    except OSError:
        return None
    base = Bits(masks[:base_bytes], base_rows, base_ones)
    logs = Bits(masks[base_bytes:], log_rows, log_ones)
    return Resolution(base, logs) if _is_counted(base) and _is_counted(logs) else None


def _is_counted(bits: Bits) -> bool:
    """Whether bits are as many as they say, and so are the ones among them."""
    return len(bits.packed) == _bytes_of(bits.rows) and bits.series.sum() == bits.ones


def _bytes_of(rows: int) -> int:
    return (rows + 7) // 8

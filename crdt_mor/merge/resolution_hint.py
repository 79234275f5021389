"""Encode a resolution as bytes beside a table, so that other processes need not merge the slice again.

    magic (8) | name (32) | rows and ones of the base, of the logs (4 x 8) | masks (zstd) | digest of all before (32)

The name identifies the merged files. A hint with another name, or a damaged one, is ignored: readers can always merge
the files instead, so a bad hint costs only time.
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
"""The largest accepted mask, in rows. Larger ones are not unpacked, because forged bytes may claim any number."""

_DIGEST: Final = 32
_HEAD: Final = struct.Struct(f"<{len(MAGIC)}s{_DIGEST}s4Q")
_CODEC: Final = "zstd"


def name_of(parts: Iterable[str]) -> bytes:
    """Return the 32-byte name of a sequence of texts. Each part counts separately."""
    digest = hashlib.blake2b(digest_size=_DIGEST)
    for part in parts:
        encoded = part.encode()
        digest.update(struct.pack("<Q", len(encoded)) + encoded)
    return digest.digest()


def to_bytes(resolution: Resolution, name: bytes) -> bytes:
    base, logs = resolution.base, resolution.logs
    head = _HEAD.pack(MAGIC, name, base.rows, base.ones, logs.rows, logs.ones)
    masks: bytes = pa.compress(base.packed + logs.packed, codec=_CODEC, asbytes=True)
    return head + masks + hashlib.blake2b(head + masks, digest_size=_DIGEST).digest()


def from_bytes(hint: bytes, name: bytes) -> Resolution | None:
    """Decode the hint of the files with this name; None if it is damaged or names other files."""
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
    return len(bits.packed) == _bytes_of(bits.rows) and bits.series.sum() == bits.ones


def _bytes_of(rows: int) -> int:
    return (rows + 7) // 8

"""Hints of shown rows: the parser of their bytes, and hints that the engine has written."""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np

from crdt_mor.merge.resolution import Bits, Resolution, only
from crdt_mor.merge.resolution_hint import from_bytes, name_of, to_bytes

NAME: Final = name_of(["latest", "", "id", "a.parquet 1000", ".a.log.1_0-0-0 100"])
_DIGEST: Final = 32


def hints() -> list[bytes]:
    """Hints of a few rows, of none, and of thousands."""
    sizes = ((9, 4), (0, 0), (8, 1), (20_000, 3_000))
    masks = ((only(np.arange(0, a, 3), a), only(np.arange(1, b, 7), b)) for a, b in sizes)
    return [to_bytes(Resolution(Bits.of(base), Bits.of(logs)), NAME) for base, logs in masks]


def parse(data: bytes) -> None:
    """What a reader does with a hint."""
    found = from_bytes(data, NAME)
    if found is not None:
        assert found.base.series.sum() == found.base.ones
        assert found.logs.series.sum() == found.logs.ones


def whole(data: bytes) -> bytes:
    """A hint whose digest is that of its content."""
    content = data[:-_DIGEST]
    return content + hashlib.blake2b(content, digest_size=_DIGEST).digest()

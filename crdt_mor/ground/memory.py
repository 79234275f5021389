"""The memory limit, and freed memory that stays in the process."""

from __future__ import annotations

import os
from functools import cache
from typing import Final

import numpy as np

from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.machine import memory_bytes

_LARGE_BYTES: Final = (32 << 20) - (64 << 10)
"""Just below glibc's maximum threshold on 64-bit machines (`DEFAULT_MMAP_THRESHOLD_MAX`)."""


_MOST: Final = 2**63 - 1

MEMORY_LIMIT: Final = "CRDT_MOR_MEMORY_LIMIT"


def memory_limit() -> int:
    text = os.environ.get(MEMORY_LIMIT, "")
    if not text:
        return _quarter()
    number = int(text) if text.isdecimal() and len(text) < 20 else text
    return require_memory_limit(MEMORY_LIMIT, number)


def require_memory_limit(name: str, given: object) -> int:
    """Return a limit of memory. name: the argument or environment variable, for the error."""
    if isinstance(given, bool) or not isinstance(given, int) or not 0 < given <= _MOST:
        raise InvalidInputError(f"{name} must be a number of bytes from 1 to {_MOST}. got={given!r:.80}")
    return given


@cache
def _quarter() -> int:
    return memory_bytes() // 4


@cache
def keep_freed_memory() -> None:
    """Let the C library keep up to 64 MiB of freed memory.

    Merges allocate arrays of some megabytes, and the system clears fresh memory page by page: a fifth of a scan's
    processor time. After a large block is freed, glibc serves blocks up to that size from its heap, and keeps up to
    twice that size (mallopt(3), M_MMAP_THRESHOLD). So one such block is allocated and freed untouched. This has no
    effect with other C libraries, or if environment variables set the thresholds.
    """
    np.empty(_LARGE_BYTES, dtype=np.uint8)

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


MEMORY_LIMIT: Final = "CRDT_MOR_MEMORY_LIMIT"


def memory_limit() -> int:
    text = os.environ.get(MEMORY_LIMIT, "")
    if not text:
        return _quarter()
    if not (text.isdecimal() and int(text)):
        raise InvalidInputError(f"set {MEMORY_LIMIT} to a number of bytes above 0. got={text!r:.80}")
    return int(text)


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

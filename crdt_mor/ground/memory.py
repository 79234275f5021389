"""Keep freed memory in the process for reuse."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

_LARGE_BYTES: Final = (32 << 20) - (64 << 10)
"""Just below glibc's maximum threshold on 64-bit machines (`DEFAULT_MMAP_THRESHOLD_MAX`)."""


@cache
def keep_freed_memory() -> None:
    """Let the C library keep up to 64 MiB of freed memory.

    Merges allocate arrays of some megabytes, and the system clears fresh memory page by page: a fifth of a scan's
    processor time. After a large block is freed, glibc serves blocks up to that size from its heap, and keeps up to
    twice that size (mallopt(3), M_MMAP_THRESHOLD). So one such block is allocated and freed untouched. This has no
    effect with other C libraries, or if environment variables set the thresholds.
    """
    np.empty(_LARGE_BYTES, dtype=np.uint8)

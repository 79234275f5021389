"""How much freed memory a process keeps for what it does next."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

_LARGE_BYTES: Final = (32 << 20) - (64 << 10)
"""Nearly the most that the threshold of glibc can become on a machine of 64 bits (`DEFAULT_MMAP_THRESHOLD_MAX`)."""


@cache
def keep_freed_memory() -> None:
    """Let the C library keep freed memory, up to 64 MiB, where it would give it back to the system at once.

    A merge of many log rows makes arrays and copies of some megabytes. Where their memory comes fresh from the system
    each time, the system clears page after page: a fifth of the processor time of a scan under ten logs of 5 %. When a
    large block is freed, glibc concludes that such blocks come and go: from then on it serves those of up to that size
    from memory that it keeps, of which it gives back what exceeds twice that size (mallopt(3), M_MMAP_THRESHOLD). So
    one such block is asked for, and freed untouched. That changes nothing where an environment variable sets these
    thresholds, or where the C library is another one.
    """
    np.empty(_LARGE_BYTES, dtype=np.uint8)

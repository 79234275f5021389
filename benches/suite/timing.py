"""Some works timed side by side."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np


def seconds(*works: Callable[[], object], rounds: int, chance: np.random.Generator) -> list[float]:
    """The medians of some works, in rounds in which each runs once, in random order; the first round is not counted."""
    found: list[list[float]] = [[] for _ in works]
    for number in range(rounds + 1):
        for i in chance.permutation(len(works)):
            start = time.perf_counter()
            works[i]()
            if number:
                found[i].append(time.perf_counter() - start)
    return [statistics.median(times) for times in found]

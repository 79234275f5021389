"""How large the processes and the table's folder were while a soak ran, and whether they grew.

The medians of the second and of the last quarter of the time are compared: the first quarter is for what every process
takes to get going.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

MIB: Final = 1 << 20
JUDGED_AFTER_S: Final = 240.0
"""A shorter run says nothing about growth: its processes have just begun."""


@dataclass
class Series:
    """One quantity in bytes over time, as (seconds, bytes). share, margin: by how much it may grow."""

    share: float
    margin: int
    samples: list[tuple[float, int]] = field(default_factory=list)

    def quarter(self, number: int, seconds: float) -> float:
        """The median in a quarter, 1 to 4, of so many seconds; 0 where nothing was measured then."""
        first, last = (number - 1) * seconds / 4, number * seconds / 4
        return median([size for at, size in self.samples if first <= at < last] or [0])

    def grew(self, seconds: float) -> bool:
        """Whether it was greater in the end than it may be."""
        second, last = self.quarter(2, seconds), self.quarter(4, seconds)
        return seconds >= JUDGED_AFTER_S and second > 0 and last > second * self.share + self.margin


def memory() -> Series:
    """The memory of a process."""
    return Series(1.15, 16 * MIB)


def folder() -> Series:
    """All that lies in a table's folder. Hudi's history in it grows with the commits, a little."""
    return Series(1.5, 4 * MIB)


def resident_bytes(pid: int) -> int | None:
    """The memory that a process has now; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return None


def shown(rows: Sequence[Sequence[object]]) -> str:
    """Rows as a table of text, the first one its head."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join("  ".join(map(str.rjust, row, widths)).rstrip() for row in texts)

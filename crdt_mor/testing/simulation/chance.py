"""Random numbers that are equal on every machine and Python release for a seed and a name."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_RANGE: Final = 2**48


class Chance:
    """A sequence of numbers, determined by texts."""

    def __init__(self, *stem: object) -> None:
        self._stem = repr(stem).encode()
        self._drawn = 0

    def number(self) -> float:
        """Return a number, 0 <= x < 1."""
        self._drawn += 1
        digest = hashlib.blake2b(self._stem + self._drawn.to_bytes(8, "big"), digest_size=6).digest()
        return int.from_bytes(digest, "big") / _RANGE

    def happens(self, share: float) -> bool:
        return self.number() < share

    def below(self, end: int) -> int:
        """Return an integer, 0 <= n < end."""
        return int(self.number() * end)

    def between(self, first: int, last: int) -> int:
        """Return an integer, first <= n <= last."""
        return first + self.below(last - first + 1)

    def choice(self, values: Sequence[T]) -> T:
        return values[self.below(len(values))]

    def some(self, values: Sequence[T], count: int) -> list[T]:
        left = list(values)
        return [left.pop(self.below(len(left))) for _ in range(min(count, len(left)))]

    def weighted(self, weights: Sequence[tuple[T, int]]) -> T:
        place = self.number() * sum(weight for _, weight in weights)
        for value, weight in weights:
            place -= weight
            if place < 0:
                return value
        return weights[-1][0]

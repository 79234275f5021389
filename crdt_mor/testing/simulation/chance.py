"""Chance that is the same on every machine, in every release of Python: a seed and a name give the same numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_RANGE: Final = 2**48


class Chance:
    """Numbers drawn one after the other. Two that are made of equal texts give the same numbers."""

    def __init__(self, *stem: object) -> None:
        self._stem = repr(stem).encode()
        self._drawn = 0

    def number(self) -> float:
        """A number, 0 <= x < 1."""
        self._drawn += 1
        digest = hashlib.blake2b(self._stem + self._drawn.to_bytes(8, "big"), digest_size=6).digest()
        return int.from_bytes(digest, "big") / _RANGE

    def happens(self, share: float) -> bool:
        """True in this share of the draws."""
        return self.number() < share

    def below(self, end: int) -> int:
        """A whole number, 0 <= n < end."""
        return int(self.number() * end)

    def between(self, first: int, last: int) -> int:
        """A whole number, first <= n <= last."""
        return first + self.below(last - first + 1)

    def choice(self, values: Sequence[T]) -> T:
        """One of the values."""
        return values[self.below(len(values))]

    def some(self, values: Sequence[T], count: int) -> list[T]:
        """So many of the values, each at most once."""
        left = list(values)
        return [left.pop(self.below(len(left))) for _ in range(min(count, len(left)))]

    def weighted(self, weights: Sequence[tuple[T, int]]) -> T:
        """One of the values; a value of weight 2 comes twice as often as one of weight 1."""
        place = self.number() * sum(weight for _, weight in weights)
        for value, weight in weights:
            place -= weight
            if place < 0:
                return value
        return weights[-1][0]

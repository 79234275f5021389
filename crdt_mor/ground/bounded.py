"""Values that a process keeps to be faster, up to so many bytes; to forget one costs time, and nothing else."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

ENTRY_BYTES: Final = 1 << 10
"""About what a name takes, beside its value."""


class HasBytes(Protocol):
    """A value that knows its size in memory."""

    @property
    def nbytes(self) -> int:
        """The bytes that it takes."""
        ...


V = TypeVar("V", bound=HasBytes)


class Bounded(Generic[V]):
    """Values by name, of which those stay that were asked for last. Safe to share between threads.

    bytes_max: how much they may take together, each with `ENTRY_BYTES`.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, name: Hashable) -> V | None:
        """The value of a name, if it is kept."""
        with self._lock:
            value = self._values.get(name)
            if value is not None:
                self._values.move_to_end(name)
            return value

    def keep(self, name: Hashable, value: V) -> None:
        """Keep the value that a name has for ever, and forget what was asked for longest ago where it is too much."""
        with self._lock:
            if name in self._values:
                return
            self._values[name] = value
            self._bytes += value.nbytes + ENTRY_BYTES
            while self._bytes > self._bytes_max:
                self._bytes -= self._values.popitem(last=False)[1].nbytes + ENTRY_BYTES

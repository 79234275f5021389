"""A cache with a limit in bytes. Forgetting a value only costs time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

ENTRY_BYTES: Final = 1 << 10


class HasBytes(Protocol):
    @property
    def nbytes(self) -> int:
        """The bytes."""
        ...


V = TypeVar("V", bound=HasBytes)


class Bounded(Generic[V]):
    """A least-recently-used cache, shared between threads. `bytes_max` includes `ENTRY_BYTES` per value."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, name: Hashable) -> V | None:
        with self._lock:
            value = self._values.get(name)
            if value is not None:
                self._values.move_to_end(name)
            return value

    def keep(self, name: Hashable, value: V) -> None:
        """Keep the value of a name, which must never change, and drop the least recently used."""
        with self._lock:
            if name in self._values:
                return
            self._values[name] = value
            self._bytes += value.nbytes + ENTRY_BYTES
            while self._bytes > self._bytes_max:
                self._bytes -= self._values.popitem(last=False)[1].nbytes + ENTRY_BYTES

"""A store in a dictionary, for tests and simulations. It promises what a disk does, and delays nothing.

One lock makes every operation one step, so a put is whole or not there, and of several puts of a path one wins.
No other process sees its objects, and no address leads to them: a `ParquetSource` of it holds the bytes.
"""

from __future__ import annotations

import builtins  # inside the class, `list` is the store's
import threading
from collections.abc import Callable, Sequence

from crdt_mor.errors import StorageUnavailableError, UnsupportedFeatureError
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.store.paths import folder_path, in_hoodie, object_path
from crdt_mor.store.protocol import Content, Durable, Stat


class MemoryStore:
    """Objects by path, in memory. Safe to share between threads; `now_ms` is the store's own clock."""

    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        self._clock = now_ms or SystemEnvironment().now_ms
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, int]] = {}

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._objects)} objects)"

    def __reduce__(self) -> tuple[object, ...]:
        """Another process has another memory."""
        raise UnsupportedFeatureError("a store in memory cannot be pickled: no other process could see its objects")

    def read(self, path: str) -> bytes | None:
        """The whole object; None if there is none."""
        with self._lock:
            stored = self._objects.get(object_path(path))
        return None if stored is None else stored[0]

    def view(self, path: str) -> memoryview | None:
        """The whole object as it lies in memory; None if there is none."""
        content = self.read(path)
        return None if content is None else memoryview(content)

    def put(self, path: str, data: Content, *, durable: Durable = True, after: Sequence[str] = ()) -> bool:  # noqa: ARG002  memory has no power cuts
        """Create the object if there is none: True. False if there is one already."""
        content = bytes(data) if isinstance(data, (bytes, memoryview)) else b"".join(data)
        with self._lock:
            fresh = (content, self._clock())
            return self._objects.setdefault(object_path(path), fresh) is fresh

    def copy(self, source: str, target: str) -> bool:
        """Create `target` with the content of `source`, if there is no `target`: True."""
        data = self.read(source)
        if data is None:
            raise StorageUnavailableError(f"there is nothing to copy. copy={source} to={target}")
        return self.put(target, data)

    def stat(self, path: str) -> Stat | None:
        """Size and age of an object; None if there is none."""
        with self._lock:
            stored = self._objects.get(object_path(path))
        return None if stored is None else Stat(path, len(stored[0]), stored[1])

    def list(self, folder: str) -> builtins.list[Stat]:
        """The objects directly in `folder`, by path."""
        start = _start(folder_path(folder))
        return [stat for stat in self._below(start) if "/" not in stat.path[len(start) :]]

    def walk(self, folder: str) -> builtins.list[Stat]:
        """The objects anywhere below `folder`, by path; `.hoodie` is left out unless `folder` is in it."""
        folder = folder_path(folder)
        objects = self._below(_start(folder))
        return objects if in_hoodie(folder) else [stat for stat in objects if not in_hoodie(stat.path)]

    def delete(self, path: str) -> None:
        """Remove the object; removing what is not there is fine."""
        with self._lock:
            self._objects.pop(object_path(path), None)

    def touch(self, path: str) -> None:
        """Set the modification time of an object to now, creating it empty if need be."""
        with self._lock:
            content, _ = self._objects.get(object_path(path), (b"", 0))
            self._objects[path] = (content, self._clock())

    def make_durable(self, path: str) -> None:
        """Nothing to wait for: memory keeps what it has until it keeps nothing."""
        object_path(path)

    def now_ms(self) -> int:
        """The store's own clock."""
        return self._clock()

    def parquet(self, path: str) -> ParquetSource | None:
        """The bytes of a Parquet file; None if there is none."""
        content = self.read(path)
        return None if content is None else ParquetSource.in_memory(content, name=path)

    def _below(self, start: str) -> builtins.list[Stat]:
        with self._lock:
            objects = [
                Stat(path, len(content), modified_ms)
                for path, (content, modified_ms) in self._objects.items()
                if path.startswith(start)
            ]
        return sorted(objects, key=lambda stat: stat.path)


def _start(folder: str) -> str:
    return f"{folder}/" if folder else ""

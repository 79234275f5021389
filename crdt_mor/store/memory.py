"""A store in a dictionary, for tests and simulations, with a disk's promises.

A lock makes each operation a single step.
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
    """Objects by path, in memory. Thread-safe; `now_ms` is the store's own clock."""

    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        self._clock = now_ms or SystemEnvironment().now_ms
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, int]] = {}

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._objects)} objects)"

    def __reduce__(self) -> tuple[object, ...]:
        raise UnsupportedFeatureError(
            "other processes cannot see a store in memory: use a table on a disk or in a bucket"
        )

    def read(self, path: str) -> bytes | None:
        with self._lock:
            stored = self._objects.get(object_path(path))
        return None if stored is None else stored[0]

    def view(self, path: str) -> memoryview | None:
        content = self.read(path)
        return None if content is None else memoryview(content)

    def put(self, path: str, data: Content, *, durable: Durable = True, after: Sequence[str] = ()) -> bool:  # noqa: ARG002  no power cuts
        content = bytes(data) if isinstance(data, (bytes, memoryview)) else b"".join(data)
        with self._lock:
            fresh = (content, self._clock())
            return self._objects.setdefault(object_path(path), fresh) is fresh

    def copy(self, source: str, target: str) -> bool:
        data = self.read(source)
        if data is None:
            raise StorageUnavailableError(f"there is nothing to copy. copy={source} to={target}")
        return self.put(target, data)

    def stat(self, path: str) -> Stat | None:
        with self._lock:
            stored = self._objects.get(object_path(path))
        return None if stored is None else Stat(path, len(stored[0]), stored[1])

    def list(self, folder: str) -> builtins.list[Stat]:
        start = _start(folder_path(folder))
        return [stat for stat in self._below(start) if "/" not in stat.path[len(start) :]]

    def walk(self, folder: str) -> builtins.list[Stat]:
        folder = folder_path(folder)
        objects = self._below(_start(folder))
        return objects if in_hoodie(folder) else [stat for stat in objects if not in_hoodie(stat.path)]

    def delete(self, path: str) -> None:
        with self._lock:
            self._objects.pop(object_path(path), None)

    def touch(self, path: str) -> None:
        with self._lock:
            content, _ = self._objects.get(object_path(path), (b"", 0))
            self._objects[path] = (content, self._clock())

    def make_durable(self, path: str) -> None:
        object_path(path)

    def now_ms(self) -> int:
        return self._clock()

    def parquet(self, path: str) -> ParquetSource | None:
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

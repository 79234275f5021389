"""A disk in memory that loses what was not fsynced, and a process whose operations on it fail at a chosen one.

Disk           what a local disk promises, and no more: `cut` is a power cut
Process        a store through which one process works; what goes wrong with its operations is a `Fault`
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from crdt_mor.errors import CommitUnknownError, StorageUnavailableError
from crdt_mor.store.memory import MemoryStore
from crdt_mor.store.protocol import Content, Durable
from crdt_mor.testing.faults import DelegatingStore, ProcessDied

T = TypeVar("T")

WRITES: Final = frozenset({"put", "copy"})
CHANGES: Final = WRITES | {"delete", "make_durable"}


class Disk(MemoryStore):
    """Names last when their folder was fsynced, contents when they were; a deleted name is back until then."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms)
        self._noting = threading.RLock()  # services put files in threads
        self._names: set[str] = set()
        self._contents: set[str] = set()
        self._deleted: dict[str, tuple[bytes, int]] = {}

    def another(self, now_ms: Callable[[], int]) -> Disk:
        """A disk with the same on it, all of it fsynced."""
        disk = Disk(now_ms)
        disk._objects = dict(self._objects)
        return disk

    def objects(self) -> dict[str, bytes]:
        return {path: content for path, (content, _) in self._objects.items()}

    def become(self, objects: Mapping[str, bytes]) -> None:
        """Hold these, all of them fsynced, and nothing else."""
        self._objects = {path: (content, self.now_ms()) for path, content in objects.items()}
        self._names, self._contents, self._deleted = set(), set(), {}

    def put(self, path: str, data: Content, *, durable: Durable = True, after: Sequence[str] = ()) -> bool:
        with self._noting:
            if path not in self._objects:
                for earlier in after:
                    self.make_durable(earlier)
            if not super().put(path, data):
                return False
            self._names.add(path)
            if not durable:
                self._contents.add(path)
            if durable is True:
                self.make_durable(path)
            return True

    def put_without_fsync(self, path: str, data: Content, after: Sequence[str]) -> None:
        """What a put leaves whose folder could not be fsynced: the folders of what comes before it were."""
        self.put(path, data, durable="content", after=after)

    def copy(self, source: str, target: str) -> bool:
        self._contents.discard(source)
        return super().copy(source, target)

    def delete(self, path: str) -> None:
        with self._noting:
            if path in self._objects and path not in self._names:
                self._deleted.setdefault(path, self._objects[path])
            super().delete(path)
            self._names.discard(path)
            self._contents.discard(path)

    def touch(self, path: str) -> None:
        with self._noting:
            if path not in self._objects:
                self._names.add(path)
            super().touch(path)

    def make_durable(self, path: str) -> None:
        folder = path.rpartition("/")[0]
        with self._noting:
            self._names = {name for name in self._names if name.rpartition("/")[0] != folder}
            self._deleted = {name: was for name, was in self._deleted.items() if name.rpartition("/")[0] != folder}

    def cut(self) -> None:
        """The power goes off and on again."""
        with self._noting:
            for path in self._contents - self._names:
                self._objects[path] = (b"", self._objects[path][1])
            for path in self._names:
                del self._objects[path]
            self._objects |= self._deleted
            self._names, self._contents, self._deleted = set(), set(), {}


@dataclass(frozen=True)
class Fault:
    """What goes wrong with a process. counts: which operations are counted; at one of them it happens.

    happen: carries an operation out, or not, given whether it is the chosen one or a later one.
    """

    counts: frozenset[str]
    happen: Callable[[Process, str, Callable[[], object], bool], object]
    is_late: bool = False
    """Whether it goes on to happen at all later operations."""
    loses_power: bool = False
    """Whether the power goes off once the process has ended."""


class Process(DelegatingStore):
    """A disk as one process sees it. pause: what others do while it is stopped. cut: the power goes off."""

    def __init__(self, disk: Disk, fault: Fault, at: int, pause: Callable[[], None], cut: Callable[[], None]) -> None:
        super().__init__(disk)
        self.disk, self.fault, self.at, self.pause, self.cut = disk, fault, at, pause, cut
        self.count = 0
        self.is_dead = self.is_healed = False
        self._putting: tuple[str, Content, Sequence[str]] | None = None

    @property
    def was_met(self) -> bool:
        """Whether it came as far as the operation at which something was to happen."""
        return self.count >= self.at

    def put(self, path: str, data: Content, *, durable: Durable = True, after: Sequence[str] = ()) -> bool:
        content = bytes(data) if isinstance(data, (bytes, memoryview)) else b"".join(data)
        self._putting = (path, content, after)
        return super().put(path, content, durable=durable, after=after)

    def around(self, operation: str, path: str, call: Callable[[], T]) -> T:
        if self.is_dead:
            raise ProcessDied
        if operation not in self.fault.counts or self.is_healed:
            return call()
        self.count += 1
        if self.count == self.at or (self.fault.is_late and self.count > self.at):
            return self.fault.happen(self, operation, call, self.count == self.at)  # type: ignore[return-value]
        return call()

    def die(self) -> None:
        self.is_dead = True
        raise ProcessDied

    def put_without_fsync(self) -> None:
        assert self._putting is not None
        if self.disk.stat(self._putting[0]) is None:
            self.disk.put_without_fsync(*self._putting)


def _dies(process: Process, operation: str, call: Callable[[], object], chosen: bool) -> None:
    process.die()


def _dies_after(process: Process, operation: str, call: Callable[[], object], chosen: bool) -> None:
    call()
    process.die()


def _dies_before_fsync(process: Process, operation: str, call: Callable[[], object], chosen: bool) -> None:
    if operation == "put":
        process.put_without_fsync()
    process.die()


def _sleeps(process: Process, operation: str, call: Callable[[], object], chosen: bool) -> object:
    process.pause()
    return call()


def _refuses(process: Process, operation: str, call: Callable[[], object], chosen: bool) -> None:
    raise StorageUnavailableError(f"the disk refused; nothing was published. {operation}")


def _loses_fsync(process: Process, operation: str, call: Callable[[], object], chosen: bool) -> None:
    if operation == "put":
        process.put_without_fsync()
        raise CommitUnknownError("the file was linked but its folder could not be made durable. EIO")
    raise StorageUnavailableError(f"the disk could not make durable what is there. EIO {operation}")


def _loses_power(process: Process, operation: str, call: Callable[[], object], chosen: bool) -> None:
    process.cut()
    process.die()


def _loses_power_after(process: Process, operation: str, call: Callable[[], object], chosen: bool) -> None:
    call()
    process.cut()
    process.die()


FAULTS: Final = {
    "kill before": Fault(CHANGES, _dies),
    "kill after": Fault(CHANGES, _dies_after),
    "kill before fsync of a folder": Fault(WRITES, _dies_before_fsync),
    "pause past expiry": Fault(CHANGES, _sleeps),
    "disk full": Fault(WRITES, _refuses, is_late=True),
    "read-only": Fault(CHANGES, _refuses, is_late=True),
    "another user's files": Fault(frozenset({"delete"}), _refuses, is_late=True),
    "fsync of a file fails once": Fault(WRITES, _refuses, loses_power=True),
    "fsync of a folder fails once": Fault(WRITES | {"make_durable"}, _loses_fsync, loses_power=True),
    "power cut before": Fault(CHANGES, _loses_power, loses_power=True),
    "power cut after": Fault(CHANGES, _loses_power_after, loses_power=True),
}
"""What may go wrong, by name, at each operation that it is about."""

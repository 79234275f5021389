"""The ground of a simulated process: a disk that loses power, a failing store, a wrong clock.

Disk          objects in memory; knows which of them a power cut may remove
Calls         a process's access to the disk: counts its calls, and lets a `Trouble` happen at one of them
Machine       the process's environment: the common clock with an error; no heartbeats while it stands still
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

from crdt_mor.errors import CommitUnknownError, StorageUnavailableError
from crdt_mor.ground.clock import Process
from crdt_mor.store.memory import MemoryStore
from crdt_mor.store.protocol import Content, Durable, Store
from crdt_mor.testing.clock import SimulatedEnvironment, nonce_of
from crdt_mor.testing.faults import CHANGES, DelegatingStore, ProcessDied
from crdt_mor.testing.simulation.chance import Chance

T = TypeVar("T")

_ASIDE: Final = frozenset({"now_ms"})
"""Calls without troubles."""

Happening = Literal[
    "dies before", "dies after", "fails", "loses the reply", "comes late", "is cut off", "pauses", "freezes"
]
Counted = Literal["change", "call", "sleep"]


_WORDS: Final[dict[Happening, str]] = {
    "dies before": "it dies before {}",
    "dies after": "it dies after {}",
    "fails": "the store fails at {}",
    "loses the reply": "the reply is lost of {}",
    "comes late": "it is told nothing of {}, which comes late",
    "is cut off": "the store answers nothing more from {} on",
    "pauses": "it pauses at {}",
    "freezes": "it stands still at {}",
}
"""Troubles in words."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A trouble at a call of a process.

    happening: "is cut off": a change is carried out, then the store answers nothing more during the action.
    at: number of the call, from 1. of: count changes, all calls, or sleeps.
    steps: actions of others in a pause or before a late put. seconds: length of a pause.
    """

    happening: Happening
    of: Counted
    at: int
    steps: int = 0
    seconds: float = 0.0


class Disk(MemoryStore):
    """A store in memory, with the effect of a power cut on undurable or touched objects.

    `make_durable` makes all names in a folder last, but not the content of objects put with `durable=False`.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms)
        self._volatile: dict[str, Durable] = {}
        self._hollow: set[str] = set()
        self.puts = 0
        """Number of made objects."""

    def load(self, other: Disk) -> None:
        self._objects.update(other._objects)

    def put(self, path: str, data: Content, *, durable: Durable = True, after: Sequence[str] = ()) -> bool:
        if super().stat(path) is None:
            for earlier in after:
                self.make_durable(earlier)
        made = super().put(path, data)
        self.puts += made
        if made and durable is not True:
            self._volatile[path] = durable
        elif made:
            self.make_durable(path)
        return made

    def touch(self, path: str) -> None:
        is_new = super().stat(path) is None
        super().touch(path)
        if is_new:
            self._volatile[path] = False

    def delete(self, path: str) -> None:
        super().delete(path)
        self._volatile.pop(path, None)
        self._hollow.discard(path)

    def make_durable(self, path: str) -> None:
        super().make_durable(path)
        folder = path.rpartition("/")[0]
        for name in [name for name in self._volatile if name.rpartition("/")[0] == folder]:
            if not self._volatile.pop(name):
                self._hollow.add(name)

    def lose_power(self, chance: Chance) -> list[str]:
        gone = [path for path in sorted(self._volatile) if chance.happens(0.7)]
        for path in gone:
            self._objects.pop(path, None)
        emptied = [path for path in sorted(self._hollow) if chance.happens(0.7)]
        for path in emptied:
            self._objects[path] = (b"", self._objects[path][1])
        self._volatile.clear()
        self._hollow.clear()
        return gone + emptied


class Machine:
    """The environment of a process, with a clock `ahead_ms` off."""

    def __init__(self, environment: SimulatedEnvironment, name: str, ahead_ms: int, asleep: Callable[[], None]) -> None:
        self.environment = environment
        self._name = name
        self._asleep = asleep
        self._nonces = 0
        self.ahead_ms = ahead_ms
        self.is_still = False

    def now_ms(self) -> int:
        return self.environment.now_ms() + self.ahead_ms

    def nonce(self) -> str:
        self._nonces += 1
        return nonce_of(f"{self._name}x{self._nonces}")

    def sleep(self, seconds: float) -> None:
        self._asleep()
        self.environment.sleep(seconds)

    @contextmanager
    def every(self, seconds: float, work: Callable[[], None], name: str) -> Iterator[None]:
        def unless_still() -> None:
            if not self.is_still:
                work()

        with self.environment.every(seconds, unless_still, name):
            yield

    def jitter(self) -> float:
        return self.environment.jitter()

    def process(self) -> Process:
        return Process(self._name, "simulated", 1)


@dataclass
class Trace:
    calls: int = 0
    _digest: hashlib.blake2b = field(default_factory=lambda: hashlib.blake2b(digest_size=12))

    def add(self, *what: object) -> None:
        self.calls += 1
        self._digest.update(repr(what).encode())

    def text(self) -> str:
        return self._digest.hexdigest()


class Calls(DelegatingStore):
    """A process's access to the store, with a `Trouble` at a call."""

    def __init__(
        self,
        store: Store,
        name: str,
        trace: Trace,
        meanwhile: Callable[[Trouble, str], None],
        late: Callable[[int, Callable[[], object]], None],
    ) -> None:
        super().__init__(store)
        self._name = name
        self._trace = trace
        self._meanwhile = meanwhile
        self._late = late
        self._counts: dict[Counted, int] = {}
        self._trouble: Trouble | None = None
        self._is_cut_off = False
        self.is_dead = False
        self.happened = ""

    def arm(self, trouble: Trouble | None) -> None:
        self._counts, self._trouble, self.happened = {"change": 0, "call": 0, "sleep": 0}, trouble, ""
        self._is_cut_off = False

    def put(self, path: str, data: Content, *, durable: Durable = True, after: Sequence[str] = ()) -> bool:
        return self.put_to(self.store, path, data, durable, after)

    def put_to(self, store: Store, path: str, data: Content, durable: Durable, after: Sequence[str]) -> bool:
        content = bytes(data) if isinstance(data, bytes | memoryview) else b"".join(data)
        self._trace.add(hashlib.blake2b(content, digest_size=8).hexdigest())
        return self.around("put", path, lambda: store.put(path, content, durable=durable, after=after))

    def at(self, store: Store) -> DelegatingStore:
        return _StoreElsewhere(self, store)

    def asleep(self) -> None:
        if self.is_dead:
            raise ProcessDied
        self._due(("sleep",), "waits")

    def around(self, operation: str, path: str, call: Callable[[], T]) -> T:
        if operation in _ASIDE:
            return call()
        if self.is_dead:
            raise ProcessDied
        if self._is_cut_off:
            raise StorageUnavailableError(f"a simulated store that does not answer. {operation}={path}")
        is_change = operation in CHANGES
        trouble = self._due(("call", "change") if is_change else ("call",), f"{operation} {path}")
        match trouble.happening if trouble else None:
            case "dies before":
                self._die()
            case "fails":
                raise StorageUnavailableError(f"a simulated failure: nothing happened. {operation}={path}")
            case "comes late" if operation == "put":
                assert trouble is not None
                self._late(trouble.steps, call)
                raise CommitUnknownError(f"a simulated lost reply: the put comes late. path={path}")
        result = call()
        self._trace.add(self._name, operation, path, result if isinstance(result, bool) else None)
        match trouble.happening if trouble else None:
            case "dies after":
                self._die()
            case "loses the reply" | "comes late" | "is cut off" if is_change:
                self._is_cut_off = trouble is not None and trouble.happening == "is cut off"
                kind = CommitUnknownError if operation in ("put", "copy") else StorageUnavailableError
                raise kind(f"a simulated lost reply. {operation}={path}")
        return result

    def _die(self) -> None:
        self.is_dead = True
        raise ProcessDied

    def _due(self, counted: tuple[Counted, ...], where: str) -> Trouble | None:
        """Count a call and return its trouble, unless that is a pause, which is over on return."""
        found = None
        for what in counted:
            self._counts[what] = self._counts.get(what, 0) + 1
            trouble = self._trouble
            if trouble is not None and trouble.of == what and trouble.at == self._counts[what]:
                found = trouble
        if found is None:
            return None
        self._trouble = None
        words = _WORDS[found.happening].format(f"its {found.of} number {found.at}, {where}")
        if found.happening in ("pauses", "freezes"):
            self._meanwhile(found, words)
            return None
        self.happened = words
        return found


class _StoreElsewhere(DelegatingStore):
    def __init__(self, calls: Calls, store: Store) -> None:
        super().__init__(store)
        self._calls = calls

    def put(self, path: str, data: Content, *, durable: Durable = True, after: Sequence[str] = ()) -> bool:
        return self._calls.put_to(self.store, path, data, durable, after)

    def around(self, operation: str, path: str, call: Callable[[], T]) -> T:
        return self._calls.around(operation, path, call)

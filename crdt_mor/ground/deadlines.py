"""One deadline per user operation, although a dead store leaves many requests unanswered.

    table.upsert(…)              begins an `Operation`, shared with its threads
      └ each request             is repeated until its deadline, or until the operation lost patience
          └ one gives up         similar requests are not repeated: of its path and, until a request succeeds, of its
                                 kind (reads or changes)
          └ no answer at all     each other object is tried once; if one fails as well, the store is dead, and the
                                 operation asks it nothing more

If the store is dead, an operation fails once, after the deadline of its first request. After occasional failures a long
operation goes on: similar requests are refused for as long as the failed one waited, then tried again. Each store of an
operation has its own patience.

The operation is a context variable, because requests pass through libraries that do not know it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from inspect import isgeneratorfunction
from types import FunctionType
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

WARNED_AFTER_MS: Final = 5_000
"""Time of failing requests before the first warning."""

WARNED_EVERY_MS: Final = 60_000
"""Between an operation's warnings."""

_ENTERED: Final = frozenset({"__init__", "__enter__", "__exit__"})


@dataclass(frozen=True, slots=True)
class Request:
    verb: str
    path: str
    changes: bool


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """A request that failed and is not repeated. `text`: its text for messages."""

    request: Request
    text: str
    tries: int
    began_ms: int
    now_ms: int
    cause: str

    @property
    def seconds(self) -> float:
        return (self.now_ms - self.began_ms) / 1000


@dataclass(frozen=True, slots=True)
class Backoff:
    until_ms: int
    failed: FailedRequest


class Patience:
    """An operation's knowledge of a failing store; thread-safe. `answers` counts the answered requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._backoffs: dict[object, Backoff] = {}
        self._silent: Backoff | None = None
        self._dead: Backoff | None = None
        self.answers = 0

    def note_answer(self, request: Request) -> None:
        with self._lock:
            self.answers += 1
            self._silent = self._dead = None
            if self._backoffs:
                self._backoffs.pop(request, None)
                self._backoffs.pop(request.changes, None)

    def note_failed(self, failed: FailedRequest, answers: int) -> None:
        """Note that a request is not repeated. `answers`: their number when it was first tried."""
        request, waited_ms = failed.request, failed.now_ms - failed.began_ms
        with self._lock:
            before = [backoff.until_ms for backoff in self._backoffs_of(request)]
            backoff = Backoff(max([failed.now_ms + max(1, waited_ms), *before]), failed)
            self._backoffs[request] = self._backoffs[request.changes] = backoff
            if self.answers != answers:
                return
            if self._silent is None or failed.now_ms >= self._silent.until_ms:
                self._silent = backoff
            elif self._silent.failed.request.path != request.path:
                self._dead = self._silent

    def is_backing_off(self, request: Request, now_ms: int) -> bool:
        with self._lock:
            return any(now_ms < backoff.until_ms for backoff in self._backoffs_of(request))

    def _backoffs_of(self, request: Request) -> list[Backoff]:
        noted = (self._backoffs.get(request), self._backoffs.get(request.changes), self._silent)
        return [backoff for backoff in noted if backoff]

    def dead(self, now_ms: int) -> FailedRequest | None:
        """Return the first failed request of a dead store."""
        with self._lock:
            return self._dead.failed if self._dead is not None and now_ms < self._dead.until_ms else None


class Operation:
    """A user operation: its patience with each store, and its warnings; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stores: dict[Hashable, Patience] = {}
        self._warned_ms: int | None = None

    def patience(self, store: Hashable) -> Patience:
        with self._lock:
            return self._stores.setdefault(store, Patience())

    def is_warning_due(self, began_ms: int, now_ms: int) -> bool:
        """Return True if a warning is due for a request failing since `began_ms`, and note it."""
        with self._lock:
            if now_ms - began_ms < WARNED_AFTER_MS:
                return False
            if self._warned_ms is not None and now_ms - self._warned_ms < WARNED_EVERY_MS:
                return False
            self._warned_ms = now_ms
            return True

    def within(self, call: Callable[P, R]) -> Callable[P, R]:
        """Make a call part of this operation in any thread."""

        @wraps(call)
        def part(*args: P.args, **kwargs: P.kwargs) -> R:
            token = _current.set(self)
            try:
                return call(*args, **kwargs)
            finally:
                _current.reset(token)

        return part


_current: ContextVar[Operation | None] = ContextVar("crdt_mor_operation", default=None)


def current_operation() -> Operation:
    return _current.get() or Operation()


def operation(call: Callable[P, R]) -> Callable[P, R]:
    """Make a function's call an operation, or a part of the caller's."""

    @wraps(call)
    def as_operation(*args: P.args, **kwargs: P.kwargs) -> R:
        if _current.get() is not None:
            return call(*args, **kwargs)
        token = _current.set(Operation())
        try:
            return call(*args, **kwargs)
        finally:
            _current.reset(token)

    return as_operation


def operations(class_: type[C]) -> type[C]:
    """Make a class's public methods, and its `with` blocks, operations."""
    for name, member in list(vars(class_).items()):
        if name.startswith("_") and name not in _ENTERED:
            continue
        if isinstance(member, classmethod):
            setattr(class_, name, classmethod(operation(member.__func__)))
        elif isinstance(member, FunctionType) and not isgeneratorfunction(member):
            setattr(class_, name, operation(member))
    return class_

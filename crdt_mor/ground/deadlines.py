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
class Asked:
    what: str
    path: str
    changes: bool


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A request that failed and is not repeated. `where`: its text for messages."""

    asked: Asked
    where: str
    tries: int
    began_ms: int
    now_ms: int
    cause: str

    @property
    def seconds(self) -> float:
        return (self.now_ms - self.began_ms) / 1000


@dataclass(frozen=True, slots=True)
class Lost:
    until_ms: int
    with_: GivenUp


class Patience:
    """An operation's knowledge of a failing store; thread-safe. `answers` counts the answered requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lost: dict[object, Lost] = {}
        self._silent: Lost | None = None
        self._dead: Lost | None = None
        self.answers = 0

    def note_answer(self, asked: Asked) -> None:
        with self._lock:
            self.answers += 1
            self._silent = self._dead = None
            if self._lost:
                self._lost.pop(asked, None)
                self._lost.pop(asked.changes, None)

    def note_given_up(self, given_up: GivenUp, answers: int) -> None:
        """Note that a request is not repeated. `answers`: their number when it was first tried."""
        asked, waited_ms = given_up.asked, given_up.now_ms - given_up.began_ms
        with self._lock:
            before = [lost.until_ms for lost in self._of(asked)]
            lost = Lost(max([given_up.now_ms + max(1, waited_ms), *before]), given_up)
            self._lost[asked] = self._lost[asked.changes] = lost
            if self.answers != answers:
                return
            if self._silent is None or given_up.now_ms >= self._silent.until_ms:
                self._silent = lost
            elif self._silent.with_.asked.path != asked.path:
                self._dead = self._silent

    def is_lost(self, asked: Asked, now_ms: int) -> bool:
        with self._lock:
            return any(now_ms < lost.until_ms for lost in self._of(asked))

    def _of(self, asked: Asked) -> list[Lost]:
        return [lost for lost in (self._lost.get(asked), self._lost.get(asked.changes), self._silent) if lost]

    def dead(self, now_ms: int) -> GivenUp | None:
        """Return the first failed request of a dead store."""
        with self._lock:
            return self._dead.with_ if self._dead is not None and now_ms < self._dead.until_ms else None


class Operation:
    """A user operation: its patience with each store, and its warnings; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stores: dict[Hashable, Patience] = {}
        self._told_ms: int | None = None

    def patience(self, store: Hashable) -> Patience:
        with self._lock:
            return self._stores.setdefault(store, Patience())

    def is_time_to_tell(self, began_ms: int, now_ms: int) -> bool:
        """Return True if a warning is due for a request failing since `began_ms`, and note it."""
        with self._lock:
            if now_ms - began_ms < WARNED_AFTER_MS:
                return False
            if self._told_ms is not None and now_ms - self._told_ms < WARNED_EVERY_MS:
                return False
            self._told_ms = now_ms
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
    def begun(*args: P.args, **kwargs: P.kwargs) -> R:
        if _current.get() is not None:
            return call(*args, **kwargs)
        token = _current.set(Operation())
        try:
            return call(*args, **kwargs)
        finally:
            _current.reset(token)

    return begun


def operations(held: type[C]) -> type[C]:
    """Make a class's public methods, and its `with` blocks, operations."""
    for name, member in list(vars(held).items()):
        if name.startswith("_") and name not in _ENTERED:
            continue
        if isinstance(member, classmethod):
            setattr(held, name, classmethod(operation(member.__func__)))
        elif isinstance(member, FunctionType) and not isgeneratorfunction(member):
            setattr(held, name, operation(member))
    return held

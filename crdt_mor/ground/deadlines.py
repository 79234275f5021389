"""One deadline for one operation of a user, however many requests of it a store leaves unanswered.

    table.upsert(…)              begins an `Operation`, which the threads that it begins share
      └ each request             is repeated until its deadline, or until its operation has lost patience
          └ one gives up         no request like it is repeated from here on: not of its path, nor, as long as none has
                                 succeeded, of its kind, reads or changes
          └ nothing was answered each other object is tried once; where one fails as well, the store is dead: nothing
                                 more is asked of it at all

So a store that is dead fails an operation once, after the deadline of its first request, and not as often as a protocol
asks for something else, or for the same again. An operation of hours, of which a request fails now and then, waits for
each of them. What an operation has lost patience with, it tries again after as long as it had waited for it. Of two
stores in one operation, such as a migration between two buckets, each is waited for.

The operation is in a context variable, as what is asked of a store passes through libraries that know nothing of it.
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
"""How long a request has failed when its user is told for the first time."""

WARNED_EVERY_MS: Final = 60_000
"""How long an operation says nothing more of it then."""

_ENTERED: Final = frozenset({"__init__", "__enter__", "__exit__"})


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for. what: the name of what the store is to do. changes: whether it changes something."""

    what: str
    path: str
    changes: bool


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A request that was asked for in vain and is not repeated.

    where: what was asked for, and where, as messages have it. cause: what the store had said at last.
    """

    asked: Asked
    where: str
    tries: int
    began_ms: int
    now_ms: int
    cause: str

    @property
    def seconds(self) -> float:
        """How long it was asked for."""
        return (self.now_ms - self.began_ms) / 1000


@dataclass(frozen=True, slots=True)
class Lost:
    """Patience that was lost. until_ms: when it is found again. with_: the request that it was lost with."""

    until_ms: int
    with_: GivenUp


class Patience:
    """What one operation knows of one store that fails. Safe to share between threads. Times are those of one clock.

    answers: how many requests of the operation the store has answered.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lost: dict[object, Lost] = {}
        self._silent: Lost | None = None
        self._dead: Lost | None = None
        self.answers = 0

    def note_answer(self, asked: Asked) -> None:
        """The store has done what it was asked."""
        with self._lock:
            self.answers += 1
            self._silent = self._dead = None
            if self._lost:
                self._lost.pop(asked, None)
                self._lost.pop(asked.changes, None)

    def note_given_up(self, given_up: GivenUp, answers: int) -> None:
        """A request is not repeated. answers: how many there were when it was first asked for."""
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
        """Whether a request is not to be repeated."""
        with self._lock:
            return any(now_ms < lost.until_ms for lost in self._of(asked))

    def _of(self, asked: Asked) -> list[Lost]:
        """What was lost of the patience with a request: with its own path, with its kind, with the whole store."""
        return [lost for lost in (self._lost.get(asked), self._lost.get(asked.changes), self._silent) if lost]

    def dead(self, now_ms: int) -> GivenUp | None:
        """The request that the store was first asked for in vain, where it is not to be asked any more; else None."""
        with self._lock:
            return self._dead.with_ if self._dead is not None and now_ms < self._dead.until_ms else None


class Operation:
    """One operation of a user: its patience with each store, and what its user was told. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stores: dict[Hashable, Patience] = {}
        self._told_ms: int | None = None

    def patience(self, store: Hashable) -> Patience:
        """The patience with a store. store: what tells it from any other."""
        with self._lock:
            return self._stores.setdefault(store, Patience())

    def is_time_to_tell(self, began_ms: int, now_ms: int) -> bool:
        """Whether to tell of the wait for a request that has failed since `began_ms`; then it is not for a while."""
        with self._lock:
            if now_ms - began_ms < WARNED_AFTER_MS:
                return False
            if self._told_ms is not None and now_ms - self._told_ms < WARNED_EVERY_MS:
                return False
            self._told_ms = now_ms
            return True

    def within(self, call: Callable[P, R]) -> Callable[P, R]:
        """A call that is part of this operation, in whatever thread it is made."""

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
    """The operation that is under way here; a new one, of what is asked next alone, where none is."""
    return _current.get() or Operation()


def operation(call: Callable[P, R]) -> Callable[P, R]:
    """A function whose call is one operation of a user, or a part of the one that calls it."""

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
    """A class whose public methods are operations of a user, and so are the entering and leaving of its blocks."""
    for name, member in list(vars(held).items()):
        if name.startswith("_") and name not in _ENTERED:
            continue
        if isinstance(member, classmethod):
            setattr(held, name, classmethod(operation(member.__func__)))
        elif isinstance(member, FunctionType) and not isgeneratorfunction(member):
            setattr(held, name, operation(member))
    return held

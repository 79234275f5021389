"""Report events of tables to `logging` and to the callbacks of `observe`.

    the engine ── one value for each event ──► emit ──┬──► logging.getLogger("crdt_mor.<room>")
                                                      └──► each callback

Events contain no row values and no options. Each is reported after it happened, in its own thread and process. A
callback's first failure is logged; later events still call it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from types import TracebackType
from typing import Self

from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.observing_events import Event

_LOGGER = logging.getLogger("crdt_mor")
_LOGGER.addHandler(logging.NullHandler())  # silent unless the user asks

Tell = Callable[[Event], None]


def tell_nobody(event: Event) -> None:
    """Ignore events, for protocols that run without a table."""


@dataclass(frozen=True, slots=True)
class TableReporter:
    table: str
    uri: str

    def __call__(self, event: Event) -> None:
        emit(replace(event, table=self.table, uri=self.uri))


# --- who is told ------------------------------------------------------------------------------------------------------


class Observation:
    """A registered callback, until `remove` or the end of its `with` block."""

    def __init__(self, callback: Callable[[Event], None]) -> None:
        self._callback = callback
        self._failed = False

    @property
    def is_active(self) -> bool:
        """True until `remove`."""
        return self in _observers.all

    def remove(self) -> None:
        """Remove the callback; may be repeated."""
        with _observers.changing:
            _observers.all = tuple(other for other in _observers.all if other is not self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def _tell(self, event: Event) -> None:
        try:
            self._callback(event)
        except Exception:  # noqa: BLE001  a callback must not break a commit
            if not self._failed:
                self._failed = True
                facts: dict[str, object] = {"event": "callback_failed", "callback": repr(self._callback)}
                _log(_LOGGER, logging.ERROR, "a callback of crdt_mor.observe failed", facts, traceback=True)


class _Observers:
    def __init__(self) -> None:
        self.changing = threading.Lock()
        self.all: tuple[Observation, ...] = ()
        self.log_failed = False


_observers = _Observers()


def observe(callback: Callable[[Event], None]) -> Observation:
    """Call `callback` with each event of every table in this process, until the handle is removed.

    `with mor.observe(events.append): …` ends with the block; otherwise call `handle.remove()`.

    Args:
        callback: called in the acting thread, between the commit and the return of the call. It should be quick and
            must not write to the table. Its exceptions are logged once.

    Example:
        >>> with mor.observe(lambda event: print(event.name, event.rows)):
        ...     commit = table.upsert(pl.DataFrame({"id": ["c"], "views": [3]}))
        commit 1
    """
    if not callable(callback):
        raise InvalidInputError(f"pass a function of one event as `callback`. got={callback!r}")
    observation = Observation(callback)
    with _observers.changing:
        _observers.all = (*_observers.all, observation)
    return observation


def emit(event: Event) -> None:
    """Report an event. Never raises an `Exception`."""
    logger, level = _logger(event.room), event.level
    if logger.isEnabledFor(level):
        _log(logger, level, event.message, event.facts())
    for observation in _observers.all:
        observation._tell(event)  # noqa: SLF001  its own module


@cache
def _logger(room: str) -> logging.Logger:
    return _LOGGER.getChild(room)


def _log(logger: logging.Logger, level: int, message: str, facts: dict[str, object], traceback: bool = False) -> None:
    try:
        logger.log(level, message, extra={"crdt_mor": facts}, exc_info=traceback)
    except Exception as error:  # noqa: BLE001  as above
        _report_to_stderr(error)


def _report_to_stderr(error: Exception) -> None:
    """Report a failing log handler once, as `logging` does."""
    if not _observers.log_failed and logging.lastResort is not None:
        _observers.log_failed = True
        text = "a log handler or filter failed on a record of crdt_mor; further failures are ignored: %r"
        logging.lastResort.handle(logging.LogRecord("crdt_mor", logging.ERROR, __file__, 0, text, (error,), None))

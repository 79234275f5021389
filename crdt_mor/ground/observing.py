"""What happens to tables, told to those who want to know: to `logging`, and to callbacks that `observe` was given.

    the engine ── one value for each event ──► emit ──┬──► logging.getLogger("crdt_mor.<room>")
                                                      └──► each callback

An event says what happened to which table, in numbers and names: no values of rows and no options of anybody's. It is
told by the process that made it happen, in the thread that did, when it has happened. A callback that
fails changes nothing about it: its first failure is logged, and the callback is still called for later events.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.observing_events import Event

_LOGGER = logging.getLogger("crdt_mor")
_LOGGER.addHandler(logging.NullHandler())  # a library says nothing where its user has not asked for it

Tell = Callable[[Event], None]


def tell_nobody(event: Event) -> None:
    """What protocols tell that run without a table, as in a search."""


@dataclass(frozen=True, slots=True)
class Teller:
    """Tells of one table's events: adds which table it is."""

    table: str
    uri: str

    def __call__(self, event: Event) -> None:
        emit(replace(event, table=self.table, uri=self.uri))


# --- who is told ------------------------------------------------------------------------------------------------------


class Observation:
    """A callback that is told of events until it is removed: by `remove`, or at the end of a `with` block."""

    def __init__(self, callback: Callable[[Event], None]) -> None:
        self._callback = callback
        self._failed = False

    def remove(self) -> None:
        """Tell the callback no more; once more does nothing."""
        with _listening.changing:
            _listening.all = tuple(other for other in _listening.all if other is not self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def _tell(self, event: Event) -> None:
        try:
            self._callback(event)
        except Exception:  # noqa: BLE001  whatever a callback raises must not break the commit that it is told of
            if not self._failed:
                self._failed = True
                facts: dict[str, object] = {"event": "callback_failed", "callback": repr(self._callback)}
                _log(_LOGGER, logging.ERROR, "a callback of crdt_mor.observe failed", facts, traceback=True)


class _Listening:
    """Who listens in this process."""

    def __init__(self) -> None:
        self.changing = threading.Lock()
        self.all: tuple[Observation, ...] = ()
        self.loggers: dict[str, logging.Logger] = {}
        self.log_failed = False


_listening = _Listening()


def observe(callback: Callable[[Event], None]) -> Observation:
    """Call `callback` with each event of every table in this process from now on, until the handle is removed.

    callback: is called in the thread that did it, between the commit and the return of the call, so it is to be quick,
        and must not write to the table itself. What it raises is logged the first time, and breaks nothing.

    `with mor.observe(events.append): …` ends with the block; without a block, `handle.remove()` ends it.
    """
    if not callable(callback):
        raise InvalidInputError(f"a callback is a function of one event. got={callback!r}")
    observation = Observation(callback)
    with _listening.changing:
        _listening.all = (*_listening.all, observation)
    return observation


def emit(event: Event) -> None:
    """Tell everybody who wants to know. Costs next to nothing where nobody does, and never raises an `Exception`."""
    logger, level = _logger(event.room), event.level
    if logger.isEnabledFor(level):
        _log(logger, level, event.message, event.facts())
    for observation in _listening.all:
        observation._tell(event)  # noqa: SLF001  its own module


def _logger(room: str) -> logging.Logger:
    if room not in _listening.loggers:
        _listening.loggers[room] = _LOGGER.getChild(room)
    return _listening.loggers[room]


def _log(logger: logging.Logger, level: int, message: str, facts: dict[str, object], traceback: bool = False) -> None:
    """One log record. A handler or filter that raises is the user's affair, and no reason to fail a commit."""
    try:
        logger.log(level, message, extra={"crdt_mor": facts}, exc_info=traceback)
    except Exception as error:  # noqa: BLE001  as above
        _report_to_stderr(error)


def _report_to_stderr(error: Exception) -> None:
    """Say once that a log handler fails, in the way in which `logging` itself does where nothing else is set up."""
    if not _listening.log_failed and logging.lastResort is not None:
        _listening.log_failed = True
        text = "a log handler or filter failed on a record of crdt_mor, which is ignored from now on: %r"
        logging.lastResort.handle(logging.LogRecord("crdt_mor", logging.ERROR, __file__, 0, text, (error,), None))

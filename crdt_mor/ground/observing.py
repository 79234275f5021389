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
from dataclasses import dataclass, fields, replace
from types import TracebackType
from typing import ClassVar, Literal, Self

from crdt_mor.errors import InvalidInputError

_LOGGER = logging.getLogger("crdt_mor")
_LOGGER.addHandler(logging.NullHandler())  # a library says nothing where its user has not asked for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that this process has done to a table.

    table: the table's name. uri: its address, as it was opened; "" where a part of a read came from another process.
    """

    table: str = ""
    uri: str = ""

    room: ClassVar[str] = "timeline"

    @property
    def name(self) -> str:
        """What happened, in one word that never changes: `commit`, `race_lost`, `rollback`, …"""
        raise NotImplementedError

    @property
    def message(self) -> str:
        """The message of its log record: the same text for every event of this kind, but for a `WaitEvent`."""
        raise NotImplementedError

    @property
    def level(self) -> int:
        """The level of its log record, as in `logging`."""
        return logging.INFO

    def facts(self) -> dict[str, object]:
        """All of it as texts, numbers and booleans: `record.crdt_mor` of its log record, ready for JSON."""
        return {"event": self.name} | {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEvent(Event):
    """A write of this process is complete and visible. A repeat, by token or job, that writes nothing tells nothing.

    requested, completed: its place among the writes of a key, and when readers began to see it, as 17 digits.
    version: the version of the timeline that shows it first. operation: INSERT, UPSERT or DELETE.
    rows, deletes, files, bytes: how much the commit added.
    duration_ms: from the begin of the write in this process to here, by this process's clock. The driver of a
        distributed write begins when it is asked to complete it.
    """

    requested: str
    completed: str
    version: int
    operation: str
    rows: int
    deletes: int
    files: int
    bytes: int
    duration_ms: int

    room: ClassVar[str] = "write"

    @property
    def name(self) -> str:
        return "commit"

    @property
    def message(self) -> str:
        return "commit"


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceLostEvent(Event):
    """Another process published the next version of the timeline first, or the store did not say who did: once more.

    Nothing is lost by it, as the event derives again from the new version. version: the one that was not to be ours.
    attempt: how often this event has lost, beginning with 1.
    """

    version: int
    attempt: int

    @property
    def name(self) -> str:
        return "race_lost"

    @property
    def message(self) -> str:
        return "lost a race, trying again"

    @property
    def level(self) -> int:
        return logging.DEBUG


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackEvent(Event):
    """This process has rolled a pending write back: nothing of it was visible, and nothing will be.

    requested: of the write. version: the version that rolled it back. others: it was not this process's own write but
    one that had been silent for longer than the expiry, so that its writer is dead, stuck or cut off; or somebody named
    it to `maintenance.roll_back`.
    """

    requested: str
    version: int
    others: bool

    @property
    def name(self) -> str:
        return "rollback"

    @property
    def message(self) -> str:
        return "rolled back the write of another process" if self.others else "rolled back"

    @property
    def level(self) -> int:
        return logging.WARNING if self.others else logging.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEvent(Event):
    """A plan of a service, such as a compaction, has come a step further.

    state: `executed` is told by each process that wrote outputs of it, the others once, by the one that published it.
    barrier: the plan's name. action: Hudi's word for it, `compaction`. file_groups, rows, bytes, duration_ms: of the
    file groups that it plans, of the outputs, and of this process's execution; 0 where that is not known.
    """

    state: Literal["scheduled", "executed", "completed", "cancelled"]
    barrier: str
    action: str
    file_groups: int = 0
    rows: int = 0
    bytes: int = 0
    duration_ms: int = 0

    room: ClassVar[str] = "services"

    @property
    def name(self) -> str:
        return f"plan_{self.state}"

    @property
    def message(self) -> str:
        return f"plan {self.state}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartEvent(Event):
    """A part of a plan, such as one file group of a compaction, is executed: what a progress bar counts.

    barrier: the plan's name. action: Hudi's word for it. parts: how many the plan has, as it was executed here.
    rows, bytes: of the part's outputs. Told in whatever thread executed it.
    """

    barrier: str
    action: str
    parts: int
    rows: int
    bytes: int

    room: ClassVar[str] = "services"

    @property
    def name(self) -> str:
        return "plan_part"

    @property
    def message(self) -> str:
        return "part of a plan executed"

    @property
    def level(self) -> int:
        return logging.DEBUG


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepEvent(Event):
    """`maintain`, or a writer that was asked for upkeep, has done something that was due, or could not.

    service: `compaction`, `clean`, `sweep`, … state: `done`; `refused`, where the table or this release forbids it;
    `failed`. inline: it was done by a writer after its commit, which stands whatever came of this.
    why: what made it due, in words. error: why it was refused or failed.
    """

    service: str
    state: Literal["done", "refused", "failed"]
    why: str
    inline: bool = False
    error: str = ""

    room: ClassVar[str] = "services"

    @property
    def name(self) -> str:
        return "upkeep"

    @property
    def message(self) -> str:
        return f"upkeep {self.state}"

    @property
    def level(self) -> int:
        return logging.WARNING if self.state == "failed" else logging.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionEvent(Event):
    """Commits that Hudi's own writers made are part of the table's timeline from `version` on.

    commits: how many. cancelled: how many open plans were cancelled, as they would have hidden one of them.
    """

    version: int
    commits: int
    cancelled: int

    @property
    def name(self) -> str:
        return "adoption"

    @property
    def message(self) -> str:
        return "adopted commits of Hudi's"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEvent(Event):
    """What dead writers had left was looked for and removed. forgotten: given-up writes of which nothing is left."""

    version: int
    forgotten: int

    @property
    def name(self) -> str:
        return "sweep"

    @property
    def message(self) -> str:
        return "swept"

    @property
    def level(self) -> int:
        return logging.DEBUG


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitEvent(Event):
    """An operation of this process waits for a store that fails: told after 5 s, and then each minute.

    uri: of the table's store. request: what it waits for, as `put=.hoodie/…`. tries: how often that was asked for.
    waited_s, deadline_s: how long so far, and how long at most (the storage option `retry_timeout`). cause: what the
    store or the network said last.
    """

    request: str
    tries: int
    waited_s: float
    deadline_s: float
    cause: str

    room: ClassVar[str] = "store"

    @property
    def name(self) -> str:
        return "store_wait"

    @property
    def message(self) -> str:
        return (
            f"waiting for a store that fails, {self.waited_s:.0f} s of at most {self.deadline_s:.0f} s. {self.request} "
            f"store={self.uri} tries={self.tries} cause={self.cause}"
        )

    @property
    def level(self) -> int:
        return logging.WARNING


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

"""Events of tables as values; `ground.observing` reports them. Message and level are those of the log record."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from typing import ClassVar, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An action of this process on a table.

    Attributes:
        table: the table's name.
        uri: its address as opened; "" if a part of a read came from another process.
    """

    table: str = ""
    uri: str = ""

    room: ClassVar[str] = "timeline"
    _name: ClassVar[str]
    """The format of `name`. `0` is the event, also in `_message`."""
    _message: ClassVar[str]
    _level: ClassVar[int] = logging.INFO

    @property
    def name(self) -> str:
        """The event's kind, a word that never changes: `commit`, `race_lost`, `rollback`, …"""
        return self._name.format(self)

    @property
    def message(self) -> str:
        """The log message."""
        return self._message.format(self)

    @property
    def level(self) -> int:
        return self._level

    def facts(self) -> dict[str, object]:
        """Return all fields as text, numbers and booleans, ready for JSON: `record.crdt_mor` of the log record."""
        return {"event": self.name} | {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEvent(Event):
    """A write of this process is complete and visible. Repeated tokens and jobs report nothing.

    Attributes:
        requested, completed: its place among the writes of a key, and the time of visibility, as 17 digits.
        version: the timeline version that first shows it.
        operation: INSERT, UPSERT or DELETE.
        rows, deletes: of this write.
        files, bytes: of the commit; 0 if another process reports it, so that sums are right.
        writers: processes in the commit; several in a group of small writes.
        duration_ms: since the begin of the write, or for a distributed write of its completion.
        way, reason: "alone" in one event, "post" with writes of others, or "begin" in two events; and why.
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
    writers: int = 1
    way: str
    reason: str

    room: ClassVar[str] = "write"
    _name: ClassVar[str] = "commit"
    _message: ClassVar[str] = "commit"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent(Event):
    """A write of more rows than fit in memory made progress. A `CommitEvent` follows its last part.

    Attributes:
        state: `read`, rows of the input are in the temporary file; `staged`, a part is in files of the table.
        rows: of this event. Rows of the same key become one row between the states.
        parts: number of parts of the write; 0 while the input is read.
    """

    state: Literal["read", "staged"]
    rows: int
    parts: int = 0

    room: ClassVar[str] = "write"
    _name: ClassVar[str] = "stream_{0.state}"
    _message: ClassVar[str] = "stream {0.state}"
    _level: ClassVar[int] = logging.DEBUG


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceLostEvent(Event):
    """Another process published the next version first, or the store did not tell. The write tries again.

    Attributes:
        attempt: number of lost races, from 1.
    """

    version: int
    attempt: int

    _name: ClassVar[str] = "race_lost"
    _message: ClassVar[str] = "lost a race, trying again"
    _level: ClassVar[int] = logging.DEBUG


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackEvent(Event):
    """This process rolled back a pending write, which was never visible.

    Attributes:
        requested: of the write.
        version: the version that rolled it back.
        others: True for another process's write, silent past the expiry or named in `maintenance.roll_back`.
    """

    requested: str
    version: int
    others: bool

    _name: ClassVar[str] = "rollback"

    @property
    def message(self) -> str:
        return "rolled back the write of another process" if self.others else "rolled back"

    @property
    def level(self) -> int:
        return logging.WARNING if self.others else logging.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEvent(Event):
    """A plan of a service, such as a compaction, made a step.

    Attributes:
        state: each executing process reports `executed`; the publisher reports other states once.
        barrier: the plan's name.
        action: Hudi's name, such as `compaction`.
        file_groups, rows, bytes, duration_ms: of the plan, the outputs, and this process's execution; 0 if unknown.
    """

    state: Literal["scheduled", "executed", "completed", "cancelled"]
    barrier: str
    action: str
    file_groups: int = 0
    rows: int = 0
    bytes: int = 0
    duration_ms: int = 0

    room: ClassVar[str] = "services"
    _name: ClassVar[str] = "plan_{0.state}"
    _message: ClassVar[str] = "plan {0.state}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartEvent(Event):
    """A part of a plan, such as a file group of a compaction, is executed. Reported in any thread.

    Attributes:
        parts: of the plan. rows, bytes: of the part's outputs.
    """

    barrier: str
    action: str
    parts: int
    rows: int
    bytes: int

    room: ClassVar[str] = "services"
    _name: ClassVar[str] = "plan_part"
    _message: ClassVar[str] = "part of a plan executed"
    _level: ClassVar[int] = logging.DEBUG


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepEvent(Event):
    """`maintain`, or a writer's upkeep, did work that was due, or could not.

    Attributes:
        service: `compaction`, `clean`, `sweep`, …
        state: `done`, `failed`, or `refused` if the table or this release forbids it.
        inline: done by a writer after its commit, which stands in any case.
        why: the reason in words.
        error: of a refusal or failure.
    """

    service: str
    state: Literal["done", "refused", "failed"]
    why: str
    inline: bool = False
    error: str = ""

    room: ClassVar[str] = "services"
    _name: ClassVar[str] = "upkeep"
    _message: ClassVar[str] = "upkeep {0.state}"

    @property
    def level(self) -> int:
        return logging.WARNING if self.state == "failed" else logging.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionEvent(Event):
    """Commits of Hudi's writers became part of the timeline.

    Attributes:
        version: the version that adopted them.
        commits: their number.
        cancelled: number of cancelled open plans, which would have hidden a commit.
    """

    version: int
    commits: int
    cancelled: int

    _name: ClassVar[str] = "adoption"
    _message: ClassVar[str] = "adopted commits of Hudi's"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEvent(Event):
    """Remains of dead writers were removed.

    `forgotten` counts given-up writes without further remains.
    """

    version: int
    forgotten: int

    _name: ClassVar[str] = "sweep"
    _message: ClassVar[str] = "swept"
    _level: ClassVar[int] = logging.DEBUG


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitEvent(Event):
    """An operation waits for a failing store: reported after 5 s, then each minute.

    Attributes:
        uri: of the table's store.
        request: such as `put=.hoodie/…`.
        tries: number of attempts.
        waited_s, deadline_s: time so far and maximum (storage option `retry_timeout`).
        cause: the last error.
    """

    request: str
    tries: int
    waited_s: float
    deadline_s: float
    cause: str

    room: ClassVar[str] = "store"
    _name: ClassVar[str] = "store_wait"
    _level: ClassVar[int] = logging.WARNING

    @property
    def message(self) -> str:
        return (
            f"waiting for a store that fails, {self.waited_s:.0f} s of at most {self.deadline_s:.0f} s. {self.request} "
            f"store={self.uri} tries={self.tries} cause={self.cause}"
        )

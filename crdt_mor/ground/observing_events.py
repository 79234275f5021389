"""What happens to tables, as values: an event says what happened to which table, in numbers and names.

`ground.observing` tells of them. The message and the level of an event are those of its log record.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from typing import ClassVar, Literal


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
    rows, deletes: how much this write added. files, bytes: how much the commit did; 0 where another process published
        it, and tells of them, so that sums over all processes are right.
    writers: how many processes' writes became this commit: several where small ones were committed together.
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
    writers: int = 1

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

"""What Hudi's own readers are told: the files of Hudi's timeline directory, as a function of one value.

Which files an action has, in which order they are put, and what they hold, the table in `timeline.actions` says. The
files of a cancelled plan are removed.

The completion in the value says everything that a completed file holds, so any helper can project any event, and the
bytes are the same whoever does. Every completed file carries the value's joined schema, since Hudi's readers take the
table's schema from the commit with the greatest requested time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import TimelineFileName, TimelineState, join_path
from crdt_mor.model.schema import TableSchema
from crdt_mor.model.timeline import Completion, Timeline
from crdt_mor.timeline.actions import WRITE, Action, action_ending_as, action_named, planned_action
from crdt_mor.timeline.records import PENDING_WRITE
from crdt_mor.timeline.steps import Read, Steps


@lru_cache(maxsize=64)
def avro_schema(schema: str, table: str) -> str:
    """Avro JSON of a schema as the timeline value holds it."""
    return TableSchema.from_json(schema).avro(table)


@dataclass(frozen=True, slots=True)
class Projector:
    """Projects the events of one table."""

    config: TableConfig

    @property
    def folder(self) -> str:
        """Hudi's timeline directory."""
        return join_path(".hoodie", self.config.timeline_path)

    @property
    def archive(self) -> str:
        """Where Hudi archives what leaves that directory."""
        return join_path(self.folder, self.config.history_path)

    def path(self, name: TimelineFileName) -> str:
        return f"{self.folder}/{name}"

    def pending_paths(self, instant: InstantTime, action: str) -> list[str]:
        """The files of a pending instant, in the order in which to put them."""
        row = action_named(action)
        return self._paths(instant, row, (*row.begun, *row.ending))

    def _paths(self, instant: InstantTime, action: Action, states: Iterable[TimelineState]) -> list[str]:
        return [self.path(TimelineFileName(instant, action.name, state)) for state in states]

    def files(self, value: Timeline) -> Steps[list[tuple[str, bytes]]]:
        """The files of the events that `value.version` published, in the order in which to put them."""
        files: list[tuple[str, bytes]] = []
        for pending in value.pending:
            if pending.version == value.version:
                files += self._begun(pending.requested, WRITE, PENDING_WRITE)
        for plan in value.plans:
            data = (yield Read(plan.path)) if plan.version == value.version else None
            if data is not None:
                action = planned_action(plan.action)
                files += self._begun(plan.barrier, action, action.encode_record(action.decode(data, plan.path)))
        for completion in value.completions:
            if completion.version == value.version and not completion.adopted:
                files += self._ended(completion, value.schema)
        return files

    def _begun(self, instant: InstantTime, action: Action, record: bytes) -> list[tuple[str, bytes]]:
        return [(path, record) for path in self._paths(instant, action, action.begun)]

    def _ended(self, completion: Completion, schema: str) -> list[tuple[str, bytes]]:
        action = action_ending_as(completion.action)
        files = []
        if action is WRITE and not completion.files:  # growth of the schema begins and ends in one event
            files += self._begun(completion.requested, WRITE, PENDING_WRITE)
        files += [(path, b"") for path in self._paths(completion.requested, action, action.ending)]
        return [*files, (self.path(completed_name(completion)), self._completed(completion, schema))]

    def _completed(self, completion: Completion, schema: str) -> bytes:
        encode = action_ending_as(completion.action).encode_completed
        return encode(completion, avro_schema(schema, self.config.name))


def completed_name(completion: Completion) -> TimelineFileName:
    """The name of the completed file of a commit."""
    return TimelineFileName(completion.requested, completion.action, "completed", completion.completed)

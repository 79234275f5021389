"""What Hudi's own readers are told: the files of Hudi's timeline directory, as a function of one value.

    write    T.deltacommit.inflight, T.deltacommit.requested   ...   T_C.deltacommit
    plan     b.compaction.requested   ...   b.compaction.inflight, b_C.commit     a cancelled plan's file is removed

Every file of an instant that may still be given up bears our key, so a sweep knows it for ours, be it all that is left.
(Hudi leaves `deltacommit.requested` empty, and none of its readers looks into it.) Hudi's readers open the record of a
plan, `compaction.requested`, wherever they see another file of it: so there is no other one before it is completed, and
a helper that puts a file of a cancelled plan, and dies, never makes the table unreadable.

The completion in the value says everything that a completed file holds, so any helper can project any event, and the
bytes are the same whoever does. Every completed file carries the value's joined schema, since Hudi's readers take the
table's schema from the commit with the greatest requested time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from crdt_mor.format.commit import CommitMetadata, WriteStat, encode_commit
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import OWN_KEY, TimelineFileName, TimelineState, join_path
from crdt_mor.model.plans import CompactionPlan
from crdt_mor.model.schema import TableSchema
from crdt_mor.model.timeline import Completion, DataFile, Timeline
from crdt_mor.timeline.plan_record import encode_plan_record
from crdt_mor.timeline.steps import Read, Steps

_PENDING = encode_commit(CommitMetadata(stats={}, operation="UPSERT", extra={OWN_KEY: "1"}))
"""What the files of a pending instant hold, all but a plan's own record."""

PENDING_ACTIONS: dict[str, tuple[TimelineState, TimelineState]] = {
    "deltacommit": ("inflight", "requested"),
    "compaction": ("requested", "inflight"),
}
"""The files of an instant before the completed one, in the order in which they are put; removed in the reverse order.

Tables have `.deltacommit.requested` and `.compaction.inflight` files of ours without our key, made before this was so.
"""


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
        return [self.path(TimelineFileName(instant, action, state)) for state in PENDING_ACTIONS[action]]

    def files(self, value: Timeline) -> Steps[list[tuple[str, bytes]]]:
        """The files of the events that `value.version` published, in the order in which to put them."""
        found: list[tuple[str, bytes]] = []
        for pending in value.pending:
            if pending.version == value.version:
                found += self._begun(pending.requested)
        for plan in value.plans:
            if plan.version == value.version:
                data = yield Read(plan.path)
                if data is not None:
                    record = encode_plan_record(CompactionPlan.decode(data, plan.path))
                    found.append((self.pending_paths(plan.barrier, "compaction")[0], record))
        for completion in value.completions:
            if completion.version == value.version and not completion.adopted:
                if not completion.files and completion.action == "deltacommit":
                    found += self._begun(completion.requested)
                if completion.action == "commit":
                    found.append((self.pending_paths(completion.requested, "compaction")[1], b""))
                found.append((self.path(completed_name(completion)), self._completed(completion, value.schema)))
        return found

    def _begun(self, requested: InstantTime) -> list[tuple[str, bytes]]:
        return [(path, _PENDING) for path in self.pending_paths(requested, "deltacommit")]

    def _completed(self, completion: Completion, schema: str) -> bytes:
        stats: dict[str, list[WriteStat]] = {}
        for file in completion.files:
            stats.setdefault(file.partition, []).append(_write_stat(file, completion))
        extra = {OWN_KEY: str(completion.version), "schema": avro_schema(schema, self.config.name)}
        compacted = True if completion.action == "commit" else None
        return encode_commit(
            CommitMetadata(stats=stats, operation=completion.operation, extra=extra, compacted=compacted)
        )


def when_put(name: TimelineFileName) -> int:
    """Which of an instant's files it is, in the order in which they are put."""
    pending = PENDING_ACTIONS.get(name.action, ("requested", "inflight"))
    return [*pending, "completed"].index(name.state)


def completed_name(completion: Completion) -> TimelineFileName:
    """The name of the completed file of a commit."""
    return TimelineFileName(completion.requested, completion.action, "completed", completion.completed)


def _write_stat(file: DataFile, completion: Completion) -> WriteStat:
    name = str(file.name)
    if file.is_base:
        return WriteStat(
            file_id=file.name.file_id, path=file.path, prev_commit="null", num_writes=file.rows,
            partition_path=file.partition, total_write_bytes=file.size, file_size_in_bytes=file.size,
        )  # fmt: skip
    return WriteStat(
        file_id=file.name.file_id, path=file.path, prev_commit=completion.requested, num_writes=file.rows,
        num_update_writes=file.rows, num_deletes=file.deletes, partition_path=file.partition,
        total_write_bytes=file.size, file_size_in_bytes=file.size, base_file="", log_files=(name,),
        log_version=1, log_offset=0,
    )  # fmt: skip

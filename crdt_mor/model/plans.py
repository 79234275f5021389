"""Plans, frozen whole when they are scheduled: what the plan of every service is, and compaction's, with its planner.

    ──T1──T2──────T4─────▼ b          b   the barrier: an odd instant just after the value the plan derives from
         p1 ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄           P   the writes still pending at b: p1 < p2 < …
                p2 ┄┄┄┄┄┄┄┄           S = p1, or nothing pending: everything below is stable, for good

A compaction consumes every commit completed before b. Commits requested before S have all ended and nothing can be
requested before S any more, so what is below S is *stable*; nor can anything but p_i itself land in a gap
(p_i, p_i+1). Both are exact knowledge, since requested times come from the same total order as completions. Execution
uses the plan alone and never looks at the current timeline: taking P or S later gives wrong answers.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

from crdt_mor.errors import FormatError, InvalidInputError
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.merge_spec import MergeSpec
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import WRONG_SHAPE, require_types
from crdt_mor.model.timeline_parts import DataFile, FileGroup

FORMAT = 1
"""Version of the JSON of a compaction's plan."""


class FrozenPlan(Protocol):
    """What the plan of every service is: a value that holds all that its executors need, frozen when it is scheduled.

    barrier: its instant's time, the one after the value that it derives from.
    table_id: the table's; None where it had none yet.
    """

    @property
    def barrier(self) -> InstantTime: ...

    @property
    def table_id(self) -> str | None: ...

    @property
    def file_groups(self) -> Collection[FileGroup]:
        """The file groups that it changes, each once: while it is open, no other plan has any of them."""

    def parts(self) -> list[Self]:
        """The plan in parts that may be executed apart from each other; only the whole can be completed."""

    def encode(self) -> bytes:
        """The bytes of its object; `timeline.actions` knows how to decode them."""

    def require_outputs(self, files: Collection[DataFile]) -> None:
        """Raise `InvalidInputError` unless these are the files of all that it asks for."""


@dataclass(frozen=True, slots=True)
class GroupInput:
    """What a plan consumes of one file group: the base file of its slice, and the logs, carries included."""

    partition: str
    file_id: str
    base: DataFile | None
    logs: tuple[DataFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.size for file in (*self.logs, *([self.base] if self.base else [])))


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Everything that the executors of a compaction need.

    pending: the requested times of all writes that were pending, ascending: P.
    schema, merge: the table's, when the plan was made.
    groups: the file groups that it compacts, with the files that it consumes.
    payloads: a pickled plan brings the table's payloads along, for the process where it arrives; not stored.
    """

    barrier: InstantTime
    pending: tuple[InstantTime, ...]
    schema: str
    merge: str
    groups: tuple[GroupInput, ...]
    table_id: str | None = None
    payloads: object = field(default=None, compare=False, repr=False)

    @property
    def stable_before(self) -> InstantTime | None:
        """S; None if no write was pending."""
        return self.pending[0] if self.pending else None

    @property
    def file_groups(self) -> list[FileGroup]:
        """The file groups, each once."""
        return [(group.partition, group.file_id) for group in self.groups]

    def parts(self) -> list[CompactionPlan]:
        """The plan, one file group each, for executors that share the work; only the whole can be completed."""
        return [replace(self, groups=(group,)) for group in self.groups]

    def require_outputs(self, files: Collection[DataFile]) -> None:
        """Each file group has one new base file: what lacks one would lose its rows."""
        bases = sorted(file.group for file in files if file.is_base)
        if bases != sorted(self.file_groups):
            raise InvalidInputError(
                "a compaction is completed with the files of all the plan's file groups, each once. "
                f"barrier={self.barrier} planned={len(self.groups)} executed={len(set(bases))}"
            )

    def __str__(self) -> str:
        logs = sum(len(group.logs) for group in self.groups)
        size = sum(group.bytes for group in self.groups) / 2**20
        pending = f", {len(self.pending)} writes pending since {self.pending[0]}" if self.pending else ""
        return f"compaction {self.barrier}: {len(self.groups)} file groups, {logs} log files, {size:.1f} MiB{pending}"

    def encode(self) -> bytes:
        """JSON."""
        groups = [[g.partition, g.file_id, g.base and _file(g.base), [_file(f) for f in g.logs]] for g in self.groups]
        return json.dumps(
            {
                "format": FORMAT,
                "barrier": self.barrier,
                "pending": self.pending,
                "schema": self.schema,
                "merge": self.merge,
                "table_id": self.table_id,
                "groups": groups,
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> CompactionPlan:
        """The plan in an object; raises `FormatError` naming `path`."""
        try:
            stored = json.loads(data)
            if stored["format"] != FORMAT:
                raise FormatError(f"a plan of a newer release; upgrade crdt-mor. file={path} format={stored['format']}")
            groups = tuple(
                GroupInput(partition, file_id, DataFile(*base) if base else None, tuple(DataFile(*f) for f in logs))
                for partition, file_id, base, logs in stored["groups"]
            )
            plan = cls(
                stored["barrier"],
                tuple(stored["pending"]),
                stored["schema"],
                stored["merge"],
                groups,
                stored.get("table_id"),  # plans of the first release have none
            )
            require_types(file for group in groups for file in (*group.logs, *filter(None, [group.base])))
            return plan
        except WRONG_SHAPE as error:
            raise FormatError(f"not a compaction plan: {error!r}. file={path}") from error


def _file(file: DataFile) -> list[object]:
    return [file.path, file.size, file.rows, file.deletes]


def plan_compaction(
    value: Timeline,
    slices: Collection[FileSlice],
    merge: MergeSpec,
    taken: Collection[FileGroup] = (),
    log_files_min: int = 1,
    groups: Collection[FileGroup] | None = None,
) -> CompactionPlan | None:
    """The plan that follows from `value` and its latest file slices; None if there is nothing to compact.

    File groups that are `taken` by an open plan are skipped, and so are those with fewer than `log_files_min` logs of
    commits. A slice whose only log is a carry is compacted once nothing is pending any more, which makes the carry part
    of the base; unless it holds nothing but ordered tombstones, which every compaction carries on.

    groups: the plan takes no others; None: any.
    """
    pending = tuple(sorted(p.requested for p in value.pending))
    chosen = [
        GroupInput(s.partition, s.file_id, s.base, s.logs)
        for s in sorted(slices, key=lambda s: s.group)
        if s.group not in taken
        and (groups is None or s.group in groups)
        and (len(s.fresh_logs) >= max(1, log_files_min) or (not pending and can_absorb_carry(s, merge)))
    ]
    if not chosen:
        return None
    return CompactionPlan(value.next_barrier, pending, value.schema, str(merge), tuple(chosen), value.table_id)


def can_absorb_carry(slice_: FileSlice, merge: MergeSpec) -> bool:
    """Whether a slice has a carry, and no other log, and a compaction without pending writes would leave no carry."""
    carried = slice_.logs if not slice_.fresh_logs else ()
    return any(log.rows for log in carried) if merge.kind == "ordering" else bool(carried)


def plan_logs(
    value: Timeline, slices: Collection[FileSlice], merge: MergeSpec, taken: Collection[FileGroup]
) -> CompactionPlan | None:
    """The plan for all the slices that have any log, be it a carry alone, and that are not `taken` by an open plan."""
    chosen = [
        GroupInput(s.partition, s.file_id, s.base, s.logs)
        for s in sorted(slices, key=lambda s: s.group)
        if s.logs and s.group not in taken
    ]
    if not chosen:
        return None
    pending = tuple(sorted(p.requested for p in value.pending))
    return CompactionPlan(value.next_barrier, pending, value.schema, str(merge), tuple(chosen), value.table_id)

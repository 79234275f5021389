"""Frozen plans of services, and the planner of compactions.

    ──T1──T2──────T4─────▼ b          b   the barrier: an odd instant just after the plan's timeline value
         p1 ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄           P   the writes still pending at b: p1 < p2 < …
                p2 ┄┄┄┄┄┄┄┄           S = p1, or nothing pending: everything below is stable, for good

A compaction consumes all commits completed before b. Commits requested before S have ended, and no write can be
requested before S any more, so everything below S is *stable*. Only p_i itself can land in a gap (p_i, p_i+1).
Both are exact, because requested and completion times share a total order.

Execution uses only the plan, never the current timeline: a later P or S gives wrong answers. A write requested before
an overwrite of a partition does not count in P for its file groups.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from crdt_mor.errors import InvalidInputError
from crdt_mor.model.instant import EPOCH, InstantTime, to_ms
from crdt_mor.model.layout import BY_KEY, Layout, parsed_compression
from crdt_mor.model.merge_spec import MergeSpec
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import decoding_plan, require_types
from crdt_mor.model.timeline_parts import DataFile, FileGroup
from crdt_mor.planners.overwrite import overwritten_at

FORMAT = 3
"""JSON version of a plan in which a file group was overwritten beside a pending write.

Plans with a log compaction have version 2, others 1. An older release would put other bytes under the same names.
"""

FORMATS_READ = (1, 2, FORMAT)


class FrozenPlan(Protocol):
    """A service's plan: everything that its executors need, frozen when it is scheduled.

    Attributes:
        barrier: its instant, just after its timeline value.
        table_id: None before the table had an id.
    """

    @property
    def barrier(self) -> InstantTime: ...

    @property
    def table_id(self) -> str | None: ...

    @property
    def file_groups(self) -> Collection[FileGroup]:
        """The file groups that it changes. Open plans share none."""

    def parts(self) -> list[Self]:
        """Split the plan for execution; only the whole can be completed."""

    def encode(self) -> bytes:
        """Encode for `hudi.actions`."""

    def require_outputs(self, files: Collection[DataFile]) -> None:
        """Raise `InvalidInputError` unless these files are its complete output."""


@dataclass(frozen=True, slots=True)
class GroupInput:
    """The base file and logs, including carries, that a plan consumes of a file group.

    Attributes:
        logs_only: fold the logs into one carry, and copy the base file.
        overwritten: barrier of the partition's last overwrite: earlier pending writes add nothing. EPOCH if none is
            earlier.
    """

    partition: str
    file_id: str
    base: DataFile | None
    logs: tuple[DataFile, ...]
    logs_only: bool = False
    overwritten: InstantTime = EPOCH

    @property
    def bytes(self) -> int:
        return sum(file.size for file in (*self.logs, *([self.base] if self.base else [])))


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Everything that a compaction's executors need.

    Attributes:
        pending: requested times of all pending writes, ascending (P).
        schema, merge: the table's at planning.
        payloads: pickled with the plan but not stored.
        order: of the rows in new base files: `linear(country,day)`, `z-order(country,day)` or `key`.
        compression: `zstd` or `lz4`.
    """

    barrier: InstantTime
    pending: tuple[InstantTime, ...]
    schema: str
    merge: str
    groups: tuple[GroupInput, ...]
    table_id: str | None = None
    payloads: object = field(default=None, compare=False, repr=False)
    order: str = str(BY_KEY)
    compression: str = BY_KEY.compression

    def pending_of(self, group: GroupInput) -> tuple[InstantTime, ...]:
        """Return the pending writes that may add to a file group: its P."""
        return tuple(p for p in self.pending if p > group.overwritten)

    @property
    def copied(self) -> set[FileGroup]:
        """File groups with a log compaction; their bases are copied."""
        return {(group.partition, group.file_id) for group in self.groups if group.logs_only}

    def made(self, outputs: Iterable[DataFile]) -> list[DataFile]:
        copied = self.copied
        return [file for file in outputs if not (file.is_base and file.group in copied)]

    @property
    def file_groups(self) -> list[FileGroup]:
        return [(group.partition, group.file_id) for group in self.groups]

    def parts(self) -> list[CompactionPlan]:
        return [replace(self, groups=(group,)) for group in self.groups]

    def require_outputs(self, files: Collection[DataFile]) -> None:
        """Require a new base file per file group, or the group's rows would be lost."""
        bases = sorted(file.group for file in files if file.is_base)
        if bases != sorted(self.file_groups):
            raise InvalidInputError(
                "pass the files of all the plan's file groups, each once, to complete a compaction. "
                f"barrier={self.barrier} planned={len(self.groups)} executed={len(set(bases))}"
            )

    def __str__(self) -> str:
        logs = sum(len(group.logs) for group in self.groups)
        size = sum(group.bytes for group in self.groups) / 2**20
        pending = f", {len(self.pending)} writes pending since {self.pending[0]}" if self.pending else ""
        alone = sum(group.logs_only for group in self.groups)
        of_logs = f" (of the logs alone in {alone})" if alone else ""
        groups = f"{len(self.groups)} file groups{of_logs}"
        return f"compaction {self.barrier}: {groups}, {logs} log files, {size:.1f} MiB{pending}"

    @property
    def _format(self) -> int:
        if any(group.overwritten != EPOCH for group in self.groups):
            return FORMAT
        return 2 if self.copied else 1

    def encode(self) -> bytes:
        groups = [_group(group) for group in self.groups]
        return json.dumps(
            {
                "format": self._format,
                "barrier": self.barrier,
                "pending": self.pending,
                "schema": self.schema,
                "merge": self.merge,
                "table_id": self.table_id,
                "groups": groups,
                **({} if self.order == str(BY_KEY) else {"order": self.order}),
                **({} if self.compression == BY_KEY.compression else {"compression": self.compression}),
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> CompactionPlan:
        with decoding_plan(data, path, "a compaction plan", FORMATS_READ) as stored:
            groups = tuple(_group_of(group) for group in stored["groups"])
            plan = cls(
                stored["barrier"],
                tuple(stored["pending"]),
                stored["schema"],
                stored["merge"],
                groups,
                stored.get("table_id"),  # plans of the first release have none
                order=str(Layout.parse(stored.get("order", str(BY_KEY)))),
                compression=parsed_compression(stored.get("compression", BY_KEY.compression)),
            )
            require_types(file for group in groups for file in (*group.logs, *filter(None, [group.base])))
            require_types((plan, *groups))
            return plan


def _group(group: GroupInput) -> list[object]:
    base, logs = group.base and _file(group.base), [_file(log) for log in group.logs]
    fields: list[object] = [group.partition, group.file_id, base, logs]
    if group.overwritten != EPOCH:
        return [*fields, int(group.logs_only), group.overwritten]
    return [*fields, 1] if group.logs_only else fields


def _group_of(fields: Sequence[Any]) -> GroupInput:
    partition, file_id, base, logs, *more = fields
    logs_only = more[0] if more else 0
    overwritten = InstantTime(more[1]) if len(more) > 1 else EPOCH
    if logs_only not in (0, 1) or (logs_only and not base) or len(more) > 2:
        raise ValueError(f"the file group {file_id} contains {more} after its logs")
    to_ms(overwritten)
    of_logs = tuple(DataFile(*log) for log in logs)
    return GroupInput(partition, file_id, DataFile(*base) if base else None, of_logs, bool(logs_only), overwritten)


def _file(file: DataFile) -> list[object]:
    return [file.path, file.size, file.rows, file.deletes]


def plan_compaction(
    value: Timeline,
    slices: Collection[FileSlice],
    merge: MergeSpec,
    taken: Collection[FileGroup] = (),
    log_files_min: int = 1,
    groups: Collection[FileGroup] | None = None,
    logs_only: bool = False,
    also: Collection[FileGroup] = (),
) -> CompactionPlan | None:
    """Plan a compaction of the latest file slices of `value`; None if there is nothing to compact.

    It skips groups with fewer than `log_files_min` commit logs. A slice with only a carry is compacted once nothing is
    pending, which folds the carry into the base. A carry of ordered tombstones alone is not: every compaction carries
    them on.

    Args:
        groups: the only groups to plan; None for any.
        taken: groups in open plans, to skip.
        logs_only: do log compactions of groups with two logs or more, including carries. Groups without a base file are
            compacted fully.
        also: groups to compact in any case, such as groups in another order.
    """
    chosen = [
        _input(value, s, logs_only=logs_only and s.base is not None)
        for s in sorted(slices, key=lambda s: s.group)
        if s.group not in taken
        and (groups is None or s.group in groups)
        and (
            s.group in also
            or (
                _has_many_logs(s, log_files_min)
                if logs_only
                else len(s.fresh_logs) >= max(1, log_files_min)
                or (not pending_in(value, s.partition) and can_absorb_carry(s, merge))
            )
        )
    ]
    return _plan(value, merge, chosen)


def pending_in(value: Timeline, partition: str) -> tuple[InstantTime, ...]:
    """Return the requested times, ascending, of pending writes that may add to a partition.

    Writes requested before its last overwrite cannot.
    """
    since = overwritten_at(value, partition)
    return tuple(sorted(p.requested for p in value.pending if p.requested > since))


def _input(value: Timeline, slice_: FileSlice, *, logs_only: bool = False) -> GroupInput:
    overwritten = overwritten_at(value, slice_.partition)
    return GroupInput(slice_.partition, slice_.file_id, slice_.base, slice_.logs, logs_only, overwritten)


def _plan(value: Timeline, merge: MergeSpec, chosen: Sequence[GroupInput]) -> CompactionPlan | None:
    if not chosen:
        return None
    pending = tuple(sorted(p.requested for p in value.pending))
    layout = Layout.of(value.properties)
    return CompactionPlan(
        value.next_barrier, pending, value.schema, str(merge), tuple(chosen), value.table_id,
        order=str(layout), compression=layout.compression,
    )  # fmt: skip


def _has_many_logs(slice_: FileSlice, log_files_min: int) -> bool:
    return len(slice_.fresh_logs) >= max(1, log_files_min) and (slice_.base is None or len(slice_.logs) >= 2)


def can_absorb_carry(slice_: FileSlice, merge: MergeSpec) -> bool:
    """Return True if the only log is a carry that a compaction would fold into the base."""
    carried = slice_.logs if not slice_.fresh_logs else ()
    return any(log.rows for log in carried) if merge.ordering is not None else bool(carried)


def plan_again(
    value: Timeline,
    slices: Collection[FileSlice],
    merge: MergeSpec,
    taken: Collection[FileGroup],
    before: CompactionPlan,
) -> CompactionPlan | None:
    """Plan an earlier plan's file groups again, unless `taken` or compacted since."""
    wanted = {(group.partition, group.file_id): group for group in before.groups}
    chosen = [
        _input(value, s, logs_only=wanted[s.group].logs_only and s.base is not None)
        for s in sorted(slices, key=lambda s: s.group)
        if s.group in wanted and s.group not in taken and (s.logs or s.base == wanted[s.group].base)
    ]
    return _plan(value, merge, chosen)


def plan_logs(
    value: Timeline, slices: Collection[FileSlice], merge: MergeSpec, taken: Collection[FileGroup]
) -> CompactionPlan | None:
    """Plan all slices with any log, even a carry alone, except groups `taken` by an open plan."""
    chosen = [_input(value, s) for s in sorted(slices, key=lambda s: s.group) if s.logs and s.group not in taken]
    return _plan(value, merge, chosen)

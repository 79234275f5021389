"""Plans, frozen whole when they are scheduled: what the plan of every service is, and compaction's, with its planner.

    ──T1──T2──────T4─────▼ b          b   the barrier: an odd instant just after the value the plan derives from
         p1 ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄           P   the writes still pending at b: p1 < p2 < …
                p2 ┄┄┄┄┄┄┄┄           S = p1, or nothing pending: everything below is stable, for good

A compaction consumes every commit completed before b. Commits requested before S have all ended and nothing can be
requested before S any more, so what is below S is *stable*; nor can anything but p_i itself land in a gap
(p_i, p_i+1). Both are exact knowledge, since requested times come from the same total order as completions. Execution
uses the plan alone and never looks at the current timeline: taking P or S later gives wrong answers. A write that was
requested before an overwrite of a partition adds nothing to it, and does not count in P for its file groups.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from crdt_mor.errors import FormatError, InvalidInputError
from crdt_mor.model.instant import EPOCH, InstantTime, to_ms
from crdt_mor.model.layout import BY_KEY, Layout, parsed_compression
from crdt_mor.model.merge_spec import MergeSpec
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import WRONG_SHAPE, require_types
from crdt_mor.model.timeline_parts import DataFile, FileGroup
from crdt_mor.planners.overwrite import overwritten_at

FORMAT = 3
"""Version of the JSON of a compaction's plan in which a file group was overwritten beside a pending write.

With a log compaction in it and no such file group, a plan is of version 2; any other is still of version 1. A release
that reads an earlier version alone would fold such a file group otherwise, and put other bytes under the same names.
"""

FORMATS_READ = (1, 2, FORMAT)


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
        """The bytes of its object; `hudi.actions` knows how to decode them."""

    def require_outputs(self, files: Collection[DataFile]) -> None:
        """Raise `InvalidInputError` unless these are the files of all that it asks for."""


@dataclass(frozen=True, slots=True)
class GroupInput:
    """What a plan consumes of one file group: the base file of its slice, and the logs, carries included.

    logs_only: a log compaction, which folds the logs into one carry, and copies the base file as it is.
    overwritten: the barrier of the last overwrite of its partition; the pending writes that were requested before can
        add nothing to it. EPOCH: no pending write was.
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
    """Everything that the executors of a compaction need.

    pending: the requested times of all writes that were pending, ascending: P.
    schema, merge: the table's, when the plan was made.
    groups: the file groups that it compacts, with the files that it consumes.
    payloads: a pickled plan brings the table's payloads along, for the process where it arrives; not stored.
    order: that of the rows in the new base files, `linear(country,day)` or `z-order(country,day)`; `key`: by key alone.
    compression: of the new base files, `zstd` or `lz4`.
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
        """The pending writes that may add something to a file group: its P, whose first one is its S."""
        return tuple(p for p in self.pending if p > group.overwritten)

    @property
    def copied(self) -> set[FileGroup]:
        """The file groups that have a log compaction, so that their base files are copied as they are."""
        return {(group.partition, group.file_id) for group in self.groups if group.logs_only}

    def made(self, outputs: Iterable[DataFile]) -> list[DataFile]:
        """Those of its output files that say something new: all but the copies of base files."""
        copied = self.copied
        return [file for file in outputs if not (file.is_base and file.group in copied)]

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
        alone = sum(group.logs_only for group in self.groups)
        of_logs = f" (of the logs alone in {alone})" if alone else ""
        groups = f"{len(self.groups)} file groups{of_logs}"
        return f"compaction {self.barrier}: {groups}, {logs} log files, {size:.1f} MiB{pending}"

    @property
    def _format(self) -> int:
        """The least version of the JSON that says it all."""
        if any(group.overwritten != EPOCH for group in self.groups):
            return FORMAT
        return 2 if self.copied else 1

    def encode(self) -> bytes:
        """JSON."""
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
        """The plan in an object; raises `FormatError` naming `path`."""
        try:
            stored = json.loads(data)
            if stored["format"] not in FORMATS_READ:
                raise FormatError(f"a plan of a newer release; upgrade crdt-mor. file={path} format={stored['format']}")
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
        except WRONG_SHAPE as error:
            raise FormatError(f"not a compaction plan: {error!r}. file={path}") from error


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
        raise ValueError(f"the file group {file_id} has {more} behind its logs")
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
    """The plan that follows from `value` and its latest file slices; None if there is nothing to compact.

    File groups that are `taken` by an open plan are skipped, and so are those with fewer than `log_files_min` logs of
    commits. A slice whose only log is a carry is compacted once nothing is pending any more, which makes the carry part
    of the base; unless it holds nothing but ordered tombstones, which every compaction carries on.

    groups: the plan takes no others; None: any.
    logs_only: a log compaction of each file group with two logs or more, a carry among them. A file group without a
        base file has nothing to copy, so that it is compacted fully.
    also: file groups that are compacted whatever logs they have, or have none, such as those in another order.
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
    """The requested times, ascending, of the pending writes that may still add something to a partition.

    Those that were requested before an overwrite of the partition can add nothing.
    """
    since = overwritten_at(value, partition)
    return tuple(sorted(p.requested for p in value.pending if p.requested > since))


def _input(value: Timeline, slice_: FileSlice, *, logs_only: bool = False) -> GroupInput:
    """What a plan that derives from `value` freezes of a file group."""
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
    """Whether a log compaction leaves fewer logs: it needs one of a commit, and another one beside it."""
    return len(slice_.fresh_logs) >= max(1, log_files_min) and (slice_.base is None or len(slice_.logs) >= 2)


def can_absorb_carry(slice_: FileSlice, merge: MergeSpec) -> bool:
    """Whether a slice has a carry, and no other log, and a compaction without pending writes would leave no carry."""
    carried = slice_.logs if not slice_.fresh_logs else ()
    return any(log.rows for log in carried) if merge.kind == "ordering" else bool(carried)


def plan_again(
    value: Timeline,
    slices: Collection[FileSlice],
    merge: MergeSpec,
    taken: Collection[FileGroup],
    before: CompactionPlan,
) -> CompactionPlan | None:
    """The plan for the file groups of an earlier one that are not `taken` by an open plan, nor compacted since then."""
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
    """The plan for all the slices that have any log, even a carry alone, and that are not `taken` by an open plan."""
    chosen = [_input(value, s) for s in sorted(slices, key=lambda s: s.group) if s.logs and s.group not in taken]
    return _plan(value, merge, chosen)

"""Overwrites replace all rows of a scope, beside running writers, and nobody waits. Pure functions.

    ──T1──────T0────p1───────▼ b ──T2──►      T0  the overwrite begins: a pending write like any other
      │        ┆     ┆       │      │         b   its barrier, just after the value before its event
      └ void   ┆     └ void at its end   └ added to the new rows

The event puts a new base file, with the new rows or none, at b in front of each covered file group. Everything
requested before b is void there: readers look at the newest base file, and each pending write removes its own files of
the scope before it completes. The value notes the overwrite as long as an earlier write is pending.

No completion can come between b and the event, because b derives from the version just before the event. An open plan
of covered file groups would put older rows behind b, so the event cancels it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from crdt_mor.model.file_ids import FileIds
from crdt_mor.model.instant import EPOCH, InstantTime, tick_after
from crdt_mor.model.names import COMMIT, DELTA_COMMIT, WRITE_TOKEN, BaseFileName, join_path
from crdt_mor.model.overwrite import OPERATIONS, Overwrite, Overwriting, Scope
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup, OpenPlan, Pending, RolledBack


@dataclass(frozen=True, slots=True)
class StagedBase:
    path: str
    group: FileGroup
    size: int
    rows: int


@dataclass(frozen=True, slots=True)
class StagedOverwrite:
    """The staged files of an overwrite.

    Attributes:
        bases: one base file for each file group with rows.
        empty: path and size of an empty base file for the scope's other file groups.
    """

    operation: str
    scope: Scope
    bases: tuple[StagedBase, ...]
    empty: tuple[str, int]

    def is_misplaced(self, file_ids: FileIds) -> bool:
        """Return True if a staged base file's group no longer serves its bucket."""
        return not all(file_ids.has(base.group) for base in self.bases)

    def files(self, barrier: InstantTime, slices: Iterable[FileSlice]) -> tuple[DataFile, ...]:
        """Return the new base files of the scope. Groups with only an empty base file stay as they are."""
        filled = {base.group: base for base in self.bases}
        emptied = [s.group for s in slices if self.scope.covers(s.partition) and s.group not in filled and not _bare(s)]
        path, size = self.empty
        files = [_placed(group, barrier, size, 0, path) for group in emptied]
        files += [_placed(base.group, barrier, base.size, base.rows, base.path) for base in self.bases]
        return tuple(sorted(files, key=lambda file: file.group))


def _bare(slice_: FileSlice) -> bool:
    return slice_.base is not None and slice_.base.rows == 0 and not slice_.logs


def _placed(group: FileGroup, barrier: InstantTime, size: int, rows: int, staged: str) -> DataFile:
    partition, file_id = group
    name = BaseFileName(file_id, WRITE_TOKEN, barrier)
    return DataFile(join_path(partition, str(name)), size, rows, staged=staged)


def overwritten(
    value: Timeline,
    nonce: str,
    wall_ms: int,
    write: Pending,
    staged: StagedOverwrite,
    slices: Iterable[FileSlice],
    cancelled: Collection[OpenPlan],
    token: tuple[str, int] | None = None,
) -> Timeline:
    """Return the value after a pending write overwrote its scope: two instants complete in one event.

    The write completes without files, and the overwrite completes at the barrier with the new base files. Users see
    only the overwrite. `cancelled` are open plans in the scope.
    """
    assert write in value.pending, "rule 1: only a pending instant can complete"
    version, barrier = value.version + 1, value.next_barrier
    ended = tick_after(barrier, wall_ms)
    completed = tick_after(ended, wall_ms)
    files = staged.files(barrier, slices)
    note = Overwriting(write.requested, staged.scope)
    end_of_write = Completion(
        write.requested, ended, version, write.nonce, DELTA_COMMIT, staged.operation, driver=write.driver,
        author=write.author,
    )  # fmt: skip
    overwrite = Completion(
        barrier, completed, version, nonce, COMMIT, staged.operation, files, author=write.author, overwriting=note,
        token=token,
    )  # fmt: skip
    older = (noted for noted in value.overwrites if not staged.scope.includes(noted.scope))
    return value.following(
        nonce,
        completed,
        pending=tuple(p for p in value.pending if p is not write),
        plans=tuple(p for p in value.plans if p not in cancelled),
        rolled_back=(*value.rolled_back, *(RolledBack(p.barrier, p.nonce, version, p.action) for p in cancelled)),
        completions=(*value.completions, end_of_write, overwrite),
        tokens=value.tokens.after(overwrite),
        overwrites=(*older, Overwrite(barrier, staged.scope)),
    )


def overwritten_at(value: Timeline, partition: str) -> InstantTime:
    """Return a partition's last overwrite with earlier pending writes; EPOCH without one."""
    return max((o.barrier for o in value.overwrites if o.scope.covers(partition)), default=EPOCH)


def is_end_of_write(completion: Completion) -> bool:
    """Return True for the completion of an overwrite's write, which users do not see."""
    return completion.action == DELTA_COMMIT and completion.operation in OPERATIONS and not completion.adopted


def covered_by(completion: Completion) -> tuple[str, ...] | None:
    if completion.overwriting is None:
        return None
    partitions = completion.overwriting.scope.partitions
    return ("*",) if partitions is None else partitions

"""Overwrites, as pure functions: the rows of a scope are replaced, beside running writers, and no writer waits.

    ──T1──────T0────p1───────▼ b ──T2──►      T0  the overwrite begins: a pending write like any other
      │        ┆     ┆       │      │         b   its barrier, just after the value that its event derives from
      └ void   ┆     └ void at its end   └ written to what the overwrite left

The event of an overwrite puts a new base file, with the new rows or with none, at b in front of each file group that it
covers. What was requested before b is void there: completed commits since readers look at the newest base file, and
pending writes since each of them removes its own files of the scope before it completes. For that the value notes the
overwrite as long as a write is pending that was requested before it.

No completion can come between b and the event, as b follows from the very value that the event follows. An open plan of
the covered file groups would put older rows behind b, so the event cancels it.
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
    """A base file that an overwrite has staged for a file group, under a name that no reader of Hudi's looks at."""

    path: str
    group: FileGroup
    size: int
    rows: int


@dataclass(frozen=True, slots=True)
class StagedOverwrite:
    """All that the event of an overwrite needs besides the value that it follows.

    operation: Hudi's word for it. bases: the base files with its rows, one for each file group that has any.
    empty: the path and the size of one without rows, for the file groups of the scope that get none.
    """

    operation: str
    scope: Scope
    bases: tuple[StagedBase, ...]
    empty: tuple[str, int]

    def is_misplaced(self, file_ids: FileIds) -> bool:
        """Whether some base file was staged for a file group that does not answer for its bucket any more."""
        return not all(file_ids.has(base.group) for base in self.bases)

    def files(self, barrier: InstantTime, slices: Iterable[FileSlice]) -> tuple[DataFile, ...]:
        """The new base files, of all file groups of the scope, where these are the slices of the value.

        A file group that holds no rows anyway, in a base file alone, stays as it is.
        """
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
    """The value in which a pending write has overwritten its scope: two instants complete in one event.

    The write itself completes without files, and the overwrite, at the barrier, with the new base files. Users see the
    latter alone.

    slices: the latest ones of `value`, those of its scope at least. cancelled: its open plans that hold a file group of
    the scope.
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
        tokens=value.tokens_after(overwrite),
        overwrites=(*older, Overwrite(barrier, staged.scope)),
    )


def overwritten_at(value: Timeline, partition: str) -> InstantTime:
    """The last overwrite of a partition that a pending write was requested before; EPOCH: there is none."""
    return max((o.barrier for o in value.overwrites if o.scope.covers(partition)), default=EPOCH)


def is_end_of_write(completion: Completion) -> bool:
    """Whether it is the completion, without files, of the write that has become an overwrite; users see that alone."""
    return completion.action == DELTA_COMMIT and completion.operation in OPERATIONS and not completion.adopted


def covered_by(completion: Completion) -> tuple[str, ...] | None:
    """The paths of the partitions that an overwrite covers, ("*",) for all of them; None of any other commit."""
    if completion.overwriting is None:
        return None
    partitions = completion.overwriting.scope.partitions
    return ("*",) if partitions is None else partitions

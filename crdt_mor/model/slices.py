"""File slices: the files of a file group for a given set of commits.

    base b1 ──log──log──┐ base b2 ──log──        a base file with instant b begins a slice
                 late ──┘┄┄┄┄┄┄┄►                 a log belongs to the newest base not after its COMPLETION time

So a commit that completes after a compaction is in the new slice ("fast-forwarded"), and a compacted commit stays in
the old one. A carry log has the barrier in its name and completes with the compaction.

In a Hudi table before version 8, a log's name contains its slice's time. If that compaction is not completed, the log
belongs to the newest slice with a base file. `committed` tells which blocks count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.model.committed import Committed
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import DELTA_COMMIT, LogFileName, is_own_token
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup

S = TypeVar("S")

OPENING_A_FILE: Final = 1 << 16
"""Opening a file takes as long as decoding this many bytes."""


@dataclass(frozen=True, slots=True)
class FileSlice:
    """The files of a file group. `logs` are sorted by requested time.

    committed: before table version 8, the instants whose blocks count. None: all count.
    """

    partition: str
    file_id: str
    base: DataFile | None
    logs: tuple[DataFile, ...]
    committed: Committed | None = None

    @property
    def group(self) -> FileGroup:
        return self.partition, self.file_id

    def is_carry(self, log: DataFile) -> bool:
        named_alike = self.base is not None and log.name.instant == self.base.name.instant
        return named_alike and self.committed is None

    @property
    def fresh_logs(self) -> tuple[DataFile, ...]:
        return tuple(log for log in self.logs if not self.is_carry(log))

    @property
    def files(self) -> tuple[DataFile, ...]:
        return (*([self.base] if self.base else []), *self.logs)

    def without(self, paths: Collection[str]) -> FileSlice:
        return replace(self, logs=tuple(log for log in self.logs if log.path not in paths)) if paths else self

    @property
    def weight(self) -> int:
        return sum(file.size + OPENING_A_FILE for file in self.files)


def balanced_parts(items: Iterable[tuple[S, int]], size: int) -> list[Sequence[S]]:
    """Split weighted items, in order, into even parts of about `size`.

    An item above twice the size is alone.
    """
    weighted = list(items)
    total = sum(weight for _, weight in weighted)
    count = -(-total // size)
    parts: dict[int, list[S]] = {}
    before = 0
    for item, weight in weighted:
        middle = 2 * before + weight  # doubled, to stay a whole number
        parts.setdefault(middle * count // (2 * total), []).append(item)
        before += weight
    return list(parts.values())


def fold_slices(completions: Iterable[Completion], *, old_logs: bool = False) -> list[FileSlice]:
    """Return the slice of each live file group for these commits, sorted by group.

    old_logs: read-only slices of an upgraded table. Later commits and failed writes may have appended to its old logs.
    """
    completions = list(completions)
    replaced: dict[FileGroup, InstantTime] = {}
    groups: dict[FileGroup, list[tuple[DataFile, InstantTime]]] = {}
    committed: Committed | None = None
    for c in completions:
        committed = c.committed or committed
        for group in c.replaced:
            replaced[group] = max(c.completed, replaced.get(group, c.completed))
        for file in c.files:
            groups.setdefault(file.group, []).append((file, c.completed))
    slices = [_slice(group, groups[group], committed) for group in sorted(groups) if group not in replaced]
    if committed is not None:
        return slices
    shared = shared_logs(completions)
    if not old_logs:
        if shared:
            _refuse_shared_logs(slices, shared)
        return slices
    committed = Committed.since_the_first(c.requested for c in completions)
    return [_with_old_logs(slice_, committed, shared) for slice_ in slices]


def shared_logs(completions: Iterable[Completion]) -> set[str]:
    """Return Hudi's logs from before an upgrade to version 8, named after slices instead of commits.

    The upgrade compacts them away, so only views of earlier moments contain them.
    """
    return {
        file.path
        for c in completions
        if c.adopted and c.action == DELTA_COMMIT
        for file in c.files
        if not file.is_base and file.name.instant != c.requested
    }


def with_logs(slices: Sequence[FileSlice], logs: Iterable[DataFile]) -> tuple[FileSlice, ...]:
    """Add logs requested after all others to the slices."""
    by_group = {slice_.group: slice_ for slice_ in slices}
    for log in logs:
        there = by_group.get(log.group, FileSlice(*log.group, None, ()))
        by_group[log.group] = replace(there, logs=(*there.logs, log))
    return tuple(by_group[group] for group in sorted(by_group))


def _refuse_shared_logs(slices: Iterable[FileSlice], shared: set[str]) -> None:
    for log in (log for slice_ in slices for log in slice_.logs if log.path in shared):
        raise UnsupportedFeatureError(
            "log files from before Hudi's upgrade of the table to version 8 are left. They can only be read: compact "
            f"them with Hudi. file={log.path}"
        )


def _with_old_logs(slice_: FileSlice, committed: Committed, shared: set[str]) -> FileSlice:
    """Return a slice of an upgraded table that counts only blocks of these commits.

    A log with the time of its only visible commit may contain blocks of later commits.
    """
    barrier = slice_.base.name.instant if slice_.base else ""
    found = [log for log in slice_.logs if log.path in shared]
    for log in (log for log in found if log.name.instant < barrier):
        raise UnsupportedFeatureError(
            "this snapshot may need log files from before Hudi's upgrade to version 8, but Hudi's timeline was "
            f"copied and does not tell: read a moment after the upgrade. file={log.path}"
        )
    if not found and any(is_own_token(log.name.token) for log in slice_.logs):
        return slice_
    return replace(slice_, logs=tuple({log.path: log for log in slice_.logs}.values()), committed=committed)


def _slice(group: FileGroup, files: list[tuple[DataFile, InstantTime]], committed: Committed | None) -> FileSlice:
    bases = [file for file, _ in files if file.is_base]
    base = max(bases, key=lambda file: file.name.instant) if bases else None
    barrier = base.name.instant if base else ""
    if committed is None:
        logs = [file for file, completed in files if not file.is_base and completed >= barrier]
    else:  # commits share logs
        named = {file.path: file for file, _ in files if not file.is_base and file.name.instant >= barrier}
        logs = list(named.values())
    return FileSlice(*group, base, tuple(sorted(logs, key=log_order)), committed)


def log_order(file: DataFile) -> tuple[str, int, str]:
    name = file.name
    assert isinstance(name, LogFileName)
    return name.instant, name.version, name.token

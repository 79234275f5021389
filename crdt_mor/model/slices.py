"""File slices: which files answer for a file group when some commits are shown.

    base b1 ──log──log──┐ base b2 ──log──        a base file with instant b opens a slice
                 late ──┘┄┄┄┄┄┄┄►                 a log belongs to the newest base not after its COMPLETION time

So a commit that completes behind a compaction is found in the new slice ("fast-forwarded"), while one that the
compaction consumed stays in the old one. A carry log is named by the barrier and completes with the compaction.

In a table of Hudi's from before version 8 a log belongs to the slice whose time is in its name, or, where that is of a
compaction which is not completed, to the newest one that has a base file. Which of its blocks count, `committed` says.
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
"""The bytes whose decoding takes about as long as opening a file."""


@dataclass(frozen=True, slots=True)
class FileSlice:
    """The files of one file group; `logs` in the order of their requested times, whatever order they completed in.

    committed: of a table from before version 8, the instants whose blocks count; None: all blocks do.
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
        """Whether a log holds what a compaction carried over: it bears the base file's own instant."""
        named_alike = self.base is not None and log.name.instant == self.base.name.instant
        return named_alike and self.committed is None

    @property
    def fresh_logs(self) -> tuple[DataFile, ...]:
        """The logs of commits, without the carry."""
        return tuple(log for log in self.logs if not self.is_carry(log))

    @property
    def files(self) -> tuple[DataFile, ...]:
        return (*([self.base] if self.base else []), *self.logs)

    def without(self, paths: Collection[str]) -> FileSlice:
        """This slice without some of its logs."""
        return replace(self, logs=tuple(log for log in self.logs if log.path not in paths)) if paths else self

    @property
    def weight(self) -> int:
        """What reading the slice costs, in bytes."""
        return sum(file.size + OPENING_A_FILE for file in self.files)


def balanced_parts(items: Iterable[tuple[S, int]], size: int) -> list[Sequence[S]]:
    """Items with their weights, in their order, in about as few parts as stay near `size`, evenly.

    Neighbours stay together: small slices of one partition are merged together. A part is as heavy as the others, but
    for the weight of one item; one of twice that is a part of its own.
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
    """The slice of each live file group when these commits are shown, ordered by group.

    old_logs: the slices are of a table that was upgraded, and they are read, and nothing else: they may have logs of
    before the upgrade, to which later commits have appended, and writes that failed.
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
    """The logs that Hudi wrote to a table before it was upgraded to version 8: named after their slices, not commits.

    Hudi compacts them all away when it upgrades, so that only views of before the upgrade meet them.
    """
    return {
        file.path
        for c in completions
        if c.adopted and c.action == DELTA_COMMIT
        for file in c.files
        if not file.is_base and file.name.instant != c.requested
    }


def with_logs(slices: Sequence[FileSlice], logs: Iterable[DataFile]) -> tuple[FileSlice, ...]:
    """The slices when logs are shown as well that were requested after all of them, ordered by group."""
    by_group = {slice_.group: slice_ for slice_ in slices}
    for log in logs:
        there = by_group.get(log.group, FileSlice(*log.group, None, ()))
        by_group[log.group] = replace(there, logs=(*there.logs, log))
    return tuple(by_group[group] for group in sorted(by_group))


def _refuse_shared_logs(slices: Iterable[FileSlice], shared: set[str]) -> None:
    for log in (log for slice_ in slices for log in slice_.logs if log.path in shared):
        raise UnsupportedFeatureError(
            "there are log files here that Hudi wrote before the table was upgraded to version 8, and that its upgrade "
            f"has not compacted away: they are read, and nothing else. file={log.path}"
        )


def _with_old_logs(slice_: FileSlice, committed: Committed, shared: set[str]) -> FileSlice:
    """A slice of a table that was upgraded, of whose logs those blocks count that these commits wrote.

    Of a log that bears the time of its only commit in view it is not known whether later ones appended to it.
    """
    barrier = slice_.base.name.instant if slice_.base else ""
    found = [log for log in slice_.logs if log.path in shared]
    for log in (log for log in found if log.name.instant < barrier):
        raise UnsupportedFeatureError(
            "this snapshot may need log files that Hudi wrote before the table was upgraded to version 8, and Hudi's "
            "timeline does not tell, as its files were copied since they were written: ask for a moment after the "
            f"upgrade. file={log.path}"
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
    else:  # several commits name one log
        named = {file.path: file for file, _ in files if not file.is_base and file.name.instant >= barrier}
        logs = list(named.values())
    return FileSlice(*group, base, tuple(sorted(logs, key=log_order)), committed)


def log_order(file: DataFile) -> tuple[str, int, str]:
    name = file.name
    assert isinstance(name, LogFileName)
    return name.instant, name.version, name.token

"""File slices: the files of a file group for a given set of commits.

    base b1 ──log──log──┐ base b2 ──log──        a base file with instant b begins a slice
                 late ──┘┄┄┄┄┄┄┄►                 a log belongs to the newest base not after its COMPLETION time

So a commit that completes after a compaction is in the new slice ("fast-forwarded"), and a compacted commit stays in
the old one. A carry log has the barrier in its name and completes with the compaction.

In a Hudi table before version 8, a log's name contains its slice's time. If that compaction is not completed, the log
belongs to the newest slice with a base file. `committed` tells which blocks count.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from operator import attrgetter, eq
from threading import Lock
from typing import Final, TypeVar, overload

from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.model.committed import Committed
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import DELTA_COMMIT, LogFileName, is_own_token
from crdt_mor.model.packed_files import PackedFiles, PackedGroups, group_of_base
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup

S = TypeVar("S")

OPENING_A_FILE: Final = 1 << 16
"""Opening a file takes as long as decoding this many bytes."""

_BISECTED: Final = 64
"""If fewer than one in so many groups are touched, each is bisected; otherwise all are sorted."""


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
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

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


def batches_of(items: Iterable[tuple[S, int]], size: int) -> list[list[S]]:
    """Split weighted items, in order, into batches up to `size`. A heavier item is alone."""
    batches: list[list[S]] = []
    room = 0
    for item, weight in items:
        if not batches or weight > room:
            batches.append([])
            room = size
        batches[-1].append(item)
        room -= weight
    return batches


_partition_of = attrgetter("partition")
_group_of = attrgetter("group")


class Slices(Sequence[FileSlice]):
    """The slices of live file groups, sorted by group. Slices of packed files are made on request.

    slices: other slices. packed: the packed files of commits; `hidden` are the places of groups with another slice or
    none.
    """

    def __init__(
        self, slices: Iterable[FileSlice] = (), packed: Packed | None = None, hidden: AbstractSet[int] = frozenset()
    ) -> None:
        self._slices = tuple(slices)
        self._packed = packed
        self._hidden = hidden

    def __len__(self) -> int:
        return len(self._slices) + (0 if self._packed is None else len(self._packed.groups) - len(self._hidden))

    def __iter__(self) -> Iterator[FileSlice]:
        if self._packed is None:
            return iter(self._slices)
        return heapq.merge(
            self._packed.slices(range(len(self._packed.groups)), self._hidden), self._slices, key=_group_of
        )

    @overload
    def __getitem__(self, place: int) -> FileSlice: ...
    @overload
    def __getitem__(self, place: slice) -> Slices: ...
    def __getitem__(self, place: int | slice) -> FileSlice | Slices:
        if isinstance(place, int):
            return self._slices[place] if self._packed is None else [*self][place]
        start, stop, step = place.indices(len(self))
        return Slices(self._slices[place] if self._packed is None else islice(self, start, stop, step))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __reduce__(self) -> tuple[type[Slices], tuple[tuple[FileSlice, ...]]]:
        return Slices, (tuple(self),)

    @cached_property
    def partitions(self) -> tuple[str, ...]:
        """The partitions, and perhaps some without live groups."""
        packed = () if self._packed is None else self._packed.groups.partitions
        return tuple(dict.fromkeys((*packed, *(slice_.partition for slice_ in self._slices))))

    def with_logs(self) -> Slices:
        return Slices(slice_ for slice_ in self._slices if slice_.logs)

    def within(self, partitions: Collection[str]) -> Slices:
        """Return the slices of some partitions."""
        if len(partitions) * _BISECTED > len(self):
            wanted = {*partitions}
            return Slices(slice_ for slice_ in self if slice_.partition in wanted)
        return Slices(chain.from_iterable(map(self._of_partition, sorted(partitions))))

    def _of_partition(self, path: str) -> list[FileSlice]:
        first = bisect_left(self._slices, path, key=_partition_of)
        others = self._slices[first : bisect_right(self._slices, path, first, key=_partition_of)]
        if self._packed is None:
            return [*others]
        packed = self._packed.slices(self._packed.groups.within(path), self._hidden)
        return sorted([*packed, *others], key=_group_of)

    def of_group(self, group: FileGroup) -> Slices:
        """Return the slice of a file group, if it is live."""
        first = bisect_left(self._slices, group, key=_group_of)
        others = [slice_ for slice_ in self._slices[first : first + 1] if slice_.group == group]
        place = None if self._packed is None or others else self._packed.groups.find(group)
        if self._packed is None or place is None:
            return Slices(others)
        return Slices(self._packed.slices(range(place, place + 1), self._hidden))


class Packed:
    """The file groups of commits with packed files."""

    def __init__(self, commits: Sequence[tuple[PackedFiles, InstantTime]]) -> None:
        self.groups = PackedGroups([files for files, _ in commits])
        self._completed = [completed for _, completed in commits]

    @classmethod
    def of(cls, completions: Iterable[Completion]) -> Packed | None:
        found = [(c.files, c.completed) for c in completions if isinstance(c.files, PackedFiles)]
        return cls(found) if found else None

    def slices(self, places: range, hidden: AbstractSet[int]) -> Iterator[FileSlice]:
        for place, files in zip(places, self.groups.files(places), strict=True):
            if place not in hidden:
                (_, base), *more = files
                if more:  # the newest; of several with its instant, the first
                    base = max((file for _, file in files), key=lambda file: file.name.instant)
                yield FileSlice(*group_of_base(base.path), base, ())

    def files(self, place: int) -> list[tuple[DataFile, InstantTime]]:
        """Return the files of a group with the times of their completions."""
        (files,) = self.groups.files(range(place, place + 1))
        return [(file, self._completed[number]) for number, file in files]


def fold_slices(completions: Iterable[Completion], *, old_logs: bool = False) -> Slices:
    """Return the slice of each live file group for these commits. For `old_logs` see `Fold.of`."""
    return Fold().of(completions, old_logs=old_logs)


class Fold:
    """The slices of a set of commits, kept for the next set. Thread-safe.

    A commit that comes or goes changes only the slices of its own file groups, so the next set is cheap in a table of
    any size. Slices of packed files stay packed until another commit touches their groups.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._commits: dict[InstantTime, Completion] = {}
        self._files: dict[FileGroup, tuple[tuple[DataFile, InstantTime], ...]] = {}
        self._replaced = Counter[FileGroup]()
        self._shared: set[str] = set()
        self._committed: Committed | None = None
        self._packed: Packed | None = None
        self._hidden: dict[FileGroup, int] = {}
        self._own: list[FileSlice] = []
        self._slices = Slices()

    def of(self, completions: Iterable[Completion], *, old_logs: bool = False) -> Slices:
        """Return the slice of each live file group for these commits.

        old_logs: read-only slices of an upgraded table. Later commits and failed writes may have appended to its old
        logs.
        """
        with self._lock:
            known = self._commits
            found = ((c, known.get(c.requested)) for c in completions)
            commits = {c.requested: before if before is c or before == c else c for c, before in found}
            come = [c for c in commits.values() if known.get(c.requested) is not c]
            gone = [c for c in known.values() if commits.get(c.requested) is not c]
            touched = self._forget(gone) if gone else set()
            touched |= self._add(come)
            committed = next((c.committed for c in reversed(commits.values()) if c.committed is not None), None)
            if any(isinstance(c.files, PackedFiles) for c in (*come, *gone)):
                self._packed, self._hidden, self._slices = Packed.of(commits.values()), {}, Slices()
                touched |= self._files.keys() | self._replaced.keys()
            if committed != self._committed:
                touched |= self._files.keys()
            self._commits, self._committed = commits, committed
            self._slices = self._with_again(touched) if come or gone else self._slices
            if committed is not None:
                return self._slices
            if old_logs:
                return self._with_old_logs()
            if self._shared:
                _refuse_shared_logs(self._slices, self._shared)
            return self._slices

    def _add(self, completions: Sequence[Completion]) -> set[FileGroup]:
        self._shared |= shared_logs(completions)
        added: dict[FileGroup, list[tuple[DataFile, InstantTime]]] = {}
        for c in completions:
            self._replaced.update(c.replaced)
            for file in _unpacked(c):
                added.setdefault(file.group, []).append((file, c.completed))
        for group, files in added.items():
            self._files[group] = (*self._files.get(group, ()), *files)
        return {*added, *(group for c in completions for group in c.replaced)}

    def _forget(self, completions: Sequence[Completion]) -> set[FileGroup]:
        self._shared -= shared_logs(completions)
        self._replaced.subtract(group for c in completions for group in c.replaced)
        gone = {(file.path, c.completed) for c in completions for file in _unpacked(c)}
        groups = {file.group for c in completions for file in _unpacked(c)}
        for group in groups:
            left = tuple(
                (file, completed) for file, completed in self._files[group] if (file.path, completed) not in gone
            )
            self._files |= {group: left}
        return {*groups, *(group for c in completions for group in c.replaced)}

    def _with_again(self, touched: Collection[FileGroup]) -> Slices:
        """Compute the slices of the touched groups again, and return all slices."""
        places = {} if self._packed is None else self._packed.groups.places(touched)
        found = {group: self._slice_of(group, places.get(group)) for group in touched}
        is_new = self._put(found)
        result = Slices(self._own, self._packed, frozenset(self._hidden.values()))
        if not is_new and "partitions" in vars(self._slices):
            vars(result)["partitions"] = self._slices.partitions
        return result

    def _slice_of(self, group: FileGroup, place: int | None) -> list[FileSlice]:
        files = self._files.get(group, ())
        if self._packed is not None and place is not None:
            if not files and not self._replaced[group]:
                self._hidden.pop(group, None)
                return []
            self._hidden[group] = place
            files = (*self._packed.files(place), *files)
        return [_slice(group, files, self._committed)] if files and not self._replaced[group] else []

    def _put(self, found: Mapping[FileGroup, list[FileSlice]]) -> bool:
        """Put the slices of groups in their places; return True if there are new groups, perhaps of new partitions."""
        if len(found) * _BISECTED > len(self._own):
            kept = [slice_ for slice_ in self._own if slice_.group not in found]
            known = {slice_.group for slice_ in self._own}
            self._own = sorted([*kept, *chain.from_iterable(found.values())], key=_group_of)
            known |= self._hidden.keys()
            return any(slices and group not in known for group, slices in found.items())
        is_new = False
        for group, slices in found.items():
            place = bisect_left(self._own, group, key=_group_of)
            is_there = place < len(self._own) and self._own[place].group == group
            self._own[place : place + is_there] = slices
            is_new |= bool(slices) and not is_there and group not in self._hidden
        return is_new

    def _with_old_logs(self) -> Slices:
        committed = Committed.since_the_first(self._commits)
        return Slices(_with_old_logs(slice_, committed, self._shared) for slice_ in self._slices)


def files_within(completion: Completion, partitions: Collection[str]) -> list[DataFile]:
    """Return a commit's files in some partitions, without unpacking others."""
    files = completion.files
    if isinstance(files, PackedFiles):
        return files.within(partitions)
    return [file for file in files if file.partition in partitions]


def _unpacked(completion: Completion) -> Sequence[DataFile]:
    return () if isinstance(completion.files, PackedFiles) else completion.files


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


def with_logs(slices: Sequence[FileSlice], logs: Iterable[DataFile]) -> Slices:
    """Add logs requested after all others to the slices."""
    by_group = {slice_.group: slice_ for slice_ in slices}
    for log in logs:
        there = by_group.get(log.group, FileSlice(*log.group, None, ()))
        by_group[log.group] = replace(there, logs=(*there.logs, log))
    return Slices(by_group[group] for group in sorted(by_group))


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


def _slice(group: FileGroup, files: Sequence[tuple[DataFile, InstantTime]], committed: Committed | None) -> FileSlice:
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

"""The base files of a wide commit as Arrow columns, and the file groups of several such commits in order.

A file takes 150 bytes instead of 1,000, and no name is parsed before somebody asks for its file.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, pairwise
from typing import Final, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crdt_mor.model.names import BASE_FILE
from crdt_mor.model.timeline_parts import DataFile, FileGroup

PACKED_MIN: Final = 256
"""Commits with fewer files are not packed."""

_BISECTED: Final = 16
"""If fewer than one in so many groups are sought, each is bisected."""

_CHUNK: Final = 4_096
"""Files that an iteration makes at once."""

_PATH: Final = rf"^(?:(?P<partition>(?s:.*))/)?{BASE_FILE}$"
_TEXT: Final = str, pa.large_string()
_NUMBER: Final = int, pa.int64()
_COLUMNS: Final = ((*_TEXT, None), (*_NUMBER, None), (*_NUMBER, None), (*_NUMBER, 0), (*_TEXT, ""))
"""The Python type, Arrow type and default of an entry's parts."""


class PackedFiles(Sequence[DataFile]):
    """Base files. Each access makes a `DataFile`."""

    __slots__ = ("_columns",)

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._columns = tuple(columns)

    @classmethod
    def of(cls, entries: Sequence[Sequence[object]]) -> PackedFiles | None:
        """Pack entries of (path, size, rows, deletes, staged), of which the last two may be absent.

        None if some are no base files, or of other types.
        """
        from pyarrow import compute as pc

        columns = []
        for place, (kind, stored, default) in enumerate(_COLUMNS):
            values = [entry[place] if place < len(entry) else default for entry in entries]
            if {*map(type, values)} - {kind}:
                return None
            try:
                columns.append(pa.array(values, stored))
            except (pa.ArrowException, OverflowError, ValueError):
                return None
        are_bases = pc.match_substring_regex(columns[0], _PATH)
        return cls(columns) if pc.all(are_bases, min_count=0).as_py() else None

    @property
    def paths(self) -> pa.Array:
        return self._columns[0]

    def take(self, places: npt.NDArray[np.int32]) -> Iterator[DataFile]:
        return map(DataFile, *(column.take(pa.array(places)).to_pylist() for column in self._columns))

    def within(self, partitions: Collection[str]) -> list[DataFile]:
        """Return the files of some partitions."""
        from pyarrow import compute as pc

        if len(partitions) * _BISECTED > len(self):
            return [file for file in self if file.partition in partitions]
        masks = (pc.starts_with(self.paths, path and f"{path}/") for path in partitions)
        places = [np.flatnonzero(mask.to_numpy(zero_copy_only=False)).astype(np.int32) for mask in masks]
        found = chain.from_iterable(map(self.take, places))
        return [file for file in found if file.partition in partitions]  # others are in folders below

    def __len__(self) -> int:
        return len(self.paths)

    def __iter__(self) -> Iterator[DataFile]:
        for start in range(0, len(self), _CHUNK):
            yield from map(DataFile, *(column.slice(start, _CHUNK).to_pylist() for column in self._columns))

    @overload
    def __getitem__(self, place: int) -> DataFile: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[DataFile, ...]: ...
    def __getitem__(self, place: int | slice) -> DataFile | tuple[DataFile, ...]:
        if isinstance(place, slice):
            return tuple(self[number] for number in range(len(self))[place])
        return DataFile(*(column[place].as_py() for column in self._columns))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Sequence) and tuple(self) == tuple(other))

    def __hash__(self) -> int:
        return hash(tuple(self))


class PackedGroups:
    """The file groups of several packed commits, sorted, with the places of their files."""

    def __init__(self, commits: Sequence[PackedFiles]) -> None:
        from pyarrow import compute as pc

        self._commits = commits
        paths = pa.chunked_array([files.paths for files in commits], pa.large_string()).combine_chunks()
        groups = pc.extract_regex(paths, _PATH)
        numbers = np.repeat(np.arange(len(commits), dtype=np.int32), [len(files) for files in commits])
        keys = pa.table(
            [groups.field("partition"), groups.field("file_id"), numbers], ["partition", "file_id", "commit"]
        )
        order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
        keys, rows = keys.take(order), order.to_numpy()
        starts = np.cumsum([0, *(len(files) for files in commits)])
        self._numbers = numbers[rows]
        self._places = (rows - starts[self._numbers]).astype(np.int32)
        begins = _begins(keys["partition"])
        self._firsts = np.append(np.flatnonzero(begins | _begins(keys["file_id"])), len(rows)).astype(np.int32)
        self.partitions: tuple[str, ...] = tuple(keys["partition"].filter(pa.array(begins)).to_pylist())

    def __len__(self) -> int:
        return len(self._firsts) - 1

    def group(self, place: int) -> FileGroup:
        row = self._firsts[place]
        return group_of_base(self._commits[self._numbers[row]].paths[int(self._places[row])].as_py())

    def find(self, group: FileGroup) -> int | None:
        place = bisect_left(range(len(self)), group, key=self.group)
        return place if place < len(self) and self.group(place) == group else None

    def places(self, groups: Collection[FileGroup]) -> dict[FileGroup, int]:
        """Return the places of the groups that are here."""
        if len(groups) * _BISECTED > len(self):
            return {group: place for place, group in enumerate(map(self.group, range(len(self)))) if group in groups}
        return {group: place for group in groups if (place := self.find(group)) is not None}

    def within(self, partition: str) -> range:
        """Return the places of a partition's groups."""
        places = range(len(self))
        first = bisect_left(places, partition, key=lambda place: self.group(place)[0])
        return range(first, bisect_right(places, partition, first, key=lambda place: self.group(place)[0]))

    def files(self, places: range) -> Iterator[list[tuple[int, DataFile]]]:
        """Yield the files of groups in order, each with the number of its commit."""
        for begin in range(places.start, places.stop, _CHUNK):
            firsts = self._firsts[begin : min(begin + _CHUNK, places.stop) + 1]
            numbers = self._numbers[firsts[0] : firsts[-1]]
            made = np.empty(len(numbers), object)
            for number in np.unique(numbers):
                rows = np.flatnonzero(numbers == number)
                made[rows] = [*self._commits[number].take(self._places[firsts[0] + rows])]
            found = [*zip(numbers.tolist(), made, strict=True)]
            yield from (found[first:end] for first, end in pairwise((firsts - firsts[0]).tolist()))


def group_of_base(path: str) -> FileGroup:
    """Return the file group of a base file."""
    partition, _, name = path.rpartition("/")
    return partition, name.partition("_")[0]


def _begins(values: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return True where a value differs from its predecessor."""
    from pyarrow import compute as pc

    differ = pc.not_equal(values[1:], values[:-1]).to_numpy() if len(values) > 1 else np.empty(0, bool)
    return np.append(np.ones(min(len(values), 1), bool), differ)

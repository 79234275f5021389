"""Checked rows of a large write in a temporary file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from crdt_mor.ground.spill import Extent, SpillFile
from crdt_mor.laws.merging import Merging
from crdt_mor.model.timeline_parts import DataFile
from crdt_mor.store.protocol import Chunks

PLACE: Final = "__place"
"""The row's number in the write, for payloads."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of some file groups. is_split: other parts have other keys of them."""

    extents: tuple[Extent, ...]
    is_split: bool


@dataclass(frozen=True, slots=True)
class SpilledWrite:
    """Rows in parts. A key is in one part, in the order of the write. merging, columns, nulls: as in `CheckedRows`."""

    file: SpillFile
    parts: tuple[Part, ...]
    merging: Merging
    columns: tuple[str, ...]
    nulls: tuple[str, ...]
    partitions: frozenset[str]

    def rows(self, part: Part) -> pa.Table:
        return self.file.get_rows(part.extents)


class Held:
    """Log files in the temporary file until all blocks of their file groups are there."""

    def __init__(self, spilled: SpilledWrite | None) -> None:
        self._spilled = spilled
        self._rows: dict[str, int] = {}
        self._extents: dict[str, list[Extent]] = {}

    def put(self, file: DataFile, content: Chunks) -> DataFile:
        assert self._spilled is not None
        extents = [self._spilled.file.put(chunk) for chunk in content]
        self._rows[file.path] = self._rows.get(file.path, 0) + file.rows
        self._extents.setdefault(file.path, []).extend(extents)
        return file

    def files(self) -> list[tuple[DataFile, Chunks]]:
        if self._spilled is None:
            return []
        get = self._spilled.file.get
        return [(DataFile(path, 0, self._rows[path]), map(get, extents)) for path, extents in self._extents.items()]

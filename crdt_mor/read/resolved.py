"""What the process remembers of slices that it has merged: which of their rows are shown.

Slices are named by their files, which never change: those that this engine wrote, and no others.
"""

from __future__ import annotations

from dataclasses import dataclass

from crdt_mor.ground.bounded import Bounded
from crdt_mor.merge.resolution import Resolution
from crdt_mor.model.config import TableConfig
from crdt_mor.model.slices import FileSlice
from crdt_mor.read.damage import is_ours


@dataclass(frozen=True, slots=True)
class Resolved:
    """The resolutions of the slices of one table. key: the column by which the merge compares keys."""

    kept: Bounded[Resolution]
    config: TableConfig
    key: str

    def of(self, slice_: FileSlice) -> Resolution | None:
        """What is known of a slice."""
        return self.kept.get((slice_, self.key)) if slice_.logs and slice_.base else None

    def note(self, slice_: FileSlice, resolution: Resolution | None) -> None:
        """Remember what a merge has found out of a slice, if anything."""
        is_fixed = slice_.committed is None and all(is_ours(file, self.config) for file in slice_.files)
        if resolution is not None and is_fixed:
            self.kept.keep((slice_, self.key), resolution)

"""Reuse the results of earlier merges: which rows of a file slice are visible.

Each process caches its own results. For larger slices, `maintain` stores them as hints for all processes
(`merge/resolution_hint.py`). A result is named after the slice's files, which must never change: only files of this
engine qualify.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from crdt_mor.errors import StorageUnavailableError
from crdt_mor.ground.bounded import Bounded
from crdt_mor.laws.merging import Merging
from crdt_mor.log.paths import resolved_path
from crdt_mor.merge.parts import SCAN_CUT_ROWS_MIN
from crdt_mor.merge.resolution import Resolution
from crdt_mor.merge.resolution_hint import from_bytes, name_of
from crdt_mor.model.config import TableConfig
from crdt_mor.model.slices import FileSlice
from crdt_mor.read.damage import is_ours
from crdt_mor.store.protocol import Store

HINTED_BYTES_MIN: Final = 4 << 20
"""Below, reading a hint takes about as long as the merge."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The known resolutions of one table's slices.

    Attributes:
        cache: the process's cache.
        hints: the table's store, if its hints are trusted.
    """

    cache: Bounded[Resolution]
    config: TableConfig
    merging: Merging
    hints: Store | None

    def of(self, slice_: FileSlice) -> Resolution | None:
        if not (slice_.logs and slice_.base):
            return None
        return self.cache.get(self._key(slice_)) or (None if self.hints is None else self._hinted(slice_, self.hints))

    def note(self, slice_: FileSlice, resolution: Resolution | None) -> None:
        if resolution is not None and self._is_fixed(slice_):
            self.cache.keep(self._key(slice_), resolution)

    def hint_path(self, slice_: FileSlice) -> str | None:
        """Return the path of a slice's hint; None for small slices and for rules without a bit per row."""
        base, has_bits = slice_.base, self.merging.rule.kind != "columns"
        if base is None or not (has_bits and slice_.logs and self._is_fixed(slice_)):
            return None
        is_large = base.size >= HINTED_BYTES_MIN and base.rows < SCAN_CUT_ROWS_MIN
        return resolved_path(self.name(slice_).hex()) if is_large else None

    def name(self, slice_: FileSlice) -> bytes:
        rule = self.merging.rule
        files = (f"{file.path} {file.size}" for file in slice_.files)
        return name_of((rule.kind, rule.ordering or "", self._merge_key, *files))

    def _hinted(self, slice_: FileSlice, store: Store) -> Resolution | None:
        """Read a hint, if any. Store errors are ignored: reading the files reports them."""
        path, found = self.hint_path(slice_), None
        with suppress(StorageUnavailableError, OSError):
            found = None if path is None else store.read(path)
        known = None if found is None else from_bytes(found, self.name(slice_))
        if known is not None and slice_.base is not None and known.base.rows != slice_.base.rows:
            return None
        self.note(slice_, known)
        return known

    @property
    def _merge_key(self) -> str:
        return self.merging.columns.merge_key

    def _key(self, slice_: FileSlice) -> tuple[FileSlice, str]:
        return slice_, self._merge_key

    def _is_fixed(self, slice_: FileSlice) -> bool:
        return slice_.committed is None and all(is_ours(file, self.config) for file in slice_.files)

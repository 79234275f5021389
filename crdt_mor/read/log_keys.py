"""Remember the keys of log files, so that a lookup skips log files without its keys.

    first lookup       opens all log files: most tables are looked up only once
    second lookup      decodes the keys of all log files, many at once, and remembers their hashes
    later lookups      compare hashes and skip most log files

The merge treats each key separately, so skipping is safe. A hash collision only opens a file in vain. Hudi's log files
are always opened: they may contain commands and blocks that replace blocks of other files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from crdt_mor.ground.bounded import Bounded
from crdt_mor.merge import kernel
from crdt_mor.merge.blocks import Columns, Slice
from crdt_mor.model.config import TableConfig
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline_parts import DataFile
from crdt_mor.read.damage import is_ours
from crdt_mor.read.together import runs

LOG_BYTES_MAX: Final = 8 << 20
"""Larger log files are not remembered: their keys take longer than a lookup."""

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class KeysOfLog:
    hashes: Hashes

    @property
    def nbytes(self) -> int:
        return self.hashes.nbytes

    def may_have_any(self, sought: Hashes) -> bool:
        if not len(self.hashes):
            return False
        places = self.hashes.searchsorted(sought)
        return bool((self.hashes.take(places, mode="clip") == sought).any())


@dataclass(frozen=True, slots=True)
class Lookup:
    """A lookup of a few keys, by hash (`sought`). `cache` holds the keys of log files."""

    cache: Bounded[Any]
    config: TableConfig
    columns: Columns
    open_slice: Callable[[FileSlice], Slice]
    sought: Hashes

    @classmethod
    def of(
        cls,
        keys: pl.Series,
        cache: Bounded[Any],
        config: TableConfig,
        columns: Columns,
        open_slice: Callable[[FileSlice], Slice],
    ) -> Lookup | None:
        """Return the lookup of merge keys, or None if any is null: its text is no value of the key column."""
        return None if keys.null_count() else cls(cache, config, columns, open_slice, keys.hash().to_numpy())

    def narrowed(self, slice_: FileSlice) -> FileSlice:
        if slice_.committed is not None or not all(is_ours(file, self.config) for file in slice_.files):
            return slice_
        keys = self._keys(slice_)
        logs = tuple(log for log in slice_.logs if log not in keys or keys[log].may_have_any(self.sought))
        return slice_ if len(logs) == len(slice_.logs) else replace(slice_, logs=logs)

    def _keys(self, slice_: FileSlice) -> dict[DataFile, KeysOfLog]:
        """Return the keys of the slice's small log files."""
        key = self.columns.merge_key
        names = {log: (log, key, self.columns.schema[key]) for log in slice_.logs if log.size <= LOG_BYTES_MAX}
        known = {log: found for log, name in names.items() if (found := self.cache.get(name)) is not None}
        unknown = [log for log in names if log not in known]
        for logs in runs(unknown, lambda log: ((), log.size), LOG_BYTES_MAX):
            opened = [self.open_slice(replace(slice_, base=None, logs=(log,))).blocks for log in logs]
            for log, found in zip(logs, kernel.touched_of_each(opened, self.columns), strict=True):
                known[log] = KeysOfLog(np.unique(found.hash().to_numpy()))
                self.cache.keep(names[log], known[log])
        return known

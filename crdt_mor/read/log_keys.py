"""Which keys a log file has: a lookup of a few keys opens only the log files that have one of them.

    first lookup       all log files are opened, as a table that is asked once is mostly asked no more
    second lookup      the keys of each log file are decoded, and a hash of each is remembered
    from then on       the hashes of the keys that are asked for are looked up there, and most log files have none

Contributions of one key mean the same whatever those of other keys are, so that a log file without any of the keys adds
nothing to what is read. Two keys of one hash cost a file that is opened in vain. Log files of Hudi's are always opened:
they may hold commands, and blocks that stand for those of other files.
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

LOG_BYTES_MAX: Final = 8 << 20
"""The most bytes of a log file whose keys are remembered. Those of larger ones take longer to find than a lookup."""

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class KeysOfLog:
    """The hashes of all keys of a log file, ascending."""

    hashes: Hashes

    @property
    def nbytes(self) -> int:
        """The bytes that they take."""
        return self.hashes.nbytes

    def may_have_any(self, asked: Hashes) -> bool:
        """Whether the log file may have a key of one of these hashes."""
        if not len(self.hashes):
            return False
        places = self.hashes.searchsorted(asked)
        return bool((self.hashes.take(places, mode="clip") == asked).any())


@dataclass(frozen=True, slots=True)
class Lookup:
    """A lookup of a few keys, whose hashes are `asked`.

    kept: where it is remembered which keys the log files of the table have. open_slice: the blocks of a slice.
    """

    kept: Bounded[Any]
    config: TableConfig
    columns: Columns
    open_slice: Callable[[FileSlice], Slice]
    asked: Hashes

    @classmethod
    def of(
        cls,
        keys: pl.Series,
        kept: Bounded[Any],
        config: TableConfig,
        columns: Columns,
        open_slice: Callable[[FileSlice], Slice],
    ) -> Lookup | None:
        """keys: merge keys. None where one of them is null, as no value of the key column has its text."""
        return None if keys.null_count() else cls(kept, config, columns, open_slice, keys.hash().to_numpy())

    def narrowed(self, slice_: FileSlice) -> FileSlice:
        """A slice without the log files that have none of the keys."""
        if slice_.committed is not None or not all(is_ours(file, self.config) for file in slice_.files):
            return slice_
        logs = tuple(log for log in slice_.logs if self._may_have_any(slice_, log))
        return slice_ if len(logs) == len(slice_.logs) else replace(slice_, logs=logs)

    def _may_have_any(self, slice_: FileSlice, log: DataFile) -> bool:
        return log.size > LOG_BYTES_MAX or self._keys(slice_, log).may_have_any(self.asked)

    def _keys(self, slice_: FileSlice, log: DataFile) -> KeysOfLog:
        key = self.columns.merge_key
        name = log, key, self.columns.schema[key]
        known: KeysOfLog | None = self.kept.get(name)
        if known is None:
            found = kernel.touched(self.open_slice(replace(slice_, base=None, logs=(log,))).blocks, self.columns)
            known = KeysOfLog(np.sort(found.hash().to_numpy()))
            self.kept.keep(name, known)
        return known

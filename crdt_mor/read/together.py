"""Merge file slices together: each merge costs as much as about ten thousand rows.

Small slices are merged as one:

    slice 1    base ── log ── log
    slice 2    base ── log            ─►    the bases as one, all blocks by START_COMMIT_TIME    ─►    one merge
    slice 3    base ── log ── log

For larger slices with small logs, only the logs are merged together. Each base is then read without the keys that its
logs replace:

    slice 1    base                                                            ─►    rows of the base
    slice 2    base      ══ log ══ log ══ log ══ log ══  ─►  one merge  ─►     ─►    rows of the base
    slice 3    base                                                            ─►    rows of the base

This is right if no two slices share a key, as within a partition of our tables: the bucket index assigns each key to
one file group, in files that this engine wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final, NamedTuple, TypeVar

import polars as pl

from crdt_mor.laws.merging import Merging
from crdt_mor.merge import kernel
from crdt_mor.merge.blocks import Slice
from crdt_mor.model.config import TableConfig
from crdt_mor.model.names import bucket_of_file_id
from crdt_mor.model.slices import FileSlice
from crdt_mor.read.damage import POLARS_ERRORS, is_ours, naming_damage
from crdt_mor.read.resolved import Resolved
from crdt_mor.store.protocol import Store

BYTES_MAX: Final = 1 << 20
"""Maximum bytes of files merged together."""

LOG_BYTES_MAX: Final = 16 << 20
"""Maximum bytes in memory for one shared merge."""

BASE_BYTES_MAX: Final = 64 << 20
"""Maximum bytes of bases read together if the caller keeps all rows."""

SLICES_MAX: Final = 64
"""Maximum slices merged together: a scan builds a table of all touched keys for each base."""

T = TypeVar("T")
Kind = tuple[object, ...]

Item = tuple[FileSlice, Slice]
Run = Callable[[], list[pl.DataFrame]]


class Merge(NamedTuple):
    """A merge for any thread. size: the bytes of its files."""

    run: Run
    size: int


@dataclass(frozen=True, slots=True)
class Merges:
    """The merges of a scan.

    Attributes:
        keeps_rows: the caller keeps all rows, so reading bases together needs no more memory.
        only_keys: see `kernel.merge`.
    """

    store: Store
    config: TableConfig
    merging: Merging
    select: Sequence[str]
    predicate: pl.Expr | None
    limit: int | None
    keeps_rows: bool
    only_keys: kernel.KeyCondition | None
    resolved: Resolved

    def alone(self, item: Item) -> Merge:
        """Return the merge of a slice, or of a part of it, that shares nothing with others."""
        return Merge(partial(self._naming, item[0], partial(self._merge, *item)), _size(item))

    def of(self, items: Iterable[Item]) -> Iterator[Merge]:
        for run in runs(small_ones_together(items, self.config), self._shares_logs, LOG_BYTES_MAX):
            if len(run) > 1:
                yield from self._sharing_logs(run)
            else:
                yield Merge(partial(self._together, run[0]), sum(map(_size, run[0])))

    def _shares_logs(self, items: list[Item]) -> tuple[Kind | None, int]:
        """Return the kind of slices with mergeable logs, and their bytes."""
        slice_, part = items[0]
        kind = _kind(items[0], self.config) if len(items) == 1 and self.limit is None else None
        held = sum(log.size for log in slice_.logs) + sum(map(len, part.base.contents if part.base else ()))
        is_at_once = part.resolution is not None or kernel.can_be_at_once(part, self.merging.rule)
        return kind if kind and is_at_once else None, held

    def _sharing_logs(self, run: Sequence[list[Item]]) -> Iterator[Merge]:
        items = list(chain.from_iterable(run))
        resolved: list[kernel.MergedLogs] = []
        # On an error each slice is merged alone, so that the error names the missing or damaged file.
        with suppress(OSError, *POLARS_ERRORS):
            resolved = kernel.resolve_at_once(
                [part for _, part in items],
                self.merging.columns,
                select=self.select,
                predicate=self.predicate,
                only_keys=self.only_keys,
                ahead=self.keeps_rows,
            )
        if not resolved:
            return map(self.alone, items)
        left = zip((slice_ for slice_, _ in items), resolved, strict=True)
        return (
            Merge(partial(self._bases, some), sum(slice_.bytes for slice_, _ in some))
            for some in runs(left, _bytes_of_base, BASE_BYTES_MAX if self.keeps_rows else 0)
        )

    def _bases(self, some: Sequence[tuple[FileSlice, kernel.MergedLogs]]) -> list[pl.DataFrame]:
        def read(some: Sequence[tuple[FileSlice, kernel.MergedLogs]]) -> list[pl.DataFrame]:
            found = kernel.read_at_once([one for _, one in some], select=self.select, predicate=self.predicate)
            return [
                frame for (slice_, _), merged in zip(some, found, strict=True) for frame in self._noted(slice_, merged)
            ]

        return self._all_or_each(some, read)

    def _together(self, items: Sequence[Item]) -> list[pl.DataFrame]:
        def read(items: Sequence[Item]) -> list[pl.DataFrame]:
            if len(items) == 1:
                return self._merge(*items[0])
            part = kernel.joined([part for _, part in items], self.merging.rule)
            return [] if part is None else self._merge(None, part)

        return self._all_or_each(items, read)

    def _all_or_each(
        self,
        some: Sequence[tuple[FileSlice, T]],
        read: Callable[[Sequence[tuple[FileSlice, T]]], list[pl.DataFrame]],
    ) -> list[pl.DataFrame]:
        """Read several slices at once, or each alone if that fails or returns no frame.

        Only a single slice's error names the damaged file.
        """
        if len(some) > 1:
            with suppress(OSError, *POLARS_ERRORS):
                if frames := read(some):
                    return frames
        return list(chain.from_iterable(self._naming(one[0], partial(read, [one])) for one in some))

    def _naming(self, slice_: FileSlice, run: Run) -> list[pl.DataFrame]:
        with naming_damage(self.store, slice_):
            return run()

    def _merge(self, slice_: FileSlice | None, part: Slice) -> list[pl.DataFrame]:
        """Merge a slice, or several (`slice_` None), without storing the resolution."""
        columns, select, predicate = self.merging.columns, self.select, self.predicate
        if part.resolution is not None:
            alone = kernel.resolve_at_once([part], columns, select=select, predicate=predicate)
            return kernel.read_at_once(alone, select=select, predicate=predicate)[0].frames
        if part.base is None or part.blocks:
            rule, only_keys = self.merging.rule, self.only_keys
            merged = kernel.merged(part, rule, columns, select=select, predicate=predicate, only_keys=only_keys)
            return merged.frames if slice_ is None else self._noted(slice_, merged)
        rows = kernel.passed_through(
            part.base, columns, select=select, predicate=predicate, limit=self.limit, ranges=part.base_ranges
        )
        return [rows]

    def _noted(self, slice_: FileSlice, merged: kernel.Merged) -> list[pl.DataFrame]:
        self.resolved.note(slice_, merged.resolution)
        return merged.frames


def _size(item: Item) -> int:
    """Return the bytes that a merge decodes: of a bucket's base only the fetched parts."""
    slice_, part = item
    if part.base is not None and part.base.contents:
        return sum(log.size for log in slice_.logs) + sum(map(len, part.base.contents))
    if slice_.base is None or part.base_rows is None:
        return slice_.bytes
    return slice_.bytes * part.base_rows[1] // max(1, slice_.base.rows)


def _bytes_of_base(one: tuple[FileSlice, kernel.MergedLogs]) -> tuple[Kind | None, int]:
    base = one[0].base
    return (), 0 if base is None else base.size


def small_ones_together(items: Iterable[Item], config: TableConfig) -> Iterator[list[Item]]:
    def kind(item: Item) -> tuple[Kind | None, int]:
        is_resolved = item[1].resolution is not None
        return None if is_resolved else _kind(item, config), item[0].bytes

    return runs(items, kind, BYTES_MAX)


def runs(items: Iterable[T], kind_and_bytes: Callable[[T], tuple[Kind | None, int]], most: int) -> Iterator[list[T]]:
    """Group adjacent items of the same kind up to `most` bytes. An item of kind None is a group of its own."""
    run: list[T] = []
    size, kind = 0, None
    for item in items:
        following, weight = kind_and_bytes(item)
        full = size + weight > most or len(run) == SLICES_MAX
        if run and (full or following is None or following != kind):
            yield run
            run, size = [], 0
        run.append(item)
        size, kind = size + weight, following
    if run:
        yield run


def _kind(item: Item, config: TableConfig) -> Kind | None:
    slice_, part = item
    whole = part.base_rows is None and part.base_ranges is None
    bucketed = config.buckets is not None and bucket_of_file_id(slice_.file_id) is not None
    if not whole or not bucketed or not all(is_ours(file, config) and not file.staged for file in slice_.files):
        return None
    has_base, is_resolved = part.base is not None, part.resolution is not None
    return slice_.partition, bool(part.blocks), has_base, part.base and part.base.columns, is_resolved

"""Which small file slices are merged together: a merge has a fixed cost, that of some ten thousand rows.

    slice 1    base ── log ── log
    slice 2    base ── log            ─►    the bases as one, all blocks by START_COMMIT_TIME    ─►    one merge
    slice 3    base ── log ── log

Every rule merges them at once to what it merges them to one by one where no key is in two of them. So it is in one
partition of a table of ours, whose bucket index finds the one file group of a key, for files that we wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from crdt_mor.merge.blocks import Slice
from crdt_mor.model.config import TableConfig
from crdt_mor.model.names import bucket_of_file_id
from crdt_mor.model.slices import FileSlice
from crdt_mor.read.damage import is_ours

BYTES_MAX: Final = 1 << 20
"""The most bytes of files that are merged together. Of larger slices each is worth a merge of its own."""

SLICES_MAX: Final = 64
"""The most slices that are merged together: a scan makes a table of all touched keys for each base file."""

Item = tuple[FileSlice, Slice]
"""A file slice, and its blocks or those of a part of it."""


def small_ones_together(items: Iterable[Item], config: TableConfig) -> Iterator[list[Item]]:
    """The items in their order, neighbours that can be merged together in one list, each other one in its own."""
    run: list[Item] = []
    size, kind = 0, None
    for item in items:
        weight, following = sum(file.size for file in item[0].files), _kind(item, config)
        full = size + weight > BYTES_MAX or len(run) == SLICES_MAX
        if run and (full or following is None or following != kind):
            yield run
            run, size = [], 0
        run.append(item)
        size, kind = size + weight, following
    if run:
        yield run


def _kind(item: Item, config: TableConfig) -> tuple[object, ...] | None:
    """What slices have in common that can be merged together; None: one that is merged alone."""
    slice_, part = item
    whole = part.base_rows is None and part.base_ranges is None
    bucketed = config.buckets is not None and bucket_of_file_id(slice_.file_id) is not None
    if not whole or not bucketed or not all(is_ours(file, config) and not file.staged for file in slice_.files):
        return None
    return slice_.partition, bool(part.blocks), part.base is not None, part.base and part.base.columns

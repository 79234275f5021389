"""The rows of a file slice as plain Parquet: its base file, the positions of dead base rows, and merged rows.

    base file   k1 k2 k3 k4          dead = positions of keys that any log touches: k2, k4
    logs        k2' -k4 k5'          rows = the merged rows of these keys: k2', k5'

This holds under every merge rule, because the rows of untouched keys are base rows, and a merge of the touched keys
alone gives their visible rows. Rows of a base file that an engine cannot read as the table's types are merged, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.columns.types import inner_pairs
from crdt_mor.laws.merging import merging_of
from crdt_mor.merge import kernel
from crdt_mor.merge.blocks import Columns
from crdt_mor.mirror.columns import MirrorColumn, stored_schema
from crdt_mor.model.config import TableConfig
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline_parts import DataFile, FileGroup
from crdt_mor.read.damage import naming_damage
from crdt_mor.read.hudi_rows import base_with_keys
from crdt_mor.read.open_slice import base_source, open_slice
from crdt_mor.read.snapshot import Snapshot

Positions = npt.NDArray[np.int64]

Stands = Callable[[pa.DataType, pa.DataType], bool]
"""Of a table's stored type and a base file's type, both without inner types: True if the mirror's readers convert."""

_NONE_DEAD: Positions = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class SliceKey:
    """The name of a slice's rows: slices with equal keys show equal rows of equal columns.

    files: a digest of the paths and sizes of the slice's files, and of the merge rule.
    """

    partition: str
    file_id: str
    files: str

    @property
    def group(self) -> FileGroup:
        return self.partition, self.file_id


@dataclass(frozen=True)
class ShownSlice:
    """The visible rows of a file slice: the rows of `base` without those at `dead`, and `rows`.

    Attributes:
        base: with its true size and row count; None if no row of it is visible.
        dead: positions in the base file, ascending.
        rows: stored names and types, with field ids; None if there are none.
        footer: of the base file.
    """

    key: SliceKey
    base: DataFile | None
    dead: Positions
    rows: pa.Table | None
    footer: pq.FileMetaData | None = None


def key_of(slice_: FileSlice, config: TableConfig) -> SliceKey:
    committed = "" if slice_.committed is None else repr(slice_.committed)
    files = [f"{file.path} {file.size}" for file in slice_.files]
    digest = hashlib.sha256("\n".join([repr(config.merge), committed, *files]).encode()).hexdigest()[:32]
    return SliceKey(slice_.partition, slice_.file_id, digest)


def show(
    snapshot: Snapshot, slice_: FileSlice, columns: Iterable[MirrorColumn], stands: Stands, *, whole: bool = False
) -> ShownSlice:
    """Return the visible rows of one slice of a snapshot.

    Args:
        stands: decides whether a base file with other types may be referenced; otherwise all its rows are merged.
        whole: merge all rows of a slice with logs instead of listing dead positions.
    """
    one, columns, config = snapshot.with_slices([slice_]), tuple(columns), snapshot.session.config
    key = key_of(slice_, config)
    found = None if whole and slice_.logs else referable(snapshot, slice_, columns, stands)
    if found is None:
        return ShownSlice(key, None, _NONE_DEAD, _merged(one, columns, None))
    base, footer = found
    if not slice_.logs:
        return ShownSlice(key, base if base.rows else None, _NONE_DEAD, None, footer)
    with naming_damage(snapshot.session.store, slice_):
        merge_columns = merging_of(config, snapshot.value.schema).columns
        touched = kernel.touched(open_slice(snapshot.session.store, slice_, config).blocks, merge_columns)
        dead = _places(snapshot, slice_, touched, merge_columns)
    rows = _merged(one, columns, pl.col(merge_columns.merge_key).is_in(touched.implode()))
    return ShownSlice(key, base if len(dead) < base.rows else None, dead, rows, footer)


def referable(
    snapshot: Snapshot, slice_: FileSlice, columns: Iterable[MirrorColumn], stands: Stands
) -> tuple[DataFile, pq.FileMetaData] | None:
    """Return the base file with its true size and row count, and its footer; None if engines cannot read its rows."""
    if slice_.base is None or not _is_in_place(snapshot, slice_.base):
        return None
    with naming_damage(snapshot.session.store, slice_):
        base, footer = _base(snapshot, slice_.base)
    return (base, footer) if all(map(_reads(footer.schema.to_arrow_schema(), stands), columns)) else None


def _is_in_place(snapshot: Snapshot, base: DataFile) -> bool:
    """Return False for an overwrite's base file that is only at its staging path yet: a mirror names the final path."""
    return not base.staged or snapshot.session.store.stat(base.path) is not None


def _base(snapshot: Snapshot, base: DataFile) -> tuple[DataFile, pq.FileMetaData]:
    """Return a base file with its true size and row count, which Hudi's archived commits lack, and its footer."""
    source = base_source(snapshot.session.store, base)
    footer = source.metadata()
    return replace(base, size=base.size or source.size(), rows=footer.num_rows), footer


def _reads(file: pa.Schema, stands: Stands) -> Callable[[MirrorColumn], bool]:
    def reads(column: MirrorColumn) -> bool:
        place = file.get_field_index(column.stored)
        return place < 0 or _all_stand(column.type, file.field(place).type, stands)

    return reads


def _all_stand(stored: pa.DataType, in_file: pa.DataType, stands: Stands) -> bool:
    if not pa.types.is_nested(stored):
        return stored == in_file or stands(stored, in_file)
    pairs = inner_pairs(stored, in_file)
    return pairs is not None and all(there is None or _all_stand(mine, there, stands) for _, mine, there in pairs)


def _places(snapshot: Snapshot, slice_: FileSlice, touched: pl.Series, columns: Columns) -> Positions:
    """Return the positions of base rows with these keys."""
    assert slice_.base is not None
    key, config = columns.merge_key, snapshot.session.config
    source = base_source(snapshot.session.store, slice_.base)
    with (base_with_keys(source, slice_.partition, config) if config.virtual_keys else source).open() as file:
        keys = pl.Series(pl.from_arrow(file.read(columns=[key])[key])).cast(columns.schema[key])
    return np.flatnonzero(keys.is_in(touched.implode()).to_numpy()).astype(np.int64)


def _merged(one: Snapshot, columns: tuple[MirrorColumn, ...], predicate: pl.Expr | None) -> pa.Table | None:
    names, schema = [column.stored for column in columns], stored_schema(columns)
    tables = [kernel.to_arrow(frame).cast(schema) for frame in one.frames(names, predicate) if frame.height]
    return pa.concat_tables(tables) if tables else None

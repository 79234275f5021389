"""Split a scan for engines that read Parquet themselves.

    files     k1 k2 k3 k4        rows of base files, visible unless a log touches their key
    touched      k2    k4 k5     the keys that logs touch
    merged       k2'      k5'    the visible rows of these keys
    rest                         file slices that only this engine can read

The rows of the scan are those of the files without the touched keys, the merged ones and those of the rest.
`mirror/slices.py` says why this holds under every merge rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.api.data import ArrowStream
from crdt_mor.api.rows import PART_SIZE, ArrowRows
from crdt_mor.columns.schema import META_COLUMNS
from crdt_mor.columns.tables import in_schema
from crdt_mor.ground.threads import REQUESTS, in_threads
from crdt_mor.laws.merging import merging_of
from crdt_mor.merge import kernel
from crdt_mor.model.slices import FileSlice, balanced_parts
from crdt_mor.read.damage import is_ours
from crdt_mor.read.open_slice import open_slice
from crdt_mor.read.snapshot import Snapshot

if TYPE_CHECKING:
    from crdt_mor.mirror.columns import MirrorColumn

LOGS_BYTES_MAX: Final = 32 << 20
"""Bytes of the logs over all files of a split. Engines hold the touched keys in memory."""


class TouchedRows(ArrowRows):
    """The keys in logs, or the visible rows of these keys."""

    def __init__(self, snapshot: Snapshot, schema: pa.Schema, *, only_keys: bool) -> None:
        self._snapshot, self._schema, self._only_keys = snapshot, schema, only_keys

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for slice_ in self._snapshot.slices:
            for frame in self._frames(slice_):
                rows = kernel.to_arrow(frame)
                yield from (in_schema(rows, self._schema) if self._schema.names else rows).to_batches()

    def _frames(self, slice_: FileSlice) -> Iterator[pl.DataFrame]:
        session = self._snapshot.session
        merging = merging_of(session.config, self._snapshot.value.schema)
        if not self._only_keys and _replaces_base(self._snapshot, slice_):
            return self._snapshot.with_slices([_logs_of(slice_)]).frames(self._schema.names, None)
        touched = kernel.touched(open_slice(session.store, slice_, session.config).blocks, merging.columns)
        if self._only_keys:
            return iter([touched.to_frame()])
        one = self._snapshot.with_slices([slice_])
        return one.frames(self._schema.names, pl.col(merging.columns.merge_key).is_in(touched.implode()))


def _replaces_base(snapshot: Snapshot, slice_: FileSlice) -> bool:
    """Return True if the latest row wins, and all rows of the logs are whole and written after the base file's."""
    config = snapshot.session.config
    assert slice_.base is not None, "a split has slices with base files"
    began = slice_.base.name.instant
    is_latest = merging_of(config, snapshot.value.schema).rule.kind == "latest"
    return is_latest and all(log.name.instant > began and is_ours(log, config) for log in slice_.logs)


def _logs_of(slice_: FileSlice) -> FileSlice:
    return replace(slice_, base=None)


@dataclass(frozen=True)
class SplitScan:
    """A scan for engines that read Parquet themselves. All parts can be pickled. Made by `Scan.split`.

    Attributes:
        files: addresses of base files with the scan's columns, in its types, and `key`.
        key: the column that identifies a row in all files.
        touched: keys. Rows of the files with these keys are not visible.
        merged: the visible rows of these keys.
        rest: the rows of all other file slices.
    """

    files: tuple[str, ...]
    key: pa.Field
    touched: tuple[ArrowStream, ...]
    merged: tuple[ArrowStream, ...]
    rest: tuple[ArrowStream, ...]


def split(snapshot: Snapshot, schema: pa.Schema, rest_of: Callable[[Snapshot], Iterable[ArrowStream]]) -> SplitScan:
    """Split a snapshot with the columns of `schema`. rest_of: scans the rest, in parts."""
    session = snapshot.session
    name = merging_of(session.config, snapshot.value.schema).columns.merge_key
    key = pa.field(name, pa.string()) if name in META_COLUMNS else snapshot.schema.declared.field(name)
    readable = _readable(snapshot, [*schema.names, *({name} - {*META_COLUMNS})])
    groups = {slice_.group for slice_ in readable}
    logged = [(slice_, _logs_of(slice_).weight) for slice_ in readable if slice_.logs]
    merged = [(slice_, logs if _replaces_base(snapshot, slice_) else slice_.weight) for slice_, logs in logged]

    def parts(slices: Sequence[tuple[FileSlice, int]], columns: pa.Schema, only_keys: bool) -> tuple[TouchedRows, ...]:
        some = map(snapshot.with_slices, balanced_parts(slices, PART_SIZE))
        return tuple(TouchedRows(part, columns, only_keys=only_keys) for part in some)

    return SplitScan(
        files=tuple(f"{session.uri}/{slice_.base.path}" for slice_ in readable if slice_.base is not None),
        key=key,
        touched=parts(logged, pa.schema([key]), only_keys=True),
        merged=parts(merged, schema, only_keys=False),
        rest=tuple(rest_of(snapshot.with_slices(one for one in snapshot.slices if one.group not in groups))),
    )


def _readable(snapshot: Snapshot, columns: Sequence[str]) -> list[FileSlice]:
    """Return the slices with base files that another engine reads as the table's rows, unless the logs are large.

    In tables of Hudi's writers two file groups may have one key, so slices with logs are not among them.
    """
    from crdt_mor.mirror.columns import mirror_columns
    from crdt_mor.mirror.slices import referable

    if not _is_plain(snapshot, columns):
        return []
    may_have_logs = snapshot.session.config.ours
    needed = [column for column in mirror_columns(snapshot.value) if column.stored in columns]

    def readable(slice_: FileSlice) -> list[FileSlice]:
        snapshot.require_kept(slice_)
        found = referable(snapshot, slice_, needed, _is_no_other_type) if may_have_logs or not slice_.logs else None
        return [slice_] if found is not None and _has_all_fields(found[1], needed) else []

    is_far = snapshot.session.is_far
    found = [s for one in in_threads(readable, snapshot.slices, REQUESTS if is_far else None) for s in one]
    has_few = sum(log.size for slice_ in found for log in slice_.logs) <= LOGS_BYTES_MAX
    return found if has_few else [slice_ for slice_ in found if not slice_.logs]


def _has_all_fields(footer: pq.FileMetaData, columns: Sequence[MirrorColumn]) -> bool:
    """Return False if a nested column lacks a field. Spark 4.0 then takes the whole column for null."""
    leaves = Counter(footer.schema.column(place).path.split(".")[0] for place in range(footer.num_columns))
    return all(leaves[one.stored] in (0, sum(not part.children for _, part in one.all())) for one in columns)


def _is_no_other_type(_stored: pa.DataType, _in_file: pa.DataType) -> bool:
    return False


def _is_plain(snapshot: Snapshot, columns: Sequence[str]) -> bool:
    """Return False if base files show other rows, names or values than the table, or two rows may have one key."""
    config, schema = snapshot.session.config, snapshot.schema
    return (
        snapshot.whole
        and not snapshot.at_hand
        and snapshot.names.are_stored
        and snapshot.expiry_time is None
        and not config.virtual_keys
        and {*config.key.partition_fields} <= {*config.key.fields}
        and not any(name in META_COLUMNS for name in columns)
        and all(schema.declared.field(name).type == schema.stored.field(name).type for name in columns)
    )

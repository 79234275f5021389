"""Stage the statements of a write as one log file per touched file group.

    statements ─ precombine ─► deletes, tombstones, rows ─ by file group ─► one log file each, put while it is encoded

The caller chooses a file's name: final, or, in a distributed write, a staging name until the driver places it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa

from crdt_mor.columns.texts import integers, text_scalar
from crdt_mor.format.base_file import Judgements
from crdt_mor.ground.threads import in_threads
from crdt_mor.laws.merging import Merging
from crdt_mor.merge.blocks import META_COLUMNS, PARTITION_PATH, RECORD_KEY
from crdt_mor.merge.polars_types import stored_array
from crdt_mor.merge.precombine import precombine
from crdt_mor.model.config import TableConfig
from crdt_mor.model.file_ids import FIXED, FileIds
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import LogFileName
from crdt_mor.model.timeline_parts import DataFile, FileGroup
from crdt_mor.store.protocol import Chunks
from crdt_mor.write.log_files import (
    BLOCK_ROWS_MAX,
    BUCKET,
    Deletes,
    Group,
    Rows,
    StoredRows,
    by_group,
    in_groups,
    log_file,
    numbered,
    numbered_rows,
    rows_of_group,
    sorted_keys,
)
from crdt_mor.write.statements import FEW_ROWS_MAX, Statement, few_rows

Placed = TypeVar("Placed")
Groups = Sequence[tuple[Group, pl.Series]]
"""File groups with the positions of their rows."""
Parts = dict[Group, list[Callable[[], Deletes | Rows]]]
"""The contents of each file group's log file."""

AT_ONCE_ROWS_MAX: Final = 200_000
"""Most rows ordered at once for all file groups, because this copies them."""


@dataclass(frozen=True, slots=True)
class Staging:
    """Settings for making a write's log files.

    task: the part of a distributed write; None: the whole write.
    at_once: files made and put at once; None: as many as processors.
    judgements: columns of earlier writes that deserved a dictionary. file_ids: the file groups of buckets.
    first: the sequence number of the first row.
    """

    config: TableConfig
    merging: Merging
    requested: InstantTime
    write_token: str
    judgements: Judgements
    file_ids: FileIds = FIXED
    task: int | None = None
    at_once: int | None = None
    first: int = 0

    def stage(self, statements: Sequence[Statement], put: Callable[[DataFile, Chunks], Placed]) -> list[Placed]:
        """Fold the statements per key, and `put` a log file for each touched file group."""
        few = few_rows(statements)
        parts = self._folded(statements) if few is None else self._few(few)
        by_name = sorted(parts.items(), key=itemgetter(0))
        return list(in_threads(partial(self._put_log_file, put), by_name, self.at_once))

    def _few(self, rows: pa.Table) -> Parts:
        """Keep a few rows with unique keys in Arrow: a polars query costs more."""
        names = [name for name in rows.column_names if name not in (*META_COLUMNS, BUCKET)]
        places = zip(*(rows[name].to_pylist() for name in (PARTITION_PATH, BUCKET, RECORD_KEY)), strict=True)
        order = sorted(enumerate(places), key=itemgetter(1))
        picked, positions = rows.select([RECORD_KEY, *names]), [row for row, _ in order]
        if positions != sorted(positions):
            picked = picked.take(integers(np.array(positions, dtype=np.int64)))
        table = numbered(picked, self.requested, self.first, self.task)
        is_partial = self.merging.rule.kind == "columns" and self._lack_columns(names)
        parts: Parts = {}
        start = 0
        for group, members in groupby((partition, bucket) for _, (partition, bucket, _) in order):
            count = len(list(members))
            stored = StoredRows(count, [*META_COLUMNS, *names], (), self._cut(table, group, start))
            parts[group] = [partial(Rows, self.requested, stored, is_partial)]
            start += count
        return parts

    def _folded(self, statements: Sequence[Statement]) -> Parts:
        if not statements:
            return {}
        combined = precombine(statements, self.merging.rule)
        parts: Parts = {}
        for keys, ordering in ((combined.deletes, None), (combined.tombstones, self.config.merge.ordering)):
            for group, positions in by_group(keys):
                parts.setdefault(group, []).append(partial(self._deletes, keys, positions, ordering))
        first = self.first
        for columns, states, nulls in combined.rows:
            rows = self.merging.rule.show(states)
            is_partial = columns is not None and self._lack_columns(rows.columns)
            groups = list(by_group(rows))
            repeating = self._repeating(rows, len(groups))
            cut = self._cut_at_once if rows.height <= AT_ONCE_ROWS_MAX else self._cut_by_group
            for group, stored in cut(rows, groups, first, repeating):
                parts.setdefault(group, []).append(partial(self._rows, stored, is_partial, nulls))
            first += rows.height
        return parts

    def _repeating(self, rows: pl.DataFrame, groups: int) -> tuple[str, ...]:
        """Return the columns worth a dictionary; none for a few rows, whose files must equal the files of `_few`."""
        if rows.height <= FEW_ROWS_MAX:
            return ()
        return self.judgements.repeating(rows, min(BLOCK_ROWS_MAX, rows.height // max(1, groups)))

    def _lack_columns(self, names: Sequence[str]) -> bool:
        return not set(self.merging.schema.declared.names) <= set(names)

    def _deletes(self, keys: pl.DataFrame, positions: pl.Series, ordering: str | None) -> Deletes:
        deleted = keys[sorted_keys(keys, positions)]
        texts = stored_array(deleted[RECORD_KEY], pa.string())
        if ordering is not None:
            kind = self.merging.schema.stored.field(ordering).type
            return Deletes(self.requested, texts, stored_array(deleted["ordering"], kind))
        # If the latest commit wins, Hudi compares requested times, so a tombstone carries its commit's.
        latest = self.config.merge.kind == "latest"
        return Deletes(self.requested, texts, pa.repeat(text_scalar(self.requested), len(texts)) if latest else None)

    def _rows(self, stored: Callable[[], StoredRows], is_partial: bool, nulls: tuple[str, ...]) -> Rows:
        return Rows(self.requested, stored(), is_partial, nulls)

    def _cut_at_once(
        self, rows: pl.DataFrame, groups: Groups, first: int, repeating: Sequence[str]
    ) -> Iterator[tuple[Group, Callable[[], StoredRows]]]:
        """Sort, number and convert all rows once, then cut them by file group."""
        table = numbered_rows(rows, in_groups(rows, groups), self.requested, first, self.merging.schema, self.task)
        columns, start = _columns(rows), 0
        for group, positions in groups:
            yield group, partial(StoredRows, len(positions), columns, repeating, self._cut(table, group, start))
            start += len(positions)

    def _cut(self, table: pa.Table, group: Group, first: int) -> Callable[[int, int], pa.Table]:
        def cut(start: int, count: int) -> pa.Table:
            return rows_of_group(table.slice(first + start, count), self._file_group(group), self.requested)

        return cut

    def _cut_by_group(
        self, rows: pl.DataFrame, groups: Groups, first: int, repeating: Sequence[str]
    ) -> Iterator[tuple[Group, Callable[[], StoredRows]]]:
        for group, positions in groups:
            yield group, partial(self._sorted, rows, positions, group, first, repeating)
            first += len(positions)

    def _sorted(
        self, rows: pl.DataFrame, positions: pl.Series, group: Group, first: int, repeating: Sequence[str]
    ) -> StoredRows:
        order = sorted_keys(rows, positions)

        def cut(start: int, count: int) -> pa.Table:
            some, number = order.slice(start, count), first + start
            table = numbered_rows(rows, some, self.requested, number, self.merging.schema, self.task)
            return rows_of_group(table, self._file_group(group), self.requested)

        return StoredRows(len(order), _columns(rows), repeating, cut)

    def _file_group(self, group: Group) -> FileGroup:
        partition, bucket = group
        return partition, self.file_ids.of(partition, bucket)

    def _put_log_file(
        self, put: Callable[[DataFile, Chunks], Placed], item: tuple[Group, Sequence[Callable[[], Deletes | Rows]]]
    ) -> Placed:
        group, parts = item
        partition, file_id = self._file_group(group)
        name = LogFileName(file_id, self.requested, token=self.write_token)
        data, file = log_file(self.config, self.merging.schema, partition, name, [part() for part in parts])
        return put(file, data)


def _columns(rows: pl.DataFrame) -> list[str]:
    return [*META_COLUMNS, *(name for name in rows.columns if name not in (*META_COLUMNS, BUCKET))]

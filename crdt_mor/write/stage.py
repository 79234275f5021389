"""Staging: the statements of one write become one log file per file group that they touch.

    statements ─ precombine ─► deletes, tombstones, rows ─ by file group ─► one log file each, put while it is encoded

The caller decides where a file goes: under its final name, or, in a distributed write, where nobody looks until the
write's driver places it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TypeVar

import polars as pl
import pyarrow as pa

from crdt_mor.format.base import repeating_columns
from crdt_mor.laws.merging import Merging
from crdt_mor.merge.blocks import RECORD_KEY
from crdt_mor.merge.polars_types import stored_array
from crdt_mor.merge.precombine import precombine
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import LogFileName, bucket_file_id
from crdt_mor.model.timeline_parts import DataFile
from crdt_mor.store.base import Chunks
from crdt_mor.threads import in_threads
from crdt_mor.write.log_files import Deletes, Group, Rows, StoredRows, by_group, group_rows, log_file, sorted_keys
from crdt_mor.write.statements import Statement

Placed = TypeVar("Placed")


@dataclass(frozen=True, slots=True)
class Staging:
    """How one write makes its log files.

    write_token: the one in the names of the files. task: the part of a distributed write that this is; None: all of it.
    at_once: how many files are made and put at once; None: as many as there are processors.
    """

    config: TableConfig
    merging: Merging
    requested: InstantTime
    write_token: str
    task: int | None = None
    at_once: int | None = None

    def stage(self, statements: Sequence[Statement], put: Callable[[DataFile, Chunks], Placed]) -> list[Placed]:
        """Fold what the statements say of each key, and `put` one log file for each file group that they touch."""
        if not statements:
            return []
        rule, schema = self.merging.rule, self.merging.schema
        combined = precombine(statements, rule)
        parts: dict[Group, list[Callable[[], Deletes | Rows]]] = {}
        for keys, ordering in ((combined.deletes, None), (combined.tombstones, self.config.merge.ordering)):
            for group, positions in by_group(keys):
                parts.setdefault(group, []).append(partial(self._deletes, keys, positions, ordering))
        first = 0
        for columns, states in combined.rows:
            rows = rule.show(states)
            is_partial = columns is not None and not set(schema.declared.names) <= set(rows.columns)
            positions_of = list(by_group(rows))
            repeating = repeating_columns(rows, rows.height // max(1, len(positions_of)))
            none = pl.Series(dtype=pl.Int64)
            names = group_rows(rows, none, ("", 0), self.requested, 0, schema).column_names  # the same in every group
            for group, positions in positions_of:
                part = partial(self._rows, rows, positions, group, first, is_partial, names, repeating)
                parts.setdefault(group, []).append(part)
                first += len(positions)
        groups = sorted(parts.items(), key=itemgetter(0))
        return list(in_threads(partial(self._put_log_file, put), groups, self.at_once))

    def _deletes(self, keys: pl.DataFrame, positions: pl.Series, ordering: str | None) -> Deletes:
        """The deletes of one file group, at these positions of `keys`."""
        deleted = keys[sorted_keys(keys, positions)]
        texts = stored_array(deleted[RECORD_KEY], pa.string())
        if ordering is not None:
            kind = self.merging.schema.stored.field(ordering).type
            return Deletes(self.requested, texts, stored_array(deleted["ordering"], kind))
        # Where the latest commit wins, Hudi compares by requested time, so that a tombstone carries that of its commit.
        latest = self.config.merge.kind == "latest"
        return Deletes(self.requested, texts, pa.repeat(pa.scalar(self.requested), len(texts)) if latest else None)

    def _rows(
        self,
        rows: pl.DataFrame,
        positions: pl.Series,
        group: Group,
        first: int,
        is_partial: bool,
        names: Sequence[str],
        repeating: tuple[str, ...],
    ) -> Rows:
        """The rows of one file group, at these positions of `rows`, numbered from `first`."""
        requested, schema = self.requested, self.merging.schema
        order = sorted_keys(rows, positions)
        writer = 0 if self.task is None else self.task + 1

        def cut(start: int, count: int) -> pa.Table:
            return group_rows(rows, order.slice(start, count), group, requested, first + start, schema, writer)

        return Rows(requested, StoredRows(len(order), names, repeating, cut), is_partial)

    def _put_log_file(
        self, put: Callable[[DataFile, Chunks], Placed], item: tuple[Group, Sequence[Callable[[], Deletes | Rows]]]
    ) -> Placed:
        (partition, bucket), parts = item
        name = LogFileName(bucket_file_id(bucket), self.requested, token=self.write_token)
        data, file = log_file(self.config, self.merging.schema, partition, name, [part() for part in parts])
        return put(file, data)

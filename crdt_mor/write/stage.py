"""Staging: the statements of one write become one log file per file group that they touch.

    statements ─ precombine ─► deletes, tombstones, rows ─ by file group ─► one log file each, put while it is encoded

Whoever stages says where a file goes: under its final name, or where nobody looks until the write's driver places it.
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
from crdt_mor.model.timeline import DataFile
from crdt_mor.store.base import Chunks
from crdt_mor.threads import in_threads
from crdt_mor.write.log_files import Deletes, Group, Rows, StoredRows, by_group, group_rows, log_file, sorted_keys
from crdt_mor.write.statements import Statement

Placed = TypeVar("Placed")


@dataclass(frozen=True, slots=True)
class Staging:
    """How one write makes its log files.

    write_token: the one in the names of its log files. task: its part of a distributed write; None: all of it.
    """

    config: TableConfig
    merging: Merging
    requested: InstantTime
    write_token: str
    task: int | None = None

    def stage(self, statements: Sequence[Statement], put: Callable[[DataFile, Chunks], Placed]) -> list[Placed]:
        """`put` one log file for each touched file group; what the statements say of a key is folded first."""
        if not statements:
            return []
        rule, schema = self.merging.rule, self.merging.schema
        combined = precombine(statements, rule)
        parts: dict[Group, list[Callable[[], Deletes | Rows]]] = {}
        for keys, ordering in ((combined.deletes, None), (combined.tombstones, self.config.merge.ordering)):
            for group, found in by_group(keys):
                parts.setdefault(group, []).append(partial(self._deletes, keys, found, ordering))
        first = 0
        for given, states in combined.rows:
            rows = rule.show(states)
            some = given is not None and not set(schema.declared.names) <= set(rows.columns)
            repeating = repeating_columns(rows)
            for group, found in by_group(rows):
                parts.setdefault(group, []).append(partial(self._rows, rows, found, group, first, some, repeating))
                first += len(found)
        return list(in_threads(partial(self._stage, put), sorted(parts.items(), key=itemgetter(0))))

    def _deletes(self, keys: pl.DataFrame, found: pl.Series, ordering: str | None) -> Deletes:
        instant = self.requested
        mine = keys[sorted_keys(keys, found)]
        texts = stored_array(mine[RECORD_KEY], pa.string())
        if ordering is not None:
            kind = self.merging.schema.stored.field(ordering).type
            return Deletes(instant, texts, stored_array(mine["ordering"], kind))
        # In the default table Hudi compares by requested time, so a tombstone says its own.
        latest = self.config.merge.kind == "latest"
        return Deletes(instant, texts, pa.repeat(pa.scalar(instant), len(texts)) if latest else None)

    def _rows(
        self, rows: pl.DataFrame, found: pl.Series, group: Group, first: int, some: bool, repeating: tuple[str, ...]
    ) -> Rows:
        instant, schema = self.requested, self.merging.schema
        order = sorted_keys(rows, found)
        writer = 0 if self.task is None else self.task + 1

        def cut(start: int, count: int) -> pa.Table:
            return group_rows(rows, order.slice(start, count), group, instant, first + start, schema, writer)

        return Rows(instant, StoredRows(len(order), cut(0, 0).column_names, repeating, cut), some)

    def _stage(
        self, put: Callable[[DataFile, Chunks], Placed], item: tuple[Group, Sequence[Callable[[], Deletes | Rows]]]
    ) -> Placed:
        (partition, bucket), parts = item
        name = LogFileName(bucket_file_id(bucket), self.requested, token=self.write_token)
        data, file = log_file(self.config, self.merging.schema, partition, name, [part() for part in parts])
        return put(file, data)

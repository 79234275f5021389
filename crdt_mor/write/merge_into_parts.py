"""A merge in parts: a part contains all rows of source and table with keys of its number.

    rows of the source ──┐                  ┌── part 0: file groups of buckets 0, 4, 8, … in every partition
                         ├── by their key ──┼── part 1: those of buckets 1, 5, 9, …
    rows of the table ───┘                  └── …

Rows that match by the table's key share it, and a changed or moved row keeps it, so parts are independent merges. For
other matches or inserted keys any two rows may be related, so there is one part.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crdt_mor.columns.names import Names
from crdt_mor.columns.schema import TableSchema
from crdt_mor.model.config import TableConfig
from crdt_mor.model.keys import KeySpec, buckets
from crdt_mor.model.names import bucket_of_file_id
from crdt_mor.model.slices import FileSlice
from crdt_mor.write.merge_into import is_by_key
from crdt_mor.write.merge_into_plan import MergePlan
from crdt_mor.write.named import shown_config


@dataclass(frozen=True, slots=True)
class Spread:
    """The assignment of a merge's rows to parts.

    on: pairs of a source and a table column that are equal in matching rows. on, schema, fields: in shown names.
    key: in stored names. parts: their number.
    """

    on: tuple[tuple[str, str], ...]
    schema: TableSchema
    fields: tuple[str, ...]
    key: KeySpec
    buckets: int
    parts: int

    @classmethod
    def of(cls, plan: MergePlan, schema: TableSchema, config: TableConfig, names: Names, parts_max: int) -> Spread:
        assert config.buckets is not None
        shown = shown_config(config, names)
        spread = cls(plan.on, schema, shown.key.fields, config.key, config.buckets, 1)
        if not is_by_key(plan, schema, shown):
            return spread
        return replace(spread, parts=parts_max if spread._names_partition else min(parts_max, spread.buckets))

    @property
    def columns(self) -> list[str]:
        named = [name for name, column in self.on if column in self.fields]
        return [] if self.parts == 1 else list(dict.fromkeys(named))

    def slices(self, slices: Iterable[FileSlice]) -> list[list[FileSlice]]:
        parts: list[list[FileSlice]] = [[] for _ in range(self.parts)]
        for slice_ in slices:
            bucket = bucket_of_file_id(slice_.file_id)
            assert bucket is not None, "writes refuse tables with other file groups"
            parts[(self._offset(slice_.partition) + bucket) % self.parts].append(slice_)
        return parts

    def numbers(self, rows: pa.Table) -> pa.Array:
        """Return the part of each source row, from `columns`.

        Rows without a key match nothing. They are in the first part, which refuses to insert them.
        """
        import pyarrow.compute as pc

        numbers = np.zeros(len(rows), dtype=np.int32)
        if self.parts == 1 or not len(rows):
            return pa.array(numbers)
        by_key = tuple(pair for pair in self.on if pair[1] in self.fields)
        keys = MergePlan(rows, by_key).stored_keys(self.schema)
        keys = keys.select(self.fields).rename_columns([*self.key.fields])
        absent = [pc.fill_null(pc.equal(pc.cast(keys[name], pa.string()), ""), True) for name in self.key.fields]
        there = ~np.logical_and.reduce([np.asarray(column) for column in absent])
        keys = keys.filter(pa.array(there))
        bucket = buckets(self.key.record_keys(keys), self.key, self.buckets).astype(np.int64)
        numbers[there] = (bucket + self._offsets(keys)) % self.parts
        return pa.array(numbers)

    @property
    def _names_partition(self) -> bool:
        partition = {*self.key.partition_fields}
        return bool(partition) and partition <= {*self.key.fields}

    def _offset(self, partition: str) -> int:
        """Return an offset per partition, which spreads buckets of different partitions over the parts."""
        return zlib.crc32(partition.encode()) if self._names_partition else 0

    def _offsets(self, keys: pa.Table) -> npt.NDArray[np.int64]:
        if not self._names_partition:
            return np.zeros(len(keys), dtype=np.int64)
        paths = self.key.partition_paths(keys)
        paths = paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths
        encoded = paths.dictionary_encode()
        offsets = np.array([self._offset(path) for path in encoded.dictionary.to_pylist()], dtype=np.int64)
        return np.take(offsets, np.asarray(encoded.indices))

"""Shapes of tables that were created with their first rows; imported after `shapes`, whose list they continue."""

from __future__ import annotations

from crdt_mor import Table
from crdt_mor.payloads import Counter
from tests.interop.shapes import Maker, clean, keys, rows, shape


def loaded(make: Maker, **settings: object) -> Table:
    settings = {"key": "id", "name": make.root.name, "buckets": 2, **settings}
    return Table.create_from(make.root, rows(range(20), 1), **settings)  # type: ignore[arg-type]


@shape()
def created_from_rows(make: Maker) -> Table:
    """default, created with its first rows, nothing written after."""
    return loaded(make)


@shape()
def created_from_rows_and_written(make: Maker) -> Table:
    """default, created with its first rows, then upserts, deletes, and a pending write."""
    table = loaded(make)
    table.upsert(rows([1, 30], 2))
    table.delete(keys=keys(2))
    make.begin(table).upsert(rows([3], 9))
    return table


@shape()
def created_from_rows_and_compacted(make: Maker) -> Table:
    """ordering column, partitions, created with its first rows, written, compacted, cleaned, written again."""
    table = loaded(make, ordering="n", partition_by="v", key=["id", "v"])
    table.upsert(rows([1, 2], 5, "v1"))
    table.upsert(rows([3], 0, "v1"))
    table.maintenance.compact()
    clean(table)
    table.upsert(rows([4, 40], 6))
    table.delete(rows([5], 7, "v1"))
    return table


@shape()
def payloads_created_from_rows(make: Maker) -> Table:
    """payloads, created with its first rows, nothing written after."""
    return loaded(make, merge={"n": Counter()})

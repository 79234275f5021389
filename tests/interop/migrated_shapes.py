"""Shapes of tables that have moved, as the new table is; imported after `shapes`, whose list they continue."""

from __future__ import annotations

from typing import Any

from crdt_mor import Table
from crdt_mor.payloads import Counter
from crdt_mor.results import MigrationProgress
from tests.interop.shapes import SCHEMA, Maker, keys, rows, shape


def old(make: Maker, **settings: Any) -> Table:
    """The table that moves to where the shape is."""
    settings = {"key": "id", "name": make.root.name, "buckets": 2, **settings}
    return Table.create(make.root.with_name(f"{make.root.name}-old"), **{"schema": SCHEMA, **settings})


def moved(make: Maker, table: Table, *beside: Any, **wanted: Any) -> Table:
    """The new table. beside: what happens once all is copied, and beside a write that is pending when it is closed."""
    left = list(beside)
    pending = make.begin(table)
    pending.upsert(rows([0, 70], 70))

    def tell(progress: MigrationProgress) -> None:
        if progress.phase == "copy" and left:
            left.pop()(table)
        if progress.phase == "settle" and progress.parts == 0:
            make.end(pending)

    table.maintenance.migrate(make.root, on_progress=tell, **wanted)
    return Table(make.root)


def write(table: Table) -> None:
    table.upsert(rows([1, 20], 2))
    table.delete(keys=keys(2, 3))
    table.upsert(rows([3], 4))


@shape()
def moved_to_more_buckets(make: Maker) -> Table:
    """default, compacted and written, moved to more buckets beside writers, then upserts and deletes."""
    source = old(make)
    source.append(rows(range(10), 1))
    source.maintenance.compact()
    source.upsert(rows([4, 5], 1, "again"))
    table = moved(make, source, write, buckets=5)
    table.upsert(rows([4, 80], 8))
    table.delete(keys=keys(5))
    return table


@shape()
def moved_to_partitions(make: Maker) -> Table:
    """default, moved to partitions beside writers whose rows change their partition."""
    source = old(make)
    source.append(rows(range(10), 1))
    return moved(make, source, write, partition_by="v", buckets=1)


@shape()
def moved_to_partitions_and_compacted(make: Maker) -> Table:
    """default, moved to partitions beside writers whose rows change their partition, compacted and written."""
    table = moved_to_partitions(make)
    table.maintenance.compact()
    table.upsert(rows([4, 80], 8))
    return table


@shape()
def moved_from_partitions(make: Maker) -> Table:
    """default, hive style partitions, moved to none beside a write to them, then upserts and deletes."""
    source = old(make, key=["id"], partition_by="v")
    source.append(rows(range(10), 1))
    table = moved(make, source, lambda t: t.delete(rows([0], 1).select(["id", "v"])), partition_by=())
    table.upsert(rows([1, 2], 3))
    table.delete(keys=keys(2))
    return table


@shape()
def moved_with_an_ordering(make: Maker) -> Table:
    """ordering column, deleted by it, moved to more buckets beside writers; then lower and greater values."""
    source = old(make, ordering="n")
    source.append(rows(range(10), 5))
    source.delete(rows([2, 3], 6).select(["id", "n"]))
    table = moved(make, source, lambda t: t.upsert(rows([3, 4], 7)), buckets=3)
    table.upsert(rows([2, 5], 4))
    table.upsert(rows([6], 9))
    return table


@shape()
def moved_with_payloads_and_compacted(make: Maker) -> Table:
    """payloads, moved to more buckets beside writers, compacted."""
    source = old(make, merge={"n": Counter()})
    source.append(rows(range(10), 1))
    table = moved(make, source, write, buckets=3)
    table.maintenance.compact()
    return table


@shape()
def moved_to_another_merge(make: Maker) -> Table:
    """default, moved from payloads beside writers, then upserts and deletes."""
    source = old(make, merge={"n": Counter()})
    source.append(rows(range(10), 1))
    table = moved(make, source, write, merge="latest")
    table.upsert(rows([1], 2))
    table.delete(keys=keys(4))
    return table

"""Shapes of tables with overwrites in them; imported after `shapes`, whose list they continue."""

from __future__ import annotations

from crdt_mor import Table
from crdt_mor.payloads import Counter, PartialUpdate
from tests.interop.shapes import Maker, clean, keys, rows, shape

BY_V = {"key": ["id", "v"], "partition_by": "v", "hive_style": True}


@shape()
def overwritten(make: Maker) -> Table:
    """default, overwritten, then upserts and deletes."""
    table = make.create()
    table.append(rows(range(10), 1))
    table.overwrite(rows([0, 1, 20], 2))
    table.upsert(rows([1, 2], 3))
    table.delete(keys=keys(20))
    return table


@shape()
def truncated(make: Maker) -> Table:
    """default, compacted, written, truncated."""
    table = make.create()
    table.append(rows(range(10), 1))
    table.maintenance.compact()
    table.upsert(rows([1], 2))
    table.truncate()
    return table


@shape()
def truncated_and_written(make: Maker) -> Table:
    """default, truncated twice, then upserts, and a compaction scheduled."""
    table = truncated(make)
    table.truncate()
    table.upsert(rows([3, 30], 4))
    table.maintenance.plans.schedule()
    return table


@shape()
def overwritten_beside_stragglers(make: Maker) -> Table:
    """default, overwritten beside three stragglers, one of which completes, one is given up, one stays pending."""
    table = make.create()
    table.append(rows(range(10), 1))
    ends, gives_up, stays = (make.begin(table) for _ in range(3))
    for n, tx in enumerate((ends, gives_up, stays)):
        tx.upsert(rows([0, 1, 11 + n], 90 + n))
    ends.delete(keys=keys(2))
    table.upsert(rows([1], 2))
    table.overwrite(rows([0, 2, 20], 3))
    table.upsert(rows([2], 4))
    make.end(ends)
    gives_up.__exit__(ValueError, ValueError("no"), None)
    return table


@shape()
def overwritten_and_compacted_beside_a_straggler(make: Maker) -> Table:
    """default, overwritten, written and compacted beside a straggler that completes then."""
    table = make.create()
    table.append(rows(range(10), 1))
    straggler = make.begin(table)
    straggler.upsert(rows([0, 1, 11], 99))
    table.overwrite(rows([0, 2, 20], 3))
    table.delete(keys=keys(2))
    table.maintenance.compact()
    make.end(straggler)
    table.upsert(rows([0], 5))
    return table


@shape()
def overwritten_while_a_compaction_was_scheduled(make: Maker) -> Table:
    """default, overwritten while a compaction was scheduled and executed in part, which is cancelled; written after."""
    table = make.create()
    table.append(rows(range(10), 1))
    make.begin(table).upsert(rows([0], 99))
    table.delete(keys=keys(3))
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    table.maintenance.plans.execute(plan.parts()[0])
    table.overwrite(rows([0, 2, 20], 3))
    table.upsert(rows([2, 3], 4))
    assert table.maintenance.compact(plan) == []
    return table


@shape()
def partitions_overwritten(make: Maker) -> Table:
    """default, hive style partitions, some overwritten, one deleted, one new; beside a straggler that completes."""
    table = make.create(**BY_V)
    for v in "abc":
        table.append(rows(range(6), 1, v))
    straggler = make.begin(table)
    for v in "abcd":
        straggler.upsert(rows([0, 9], 99, v))
    table.overwrite(rows([0, 1], 2, "a"), partitions="dynamic")
    table.delete_partitions(["b", "d"])
    table.overwrite(rows([5], 3, "e"), partitions=["e"])
    table.upsert(rows([4], 4, "b"))
    make.end(straggler)
    return table


@shape()
def overwritten_twice_at_once(make: Maker) -> Table:
    """default, two overwrites under way at once, and a write after both."""
    table = make.create()
    table.append(rows(range(10), 1))
    first, second = make.begin(table), make.begin(table)
    first.overwrite(rows([0, 1], 2))
    second.overwrite(rows([1, 2], 3))
    make.end(second)
    make.end(first)
    table.upsert(rows([7], 4))
    return table


@shape()
def overwritten_cleaned_and_archived(make: Maker) -> Table:
    """default, overwritten and written again and again, compacted, cleaned and archived between."""
    table = make.create()
    for n in range(6):
        table.overwrite(rows([0, n, 20], n))
        table.upsert(rows([n + 1], 100 + n))
        table.maintenance.compact()
        clean(table)
        table.maintenance.archive(keep_commits=1)
    return table


@shape()
def overwritten_with_an_ordering_column(make: Maker) -> Table:
    """ordering column, overwritten by lower values, and by some of keys that were deleted, then upserts."""
    table = make.create(ordering="n")
    table.append(rows(range(6), 100))
    table.delete(rows([1], 101).select(["id", "n"]))
    straggler = make.begin(table)
    straggler.upsert(rows([0, 1], 200))
    table.overwrite(rows([0, 1, 2], 5))
    table.upsert(rows([0], 4, "loses"))
    table.upsert(rows([2], 6))
    make.end(straggler)
    return table


@shape()
def payloads_overwritten(make: Maker) -> Table:
    """payloads, overwritten, nothing written after."""
    table = make.create(merge={"n": Counter()})
    table.append(rows(range(6), 1))
    table.upsert(rows(range(3), 1))
    table.overwrite(rows([0, 1, 1, 20], 2))
    return table


@shape()
def partial_updates_overwritten(make: Maker) -> Table:
    """PartialUpdate, overwritten by rows that lack a column, beside a straggler that completes."""
    table = make.create(merge=PartialUpdate())
    table.append(rows(range(6), 1))
    straggler = make.begin(table)
    straggler.upsert(rows([0], 9).select(["id", "n"]))
    table.overwrite(rows([0, 1, 20], 2).select(["id", "n"]))
    make.end(straggler)
    return table

"""A bank: transfers between accounts beside one another and beside upkeep. The total never changes, in any view."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Opening, Table
from crdt_mor.payloads import PartialUpdate
from crdt_mor.store import MemoryStore
from tests.inside import store_of
from tests.tiers import slow

ACCOUNTS: Final = ("ada", "bob", "eve")
TOTAL: Final = 300
SCHEMA: Final = pa.schema([("id", pa.string()), ("euros", pa.int64()), ("note", pa.string())])


def again(table: Table) -> Table:
    """The table as another process has it open."""
    return Table("memory", opening=Opening(store=store_of(table)))


def by_scan(table: Table, source: str, target: str, euros: int) -> None:
    """A block that reads, decides and writes rows."""
    with table.transaction(isolation="serializable") as tx:
        there = dict(tx.scan(columns=["id", "euros"], filter=pl.col("id").is_in([source, target])).to_polars().rows())
        if there[source] >= euros:
            changed = {source: there[source] - euros, target: there[target] + euros}
            tx.upsert(pa.table({"id": [*changed], "euros": [*changed.values()], "note": ["scan"] * 2}))


def by_statements(table: Table, source: str, target: str, euros: int) -> None:
    """A block of updates, the last of which sees the first: what would be overdrawn goes back."""
    with table.transaction(isolation="serializable") as tx:
        tx.update({"euros": f"euros - {euros}"}, f"id = '{source}'")
        tx.update({"euros": f"euros + {euros}", "note": "'updates'"}, f"id = '{target}'")
        if tx.scan(filter=f"id = '{source}' AND euros < 0").count():
            tx.update({"euros": f"CASE WHEN id = '{source}' THEN euros + {euros} ELSE euros - {euros} END"},
                      f"id IN ('{source}', '{target}')")  # fmt: skip


def by_merge(table: Table, source: str, target: str, euros: int) -> None:
    """One statement, whatever is there."""
    moves = pa.table({"id": [source, target], "by": [-euros, euros]})
    table.merge(moves, on="id").when_matched_update({"euros": "target.euros + source.by"}).execute()


WAYS: Final[tuple[Callable[[Table, str, str, int], None], ...]] = (by_scan, by_statements, by_merge)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "transfers"),
    [({}, 4), slow({"merge": PartialUpdate()}, 4), slow({}, 30), slow({"merge": PartialUpdate()}, 30)],
    ids=str,
)
def test_the_total_holds_in_every_kind_of_view(settings: dict[str, Any], transfers: int) -> None:
    table = Table.create("memory", SCHEMA, opening=Opening(store=MemoryStore()), key="id", buckets=2, **settings)
    opened = pa.table({"id": [*ACCOUNTS], "euros": [TOTAL // len(ACCOUNTS)] * 3, "note": [""] * 3}, schema=SCHEMA)
    first = table.upsert(opened)
    start = table.scan().checkpoint

    def transfer(worker: int) -> None:
        random, own = Random(worker), again(table)
        for _ in range(transfers):
            source, target = random.sample(ACCOUNTS, 2)
            WAYS[worker](own, source, target, random.randint(1, 60))
            total = sum(own.scan(columns="euros").to_polars()["euros"])
            assert total == TOTAL, f"{total} after a transfer of {worker}"
            if random.random() < 0.3:
                own.maintenance.compact()

    with ThreadPoolExecutor(len(WAYS)) as pool:
        list(pool.map(transfer, range(len(WAYS))))
    versions = [row["version"] for row in table.history().to_pylist() if row["version"] >= first.version]
    assert len(versions) > transfers
    for version in versions:
        assert sum(table.scan(as_of=version, columns="euros").to_polars()["euros"]) == TOTAL, version
    assert sum(table.scan(consistency="stable", columns="euros").to_polars()["euros"]) == TOTAL
    check_increments(table, start, sorted(versions))
    table.maintenance.compact()
    assert sum(table.scan(columns="euros").to_polars()["euros"]) == TOTAL


def check_increments(table: Table, start: str, versions: list[int]) -> None:
    """A copy that follows commit by commit has the total after each, and each commit's images are of one total."""
    copy = dict(table.scan(as_of=versions[0], columns=["id", "euros"]).to_polars().rows())
    since: str | int = start
    for version in versions[1:]:
        copy |= {row["id"]: row["euros"] for row in table.changes(since, until=version).to_arrow().to_pylist()}
        assert sum(copy.values()) == TOTAL, version
        since = version
    moved: dict[int, int] = {}
    for row in table.changes(start, images=True).to_arrow().to_pylist():
        sign = {"update_preimage": -1, "update_postimage": 1}[row["_change_type"]]
        moved[row["_commit_version"]] = moved.get(row["_commit_version"], 0) + sign * row["euros"]
    assert set(moved.values()) <= {0}


def test_a_limit_holds_beside_rows_that_come() -> None:
    """Each block adds a row while there are few: no phantom comes between its look and its write."""
    table = Table.create("memory", SCHEMA, opening=Opening(store=MemoryStore()), key="id", buckets=2)

    def book(worker: int) -> None:
        own = again(table)
        for number in range(3):
            with own.transaction(isolation="serializable") as tx:
                if tx.scan(filter="euros > 0").count() < 4:
                    tx.upsert(pa.table({"id": [f"{worker}.{number}"], "euros": [1], "note": [""]}))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(book, range(3)))
    assert table.scan().count() == 4

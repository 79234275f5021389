"""Tables in a store that is given: what is special to some, beside what this folder does in every store."""

from __future__ import annotations

import pickle

import polars as pl
import pytest

from crdt_mor import Opening, Table
from crdt_mor.errors import TableNotFoundError, UnsupportedFeatureError
from crdt_mor.readers.follow import follow
from crdt_mor.readers.polars import scan_table
from crdt_mor.store import LocalStore, MemoryStore
from tests.table.helpers import SCHEMA, Make, Place, frame, rows, sent

A, B = ("a", "eu", 1), ("b", "us", 2)


@pytest.fixture
def memory() -> Table:
    """A table in memory with a base file and a log."""
    table = Table.create("flights", SCHEMA, key="id", opening=Opening(store=MemoryStore()))
    table.upsert(frame(A, B))
    table.maintenance.compact()
    table.upsert(frame(("b", "us", 3)))
    return table


def test_with_a_store_the_address_is_only_a_name(memory: Table) -> None:
    assert (memory.uri, memory.config.name) == ("flights", "flights")
    assert repr(memory).startswith("Table('flights', ")
    with pytest.raises(TableNotFoundError, match="path=s3://other"):
        Table("s3://other", opening=Opening(store=MemoryStore()))


def test_two_handles_on_one_store_are_one_table(make: Make, place: Place) -> None:
    make().upsert(frame(A))
    other = place.open()
    other.upsert(frame(B))
    other.maintenance.compact()
    assert rows(place.open(), "id", "n") == [("a", 1), ("b", 2)]


def test_polars_reads_it_lazily_and_followers_follow(make: Make) -> None:
    table = make(buckets=1)
    table.upsert(frame(A, B))
    table.maintenance.compact()
    table.upsert(frame(("c", "eu", 3)))
    query = scan_table(table).filter(pl.col("n") > 1).select("id").sort("id")
    assert query.collect()["id"].to_list() == ["b", "c"]
    assert query.collect(engine="streaming")["id"].to_list() == ["b", "c"]
    assert next(follow(table)).to_arrow().num_rows == 3


def test_what_it_reads_is_explained(make: Make) -> None:
    table = make(buckets=1)
    table.upsert(frame(A, B))
    table.maintenance.compact()
    explained = table.scan(filter="n > 1").explain()
    assert (explained.row_groups, explained.row_groups_total) == (1, 1)
    assert table.scan(filter="n > 5").explain().by_statistics.slices == 1


def test_what_needs_other_processes_says_that_memory_is_not_shared(memory: Table) -> None:
    scan = memory.scan()
    job = memory.jobs.plan("upsert", SCHEMA)
    for thing in (memory, scan, scan.parts()[0], memory.changes(), job):
        with pytest.raises(UnsupportedFeatureError, match=r"cannot be pickled.*store=MemoryStore"):
            pickle.dumps(thing)


def test_threads_share_what_is_in_memory(memory: Table) -> None:
    job = memory.jobs.plan("upsert", SCHEMA)
    memory.jobs.complete(job, [job.stage(frame(("c", "eu", 7)), task=0)])
    plan = memory.maintenance.plans.schedule()
    assert plan is not None
    files = [
        file for part in plan.parts() for file in memory.maintenance.plans.execute(pickle.loads(pickle.dumps(part)))
    ]
    memory.maintenance.plans.complete(plan, files)
    assert rows(memory, "id", "n") == [("a", 1), ("b", 3), ("c", 7)]


def test_a_store_that_can_be_pickled_goes_along(path: str) -> None:
    table = Table.create("by its store", SCHEMA, key="id", opening=Opening(store=LocalStore(path)))
    table.upsert(frame(A))
    job = sent(table.jobs.plan("upsert", SCHEMA))
    table.jobs.complete(job, [job.stage(frame(B), task=0)])
    assert rows(sent(table), "id") == rows(Table(path), "id") == [("a",), ("b",)]

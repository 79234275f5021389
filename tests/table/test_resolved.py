"""A slice that was merged once is read by what was found out of it, and no answer tells: neither rows nor counts."""

from __future__ import annotations

import random
from itertools import product
from typing import Any, Final

import polars as pl
import pytest

from crdt_mor import Opening, Table
from crdt_mor.ground.bounded import ENTRY_BYTES, Bounded
from crdt_mor.merge import at_once, contributions
from crdt_mor.merge import resolution as kept
from crdt_mor.payloads import Counter
from crdt_mor.read import together
from crdt_mor.store import MemoryStore
from tests.counting import Bucket
from tests.inside import session_of, store_of
from tests.table.compacting import written
from tests.table.helpers import MERGES, Make, counted_merges, frame
from tests.tiers import only, seeds

URI: Final = "s3://counted/table"
OF_BITS: Final = ("latest", "ordering")
"""The merges of which one bit a row says what a reader sees."""

CASES: Final = list(product(MERGES, ("flat", "partitions")))
FAST: Final = [("latest", "flat"), ("ordering", "partitions")]


@pytest.fixture
def merges(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of blocks of each merge from now on; small slices are merged alone."""
    monkeypatch.setattr(together, "BYTES_MAX", 0)
    return counted_merges(monkeypatch)


def answers(table: Table, **scan: Any) -> list[object]:
    """What scans say: all columns, some without the key, the number of rows, and some rows by a filter."""
    every = sorted(table.scan(**scan).to_polars().rows(), key=repr)
    narrow = sorted(table.scan(columns=["price", "n"], **scan).to_polars().rows(), key=repr)
    chosen = sorted(table.scan(filter="n > 8", **scan).to_polars().rows(), key=repr)
    return [every, narrow, table.scan(**scan).count(), chosen]


@pytest.mark.slow
@pytest.mark.parametrize(("merge", "layout"), only(FAST, CASES))
@pytest.mark.parametrize("seed", seeds([0], range(1, 4), range(4, 40)))
def test_every_scan_of_a_history_says_what_the_first_one_of_a_process_says(
    make: Make, merge: str, layout: str, seed: int, merges: list[int]
) -> None:
    table = make(buckets=3, partition_by="region" if layout == "partitions" else (), **MERGES[merge])
    chance = random.Random(seed)
    moments: list[Any] = [None, *(commit for _ in range(2) for commit in written(table, chance)[-2:])]
    for moment in moments:
        first = answers(Table(table.uri, opening=Opening(store=store_of(table))), as_of=moment)
        assert first == answers(table, as_of=moment) == answers(table, as_of=moment)


@pytest.mark.costly
@pytest.mark.parametrize("merge", OF_BITS)
def test_no_keys_are_merged_again(make: Make, merge: str, merges: list[int]) -> None:
    table = make(buckets=3, **MERGES[merge])
    written(table, random.Random(1))
    first = answers(table)
    assert merges
    merges.clear()
    whole = table.scan().to_polars()
    assert (sorted(whole.rows(), key=repr), table.scan().count()) == (first[0], first[2])
    assert table.scan(columns="price").to_polars().height == whole.height
    assert not merges
    table.upsert(frame(("k01", "a", 99)))
    assert table.scan(filter="n = 99").count() == 1
    merges.clear()
    assert table.scan().to_polars().filter(pl.col("n") == 99)["id"].to_list() == ["k01"]
    assert len(merges) == 1, "the other slices have the files that they had"


def test_a_block_sees_what_it_has_written_and_nobody_else_does(make: Make, merges: list[int]) -> None:
    table = make(buckets=2)
    written(table, random.Random(2))
    before = answers(table)
    with table.transaction(isolation="serializable") as block:
        block.upsert(frame(("k05", "b", 77)))
        assert block.scan(filter="n = 77").count() == 1
        assert sorted(block.scan().to_polars().rows(), key=repr) != before[0]
        assert answers(table) == before
    assert answers(table) != before


@pytest.mark.slow
def test_a_merge_of_payloads_is_done_each_time(make: Make, merges: list[int]) -> None:
    table = make(buckets=2, merge={"n": Counter()})
    written(table, random.Random(3))
    assert answers(table) == answers(table)
    assert not session_of(table).views.resolutions


@pytest.mark.slow
def test_what_is_forgotten_is_found_out_again(make: Make, merges: list[int]) -> None:
    table = make(buckets=7)
    written(table, random.Random(4))
    first, views = answers(table), session_of(table).views
    assert len(views.resolutions) == 7
    views.resolutions = Bounded(3 * ENTRY_BYTES + 100)
    assert answers(table) == first == answers(table)
    assert len(views.resolutions) == 3


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 64])
def test_bits_are_the_mask(rows: int) -> None:
    mask = pl.Series([(row * 7) % 3 == 0 for row in range(rows)])
    bits = kept.Bits.of(mask.to_numpy())
    assert (bits.series.to_list(), bits.rows, bits.ones) == (mask.to_list(), rows, mask.sum())


def test_of_a_bucket_the_keys_are_not_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "BYTES_MAX", 0)
    bucket, count = Bucket(), 20_000
    texts = random.Random(5).randbytes(count * 32).hex()
    wide = pl.DataFrame({"id": [texts[i : i + 64] for i in range(0, len(texts), 64)], "n": range(count)})
    with bucket.counting():
        table = Table.create(URI, wide.to_arrow().schema, key="id", buckets=1, opening=Opening(store=bucket.store()))
        table.upsert(wide)
        table.maintenance.compact()
        table.upsert(wide.tail(9))
        path, footer = bucket.base_file()
        group = footer.row_group(0)
        first = bucket.count(lambda: table.scan(columns="n").to_polars())
        again = bucket.count(lambda: table.scan(columns="n").to_polars())
    keys = sum(c.total_compressed_size for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "id")
    assert footer.num_row_groups == 1
    assert first.fetched(path) > keys > 10 * again.fetched(path)


def test_a_list_that_is_small_beside_the_logs_is_held_against_them(
    merges: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 20_000
    texts = random.Random(6).randbytes(count * 32).hex()
    wide = pl.DataFrame({"id": [texts[i : i + 64] for i in range(0, len(texts), 64)], "n": range(count)})
    table = Table.create("t", wide.to_arrow().schema, key="id", buckets=1, opening=Opening(store=MemoryStore()))
    table.upsert(wide)
    table.maintenance.compact()
    table.upsert(wide.with_columns(pl.col("n") + count))
    assert table.scan(columns="n").to_polars()["n"].sum() == count * (3 * count - 1) // 2
    assert merges, "which has resolved the slice"
    merges.clear()
    decoded: list[int] = []

    def watched(*args: Any) -> pl.DataFrame:
        decoded.append(len(args[0]))
        return contributions.decode(*args)

    monkeypatch.setattr(at_once, "decode", watched)
    for size, by_place in ((150, False), (2_000, True)):
        some = wide.head(size)
        found = table.scan(filter=pl.col("id").is_in(some["id"].to_list())).to_polars()
        assert sorted(found["n"]) == [*range(count, count + size)]
        assert (bool(decoded), bool(merges)) == (by_place, not by_place)
        decoded.clear()
        merges.clear()


def test_rows_of_an_erased_key_are_gone_from_every_scan() -> None:
    table = Table.create("t", frame(("k", "a", 1)).schema, key="id", buckets=1, opening=Opening(store=MemoryStore()))
    table.upsert(frame(("k01", "a", 1), ("k02", "a", 2)))
    table.maintenance.compact()
    table.upsert(frame(("k02", "a", 3)))
    assert table.scan().count() == 2
    table.maintenance.erase(where="id = 'k01'")
    assert table.scan().to_polars()["id"].to_list() == ["k02"]
    assert table.scan().count() == 1

"""A table that is asked for keys again and again opens only the log files that have one of them."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import date, timedelta
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_mor import Commit, Opening, Table
from crdt_mor.ground.bounded import Bounded
from crdt_mor.laws.merging import merging_of
from crdt_mor.merge import kernel
from crdt_mor.merge.blocks import Slice
from crdt_mor.merge.contributions import have_own_times
from crdt_mor.model.committed import Committed
from crdt_mor.model.names import LogFileName
from crdt_mor.model.slices import FileSlice
from crdt_mor.read import log_keys
from crdt_mor.read.log_keys import KeysOfLog, Lookup
from crdt_mor.read.open_slice import open_slice
from crdt_mor.store import MemoryStore
from tests.stores import WatchedStore
from tests.table.compacting import written
from tests.table.helpers import MERGES, Make, Place, frame

DAY = date(2026, 11, 28)
SHAPES: dict[str, tuple[dict[str, pa.DataType], list[str]]] = {
    "a text": ({"id": pa.string()}, ["id"]),
    "a number": ({"id": pa.int16()}, ["id"]),
    "a date": ({"id": pa.date32()}, ["id"]),
    "two columns": ({"id": pa.string(), "part": pa.int64()}, ["id", "part"]),
}
LOGS = 6


def row(shape: str, number: int) -> dict[str, Any]:
    """The key of a number, which the log file of that number has, and no other."""
    columns, _ = SHAPES[shape]
    values = {pa.string(): str(number), pa.date32(): DAY + timedelta(number)}
    return {name: values.get(kind, number) for name, kind in columns.items()}


def is_key(shape: str, *numbers: int) -> pl.Expr:
    conditions = [pl.col(name).is_in([row(shape, number)[name] for number in numbers]) for name in SHAPES[shape][1]]
    return reduce(and_, conditions)


def with_logs(shape: str) -> tuple[WatchedStore, Table]:
    """A table with a base file of ten keys, and a log file each for the first of them; the last one deletes its key."""
    columns, key = SHAPES[shape]
    schema, store = pa.schema([*columns.items(), ("n", pa.int64())]), WatchedStore(MemoryStore())
    table = Table.create("memory://keys", schema, key=key, buckets=1, opening=Opening(store=store))
    table.upsert(pa.Table.from_pylist([row(shape, number) | {"n": 0} for number in range(10)], schema))
    table.maintenance.compact()
    for number in range(LOGS - 1):
        table.upsert(pa.Table.from_pylist([row(shape, number) | {"n": 1}], schema))
    table.delete(pa.Table.from_pylist([row(shape, LOGS - 1)], schema.remove(len(schema) - 1)))
    return store, table


def logs_opened(store: WatchedStore, table: Table, condition: pl.Expr) -> tuple[int, list[int]]:
    """How many log files a lookup opens, and what it finds in the column `n`."""
    store.calls.clear()
    found = table.scan(filter=condition).to_polars()["n"].to_list()
    names = [path.rpartition("/")[2] for path in store.paths("read", "view")]
    return sum(LogFileName.parse(name) is not None for name in names), found


@pytest.mark.parametrize("shape", SHAPES)
def test_from_the_third_lookup_on_only_log_files_with_the_keys_are_opened(shape: str) -> None:
    store, table = with_logs(shape)
    assert logs_opened(store, table, is_key(shape, 2)) == (LOGS, [1])
    opened, found = logs_opened(store, table, is_key(shape, 7))
    assert (opened, found) == (LOGS, [0]), "each is opened once more, and its keys are remembered"
    for number in range(10):
        value = [] if number == LOGS - 1 else [int(number < LOGS - 1)]
        assert logs_opened(store, table, is_key(shape, number)) == (int(number < LOGS), value)
    assert logs_opened(store, table, is_key(shape, 20)) == (0, [])


def test_a_log_file_that_has_come_since_is_met() -> None:
    store, table = with_logs("a text")
    for _ in range(3):
        logs_opened(store, table, is_key("a text", 7))
    other = Table("memory://keys", opening=Opening(store=store))
    other.upsert(pa.table({"id": ["7", "8"], "n": [5, 6]}))
    assert logs_opened(store, table, is_key("a text", 7))[1] == [5]
    assert logs_opened(store, table, is_key("a text", 8)) == (1, [6])
    other.delete(keys=["8"])
    assert logs_opened(store, table, is_key("a text", 8))[1] == []


def test_the_keys_of_large_log_files_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_keys, "LOG_BYTES_MAX", 1)
    store, table = with_logs("a text")
    for _ in range(4):
        assert logs_opened(store, table, is_key("a text", 7)) == (LOGS, [0])


def test_a_process_forgets_keys_that_would_take_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crdt_mor.events.views.LOG_KEYS_BYTES", 2500)  # those of two log files
    store, table = with_logs("a text")
    for number in (7, 2, 8, 2):
        assert logs_opened(store, table, is_key("a text", number))[1] == [int(number < LOGS - 1)]
    assert len(table._session.views._log_keys) == 2


@pytest.mark.slow
@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("seed", range(3))
def test_random_histories_show_the_same_rows_to_lookups_at_every_moment(
    make: Make, place: Place, merge: str, seed: int
) -> None:
    chance = random.Random(seed)
    table = make(buckets=2, **MERGES[merge])
    commits, other = written(table, chance), place.open()
    for as_of in [None, *chance.sample(commits, 4)]:
        every = table.scan(as_of=as_of).to_polars()
        for _ in range(4):
            asked = [f"k{number:02d}" for number in chance.sample(range(44), chance.randint(1, 5))]
            want = every.filter(pl.col("id").is_in(asked)).sort("id")
            assert other.scan(filter=pl.col("id").is_in(asked), as_of=as_of).to_polars().sort("id").equals(want)


def require_same_keys(table: Table, as_of: Commit | None = None) -> tuple[int, bool]:
    """Compare the keys of a file group's log files, decoded together, with those of each.

    Returns their number, and whether rows have other times than their block.
    """
    session, count, own = table._session, 0, False
    columns = merging_of(session.config, session.known_tail().schema).columns
    for slice_ in table.scan(as_of=as_of)._snapshot.slices:
        each = [replace(slice_, base=None, logs=(log,)) for log in slice_.logs]
        groups = [open_slice(session.store, one, session.config).blocks for one in each]
        own |= any(map(have_own_times, groups))
        for group, found in zip(groups, kernel.touched_of_each(groups, columns), strict=True):
            assert found.sort().equals(kernel.touched(group, columns).sort())
            count += len(found)
    return count, own


@pytest.mark.parametrize("shape", SHAPES)
def test_keys_of_log_files_are_decoded_together(shape: str) -> None:
    assert require_same_keys(with_logs(shape)[1]) == (LOGS, False)


def test_keys_of_carried_rows_are_those_of_each_log_file(make: Make) -> None:
    """A compaction beside an older pending write carries rows, which keep their own times."""
    table = make(buckets=1, **MERGES["counter"])
    with table.transaction() as older:
        older.upsert(frame(("c", "x", 1, None)))
        for key in "ab":
            table.upsert(frame((key, "x", 2, None)))
        table.maintenance.compact()
        table.upsert(frame(("d", "x", 3, None)))
    assert require_same_keys(table) == (4, True)


@pytest.mark.slow
@pytest.mark.parametrize("merge", MERGES)
def test_keys_of_random_log_files_are_decoded_together(make: Make, merge: str) -> None:
    table = make(buckets=2, **MERGES[merge])
    assert sum(require_same_keys(table, commit)[0] for commit in written(table, random.Random(merge)))


@given(st.lists(st.integers(0, 2**64 - 1)), st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_hashes_are_found_as_in_a_set(inside: list[int], asked: list[int]) -> None:
    keys = KeysOfLog(np.array(sorted(inside), np.uint64))
    assert keys.may_have_any(np.array(asked, np.uint64)) == bool(set(inside) & set(asked))
    assert keys.nbytes == 8 * len(inside)


def test_log_files_of_hudis_are_always_opened(make: Make) -> None:
    table = make(buckets=1)
    table.upsert(frame(("a", "x", 1, None)))
    session = table._session
    (slice_,) = table.scan()._snapshot.slices
    columns = merging_of(session.config, session.known_tail().schema).columns

    def refused(_: FileSlice) -> Slice:
        raise AssertionError("no log file is opened to find its keys")

    lookup = Lookup.of(pl.Series(["none"]), Bounded(1000), session.config, columns, refused)
    assert lookup is not None
    of_hudi = [replace(log, path=log.path.replace("_0-0-0", "_1-10-2")) for log in slice_.logs]
    for other in (replace(slice_, logs=tuple(of_hudi)), replace(slice_, committed=Committed.only([]))):
        assert lookup.narrowed(other) is other

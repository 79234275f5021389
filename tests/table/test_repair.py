"""`table.maintenance.repair` puts damaged and missing files back from a copy, and nothing that fails a check."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Opening, Table
from crdt_mor.log.paths import SEGMENTS
from crdt_mor.services import repair as service
from crdt_mor.store import MemoryStore, Store
from tests.inside import store_of
from tests.simulated import Simulated
from tests.tiers import slow

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])


def rows(*ids: int, n: int = 0) -> pl.DataFrame:
    return pl.DataFrame({"id": ids, "n": [n] * len(ids)})


def shown(table: Table) -> list[tuple[object, ...]]:
    return sorted(table.to_polars().rows())


@pytest.fixture
def table(simulated: Simulated, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Base files, two logs above them, and commits in segments."""
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 2)
    made = simulated.create(SCHEMA, key="id", buckets=2)
    made.upsert(rows(*range(20)))
    made.maintenance.compact()
    made.upsert(rows(1, 2, 3, n=1))
    made.upsert(rows(4, n=2))
    return made


@pytest.fixture
def copy(table: Table) -> Table:
    target = MemoryStore(table.environment.now_ms)
    table.copy("c", store=target)
    return Table("c", opening=Opening(store=target, environment=table.environment))


def base(store: Store) -> str:
    return min(stat.path for stat in store.walk("") if stat.path.endswith(".parquet"))


def log(store: Store) -> str:
    return min(stat.path for stat in store.walk("") if ".log." in stat.path)


def segment(store: Store) -> str:
    return store.list(SEGMENTS)[0].path


def told(store: Store) -> str:
    names = (stat.path for stat in store.list(".hoodie/timeline"))
    return min(path for path in names if path.endswith(".deltacommit"))


def replaced(store: Store, path: str, data: bytes) -> None:
    store.delete(path)
    store.put(path, data)


def gone(store: Store, path: str) -> None:
    store.delete(path)


def flipped(store: Store, path: str) -> None:
    data = bytearray(store.read(path) or b"")
    at = 200 if path.endswith(".parquet") else len(data) // 2 if ".log." in path else -1  # in a page, in a block
    data[at] ^= 1
    replaced(store, path, bytes(data))


def cut(store: Store, path: str) -> None:
    replaced(store, path, (store.read(path) or b"")[:-5])


@pytest.mark.parametrize("damage", [gone, flipped, cut])
@pytest.mark.parametrize("kind", [base, log, segment, told])
def test_a_damaged_file_is_put_back_byte_for_byte(
    table: Table, copy: Table, kind: Callable[[Store], str], damage: Callable[[Store, str], None]
) -> None:
    store, rows_before = store_of(table), shown(table)
    path = kind(store)
    before = store.read(path)
    damage(store, path)
    assert not Table("t", opening=Opening(store=store, environment=table.environment)).verify().is_sound
    done = table.maintenance.repair(copy)
    assert (done.files, done.is_sound) == ((path,), True)
    assert store.read(path) == before
    assert shown(Table("t", opening=Opening(store=store, environment=table.environment))) == rows_before


def test_files_behind_a_missing_segment_are_repaired_as_well(table: Table, copy: Table) -> None:
    store = store_of(table)
    damaged = {segment(store), base(store), log(store), told(store)}
    for path in damaged:
        flipped(store, path)
    done = table.maintenance.repair(copy)
    assert (set(done.files), done.is_sound) == (damaged, True)
    assert done.bytes == sum(len(store.read(path) or b"") for path in damaged)


def test_a_file_that_is_damaged_in_the_copy_as_well_stays(table: Table, copy: Table) -> None:
    store = store_of(table)
    path = base(store)
    flipped(store, path)
    cut(store_of(copy), path)
    gone(store, log(store))
    before = store.read(path)
    done = table.maintenance.repair(copy)
    assert done.files == (log(store_of(copy)),)
    assert [finding.path for finding in done.verification.findings] == [path]
    assert store.read(path) == before


def test_a_file_that_the_copy_lacks_stays_missing(table: Table, copy: Table) -> None:
    table.upsert(rows(*range(20), n=3))
    store = store_of(table)
    newest = max((stat.path for stat in store.walk("") if ".log." in stat.path), key=lambda path: path.split("_")[1])
    gone(store, newest)
    done = table.maintenance.repair(copy)
    assert (done.files, [finding.check for finding in done.verification.findings]) == ((), ["missing"])


def test_a_sound_table_is_left_alone(table: Table, copy: Table) -> None:
    store = store_of(table)
    before = {stat.path: (stat.size, stat.modified_ms) for stat in store.walk("")}
    done = table.maintenance.repair(copy)
    assert (done.files, done.bytes, done.is_sound) == ((), 0, True)
    assert {stat.path: (stat.size, stat.modified_ms) for stat in store.walk("")} == before


def test_another_table_and_the_table_itself_are_refused(table: Table) -> None:
    other = Table.create("o", SCHEMA, key="id", opening=Opening(store=MemoryStore(), environment=table.environment))
    other.upsert(rows(1))
    with pytest.raises(InvalidInputError, match="the copy is another table"):
        table.maintenance.repair(other)
    with pytest.raises(InvalidInputError, match="the copy is the table itself"):
        table.maintenance.repair(table)


def test_repair_from_the_table_under_another_address_is_refused(fast_path: Path) -> None:
    """The damage of a first look may be gone in the second, and then the only file would be deleted."""
    table = Table.create(fast_path / "t", SCHEMA, key="id")
    table.upsert(rows(1))
    (fast_path / "link").symlink_to(fast_path / "t")
    before = sorted(path for path in (fast_path / "t").rglob("*") if path.is_file())
    with pytest.raises(InvalidInputError, match="the copy is the table itself"):
        table.maintenance.repair(Table(fast_path / "link"))
    assert sorted(path for path in (fast_path / "t").rglob("*") if path.is_file()) == before


def test_a_file_that_is_cleaned_while_it_is_put_back_is_removed_again(table: Table, copy: Table) -> None:
    store = store_of(table)
    path = log(store)
    gone(store, path)
    put = service._put

    def cleaned_before(*args: Any) -> bool:
        other = Table("t", opening=Opening(store=store, environment=table.environment))
        other.overwrite(rows(1))
        other.maintenance.clean(commits=1, readers=timedelta(0))
        return put(*args)

    with patch.object(service, "_put", cleaned_before):
        done = table.maintenance.repair(copy)
    assert done.is_sound
    assert store.stat(path) is None


@pytest.mark.parametrize("kind", [slow(base), log])
def test_a_repair_that_is_stopped_before_the_put_is_finished_by_the_next(
    table: Table, copy: Table, kind: Callable[[Store], str]
) -> None:
    store = store_of(table)
    path = kind(store)
    flipped(store, path)
    with (
        patch.object(service, "put_across", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        table.maintenance.repair(copy)
    assert store.stat(path) is None
    assert table.maintenance.repair(copy).files == (path,)


@pytest.mark.parametrize("given", ["backup/t", None, pl.DataFrame()])
def test_repair_with_no_table_as_copy_is_refused_by_name(given: Any) -> None:
    table = Table.create("t", pa.schema([("id", pa.int64())]), key="id", opening=Opening(store=MemoryStore()))
    with pytest.raises(InvalidInputError, match=r"pass the copy as a table"):
        table.maintenance.repair(given)

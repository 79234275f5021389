"""`Table.verify` reads the stored bytes, whatever the session has kept of earlier reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from crdt_mor import Opening, Table
from crdt_mor.errors import FormatError
from crdt_mor.store.objects import ObjectStore
from tests.counting import Bucket

ROWS = pl.DataFrame({"id": ["a", "b", "c"], "n": [1, 2, 3]})


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    bucket = Bucket()
    with bucket.counting():
        yield bucket


@pytest.fixture
def table(bucket: Bucket) -> Table:
    """A base file and a log, both read by this session."""
    Table.create_from("s3://counted/table", ROWS, key="id", buckets=1, opening=Opening(store=bucket.store()))
    table = Table("s3://counted/table", opening=Opening(store=bucket.store()))
    table.upsert(ROWS.head(1).with_columns(n=9))
    assert table.to_polars()["n"].sum() == 14
    return table


def replace(bucket: Bucket, path: str, data: bytes, folder: str = "table") -> None:
    """Replace an object as another program would."""
    store = bucket.store(folder=folder)
    store.delete(path)
    store.put(path, data)


def damaged(data: bytes, at: int = 200) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def named(bucket: Bucket, ending: str) -> tuple[str, bytes]:
    """Return the path and the bytes of the only such data file."""
    store = bucket.store()
    (path,) = (stat.path for stat in store.walk("") if ending in stat.path)
    data = store.read(path)
    assert data is not None
    return path, data


def damage(bucket: Bucket, ending: str) -> str:
    path, data = named(bucket, ending)
    replace(bucket, path, damaged(data))
    return path


@pytest.mark.parametrize("ending", [".parquet", ".log."])
def test_damage_after_a_scan_is_found(bucket: Bucket, table: Table, ending: str) -> None:
    path = damage(bucket, ending)
    assert [(finding.check, finding.path) for finding in table.verify().findings] == [("read", path)]


@pytest.mark.parametrize("ending", [".parquet", ".log."])
def test_damage_is_gone_once_the_object_is_whole_again(bucket: Bucket, table: Table, ending: str) -> None:
    path, data = named(bucket, ending)
    replace(bucket, path, damaged(data))
    assert not table.verify().is_sound
    replace(bucket, path, data)
    assert table.verify().is_sound


def test_bytes_that_are_damaged_once_are_read_again(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, left = ObjectStore._ranges, [1]

    def ranges(store: ObjectStore, path: str, *asked: Any) -> list[bytes]:
        found = kept(store, path, *asked)
        return [damaged(data) for data in found] if ".parquet" in path and left and left.pop() else found

    monkeypatch.setattr(ObjectStore, "_ranges", ranges)
    assert table.verify().is_sound
    assert left == []


def test_repair_does_not_take_a_file_that_the_copy_has_lost_meanwhile(bucket: Bucket, table: Table) -> None:
    table.copy("s3://counted/copied", store=bucket.store(folder="copied"))
    copy = Table("s3://counted/copied", opening=Opening(store=bucket.store(folder="copied")))
    copy.to_polars()
    path, data = named(bucket, ".parquet")
    for folder in ("table", "copied"):
        replace(bucket, path, damaged(data), folder)
    done = table.maintenance.repair(copy)
    assert (done.files, done.is_sound) == ((), False)


@pytest.mark.parametrize("ending", [".parquet", ".log."])
def test_a_session_reads_a_damaged_object_anew(bucket: Bucket, table: Table, ending: str) -> None:
    """Another process may have repaired it since."""
    path, data = named(bucket, ending)
    replace(bucket, path, data[:-9] + bytes(9))
    reader = Table("s3://counted/table", opening=Opening(store=bucket.store()))
    with pytest.raises(FormatError):
        reader.to_polars()
    replace(bucket, path, data)
    assert reader.to_polars()["n"].sum() == 14

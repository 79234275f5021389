"""What is acknowledged outlasts a power cut, though another process put it, or the disk failed in the middle.

The disk here forgets names that were given, and folders that were made, but not fsynced: `cut` takes them away.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from crdt_mor import CommitUnknownError, StorageUnavailableError, Table
from crdt_mor.store import local
from crdt_mor.store.local import LocalStore
from tests.table.helpers import Make, frame, rows


class Killed(BaseException):
    """The process is gone, between the link and the fsync of the folder."""


class Disk:
    """Knows which names below a folder were not fsynced yet, and fails where it is told to."""

    def __init__(self, patch: pytest.MonkeyPatch, root: str) -> None:
        self.root = root
        self.volatile: set[str] = set()
        self.fsyncs: list[str] = []
        self.fails: Callable[[list[str]], bool] = lambda fsyncs: False
        self._link, self._mkdir, self._fsync = os.link, os.mkdir, local._fsync_path
        patch.setattr(os, "link", self.link)
        patch.setattr(os, "mkdir", self.mkdir)
        patch.setattr(local, "_fsync_path", self.fsync)

    def link(self, source: str, target: str) -> None:
        self._link(source, target)
        self.volatile.add(target)

    def mkdir(self, path: str | Path, mode: int = 0o777) -> None:
        self._mkdir(path, mode)
        self.volatile.add(str(path))

    def fsync(self, path: str) -> None:
        self.fsyncs.append(os.path.relpath(path, self.root))
        if self.fails(self.fsyncs):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._fsync(path)
        self.volatile -= {name for name in self.volatile if os.path.dirname(name) == path}

    def cut(self) -> None:
        for path in sorted(self.volatile):
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif os.path.exists(path):
                os.unlink(path)
        self.volatile.clear()


@pytest.fixture
def disk(path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    with monkeypatch.context() as patch:
        yield Disk(patch, path)


def kill_after_link(part: str, what: Callable[[], object], holds: bytes = b"") -> None:
    """Run what dies right after it has given a name with `part` in it, to a file that `holds` this.

    From then on it does nothing to the disk.
    """
    publish, answering = LocalStore._publish, local._answering
    dead = False

    def die(store: LocalStore, folder: str, path: str) -> None:
        nonlocal dead
        if part in path and holds in (store.root / path).read_bytes():
            dead = True
            raise Killed
        publish(store, folder, path)

    def answer(what: str, path: str) -> AbstractContextManager[None]:
        if dead:
            raise Killed
        return answering(what, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStore, "_publish", die)
        patch.setattr(local, "_answering", answer)
        with pytest.raises(Killed):
            what()


TIMELINE = ".hoodie/.crdt_mor/timeline"


def nth(count: int, fsyncs: list[str]) -> bool:
    """Whether this fsync is number `count` of the timeline's folder."""
    return fsyncs[-1] == TIMELINE and fsyncs.count(TIMELINE) == count


def in_block(table: Table, *rows: tuple[str, str, int]) -> None:
    """Rows in a commit that begins and completes in an event each."""
    with table.transaction() as tx:
        tx.upsert(frame(*rows))


def alone(table: Table, *rows: tuple[str, str, int]) -> None:
    """Rows in a commit that is one event."""
    before = table.version
    table.upsert(frame(*rows))
    assert table.version == before + 1


@pytest.mark.parametrize(("write", "events"), [(in_block, 2), (alone, 1)])
@pytest.mark.parametrize("fsync", [1, 2, 3])
def test_a_commit_whose_folder_was_not_fsynced_at_first_lasts_once_it_is_acknowledged(
    make: Make, path: str, disk: Disk, fsync: int, write: Callable[..., None], events: int
) -> None:
    table = make(buckets=1)
    table.upsert(frame(("a", "x", 1)))
    disk.fsyncs.clear()
    disk.fails = partial(nth, fsync)
    write(table, ("b", "x", 2))
    assert disk.fsyncs.count(TIMELINE) == events + (fsync <= events), "each event, and the one that failed again"
    disk.cut()
    assert rows(Table.open(path), "id") == [("a",), ("b",)]


def test_a_commit_that_was_read_back_but_cannot_be_made_durable_is_an_unknown_outcome(make: Make, disk: Disk) -> None:
    table = make(buckets=1)
    table.upsert(frame(("a", "x", 1)))
    disk.fsyncs.clear()
    disk.fails = lambda fsyncs: fsyncs[-1] == TIMELINE and fsyncs.count(TIMELINE) > 1
    with pytest.raises(CommitUnknownError, match="EIO"):
        in_block(table, ("a", "x", 2))


def test_a_commit_in_one_event_that_cannot_be_made_durable_is_an_unknown_outcome(make: Make, disk: Disk) -> None:
    table = make(buckets=1)
    table.upsert(frame(("a", "x", 1)))
    disk.fails = lambda fsyncs: fsyncs[-1] == TIMELINE
    with pytest.raises(CommitUnknownError, match="EIO"):
        table.upsert(frame(("a", "x", 2)))


KEYS = [f"k{number}" for number in range(40)]
PARTITIONS = ("x", "y", "z")


@pytest.mark.parametrize("write", [in_block, alone])
@pytest.mark.parametrize("partition_by", [(), "region"])
def test_all_log_files_of_a_commit_last_and_each_folder_is_waited_for_once(
    make: Make, path: str, disk: Disk, write: Callable[..., None], partition_by: str | tuple[()]
) -> None:
    table = make(buckets=8, partition_by=partition_by)
    table.upsert(frame(*((key, PARTITIONS[i % 3], 0) for i, key in enumerate(KEYS))))
    before = set(table.inspect.files()["path"].to_pylist())
    disk.fsyncs.clear()
    write(table, *((key, PARTITIONS[i % 3], 1) for i, key in enumerate(KEYS)))
    files = set(table.inspect.files()["path"].to_pylist()) - before
    folders = [os.path.dirname(file) or "." for file in files]
    assert len(files) > len(set(folders)) == (3 if partition_by else 1)
    assert {folder: disk.fsyncs.count(folder) for folder in folders} == dict.fromkeys(folders, 1)
    disk.cut()
    assert rows(Table.open(path), "id", "n") == [(key, 1) for key in sorted(KEYS)]


@pytest.mark.parametrize("write", [in_block, alone])
def test_log_files_whose_names_cannot_be_made_durable_are_of_no_commit(
    make: Make, path: str, disk: Disk, write: Callable[..., None]
) -> None:
    table = make(buckets=8)
    table.upsert(frame(*((key, "x", 0) for key in KEYS)))
    before = sorted(os.listdir(path))
    disk.fails = lambda fsyncs: fsyncs[-1] == "."
    with pytest.raises(StorageUnavailableError, match="EIO"):
        write(table, *((key, "x", 1) for key in KEYS))
    disk.fails = lambda fsyncs: False
    assert sorted(os.listdir(path)) == before
    assert rows(Table.open(path), "n") == [(0,)] * len(KEYS)


def test_a_begin_that_cannot_be_made_durable_publishes_nothing(make: Make, path: str, disk: Disk) -> None:
    table = make(buckets=1)
    table.upsert(frame(("a", "x", 1)))
    disk.fails = lambda fsyncs: fsyncs[-1] == TIMELINE
    with pytest.raises(StorageUnavailableError, match="nothing was published"):
        in_block(table, ("a", "x", 2))
    assert rows(Table.open(path), "n") == [(1,)]


def test_a_base_file_that_a_dead_executor_put_lasts_once_the_compaction_is_acknowledged(
    make: Make, path: str, disk: Disk
) -> None:
    table = make(buckets=1, partition_by="region")
    table.upsert(frame(("a", "x", 1), ("b", "x", 1)))
    before = rows(table)
    plan = table.maintenance.plan_compaction()
    assert plan is not None
    kill_after_link(".parquet", lambda: table.maintenance.execute(plan))
    assert Table.open(path).maintenance.compact(plan)[0].rows == 2
    disk.cut()
    assert rows(Table.open(path)) == before


def test_a_carry_that_a_dead_executor_put_lasts_once_the_compaction_is_acknowledged(
    make: Make, path: str, disk: Disk
) -> None:
    table = make(buckets=1, partition_by="region", ordering="n")
    straggler = table.transaction()
    straggler.__enter__()
    straggler.upsert(frame(("s", "x", 1)))
    table.upsert(frame(("a", "x", 1)))
    before = rows(table)
    plan = table.maintenance.plan_compaction()
    assert plan is not None
    kill_after_link(f"{plan.barrier}.log", lambda: table.maintenance.execute(plan))
    assert Table.open(path).maintenance.compact(plan)[0].carried == 1
    disk.cut()
    assert rows(Table.open(path)) == before
    straggler.__exit__(ValueError, ValueError("not committed"), None)


def test_a_segment_that_a_dead_writer_put_lasts_once_a_version_that_names_it_is_acknowledged(
    make: Make, path: str, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crdt_mor.timeline.segments.COMPLETIONS_MAX", 2)
    table = make(buckets=1)
    for i in range(2):
        table.upsert(frame((f"k{i}", "x", i)))
    kill_after_link("segments/", lambda: table.upsert(frame(("dead", "x", 1))))
    Table.open(path).upsert(frame(("k2", "x", 2)))
    disk.cut()
    assert rows(Table.open(path), "id", "n") == [("k0", 0), ("k1", 1), ("k2", 2)]


def test_a_file_that_a_dead_driver_placed_lasts_once_the_write_is_acknowledged(
    make: Make, path: str, disk: Disk
) -> None:
    table = make(buckets=1, partition_by="region")
    table.upsert(frame(("a", "x", 1)))
    job = table.plan_write("upsert", frame().schema)
    receipts = [job.stage(frame(("a", "x", 2)), task=0)]
    kill_after_link(".log.1_", lambda: table.complete_write(job, receipts))
    Table.open(path).complete_write(job, receipts)
    disk.cut()
    assert rows(Table.open(path), "id", "n") == [("a", 2)]


@pytest.mark.parametrize("way", ["transaction", "planned", "completed"])
def test_a_write_that_is_told_that_it_was_made_before_lasts(make: Make, path: str, disk: Disk, way: str) -> None:
    table = make(buckets=1)
    table.upsert(frame(("a", "x", 1)))
    token = ("job", 1)
    job = table.plan_write("upsert", frame().schema, token=token)
    receipts = [job.stage(frame(("a", "x", 2)), task=0)]
    kill_after_link(TIMELINE, lambda: table.complete_write(job, receipts), holds=b'[["job",1,')
    again = Table.open(path)
    if way == "transaction":
        assert again.upsert(frame(("a", "x", 2)), token=token).repeated
    elif way == "planned":
        repeated = again.plan_write("upsert", frame().schema, token=token)
        assert again.complete_write(repeated, []).repeated
    else:
        assert again.complete_write(job, receipts).repeated
    disk.cut()
    assert rows(Table.open(path), "id", "n") == [("a", 2)]

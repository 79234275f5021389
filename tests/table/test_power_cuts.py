"""What is acknowledged outlasts a power cut, though another process put it, or the disk failed in the middle.

The disk here forgets names that were given, and folders that were made, but not fsynced: `cut` takes them away. What
was deleted is back, unless its folder was fsynced since.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from crdt_mor import Opening, StorageUnavailableError, Table
from crdt_mor.errors import CommitUnknownError
from crdt_mor.model.names import data_file_name
from crdt_mor.store import disk as disk_calls
from crdt_mor.store.local import LocalStore
from crdt_mor.testing.clock import SimulatedEnvironment
from crdt_mor.testing.faults import ProcessDied
from tests.table.helpers import Make, frame, rows


class Disk:
    """Knows which names below a folder were not fsynced yet, and fails where it is told to.

    deleted: what was deleted since its folder was last fsynced, with its content.
    """

    def __init__(self, patch: pytest.MonkeyPatch, root: str) -> None:
        self.root = root
        self.volatile: set[str] = set()
        self.deleted: dict[str, bytes] = {}
        self._lock = Lock()
        self.fsyncs: list[str] = []
        self.fails: Callable[[list[str]], bool] = lambda fsyncs: False
        self._link, self._mkdir, self._fsync, self._unlink = os.link, os.mkdir, disk_calls.fsync_path, os.unlink
        patch.setattr(os, "link", self.link)
        patch.setattr(os, "unlink", self.unlink)
        patch.setattr(os, "mkdir", self.mkdir)
        patch.setattr(disk_calls, "fsync_path", self.fsync)

    def link(self, source: str, target: str) -> None:
        self._link(source, target)
        with self._lock:
            self.volatile.add(target)

    def unlink(self, path: str) -> None:
        with self._lock:  # the threads of a write put and remove their temporary files side by side
            if path.startswith(self.root) and path not in self.volatile and os.path.isfile(path):
                self.deleted[path] = Path(path).read_bytes()
            self._unlink(path)
            self.volatile.discard(path)

    def mkdir(self, path: str | Path, mode: int = 0o777) -> None:
        self._mkdir(path, mode)
        self.volatile.add(str(path))

    def fsync(self, path: str) -> None:
        self.fsyncs.append(os.path.relpath(path, self.root))
        if self.fails(self.fsyncs):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._fsync(path)
        with self._lock:
            self.volatile -= {name for name in self.volatile if os.path.dirname(name) == path}
            folders = {path} | {name for name in map(os.path.dirname, self.deleted) if self._is_gone_from(name, path)}
            self.deleted = {name: data for name, data in self.deleted.items() if os.path.dirname(name) not in folders}

    @staticmethod
    def _is_gone_from(folder: str, path: str) -> bool:
        """Whether a folder that was in `path` was removed, as its last file was."""
        return not os.path.exists(folder) and os.path.dirname(folder) == path

    def cut(self) -> None:
        for path in sorted(self.volatile):
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif os.path.exists(path):
                self._unlink(path)
        self.volatile.clear()
        for path, data in self.deleted.items():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            Path(path).write_bytes(data)
        self.deleted.clear()


@pytest.fixture
def disk(path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    with monkeypatch.context() as patch:
        yield Disk(patch, path)


def kill_after_link(part: str, what: Callable[[], object], holds: bytes = b"") -> None:
    """Run what dies right after it has given a name with `part` in it, to a file that `holds` this.

    From then on it does nothing to the disk.
    """
    link, answering = os.link, disk_calls.Answering
    dead = False

    def die(source: str, target: str) -> None:
        nonlocal dead
        link(source, target)
        if part in target and holds in Path(target).read_bytes():
            dead = True
            raise ProcessDied

    def answer(what: str, path: str) -> disk_calls.Answering:
        if dead:
            raise ProcessDied
        return answering(what, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "link", die)
        patch.setattr(disk_calls, "Answering", answer)
        with pytest.raises(ProcessDied):
            what()


TIMELINE = ".hoodie/.crdt_mor/timeline"
HUDI = ".hoodie/timeline"


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
    assert rows(Table(path), "id") == [("a",), ("b",)]


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


def test_a_commit_in_one_event_waits_seven_times_for_the_disk(
    make: Make, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For four names in their order, and for what the objects hold but for the claim, which is a name alone.

    Each name is waited for after the content of the next object, with which a journal takes it along.
    """
    table = make(buckets=1)
    table.upsert(frame(("a", "x", 1)))
    alone(table, ("a", "x", 2))
    fsync, waits = os.fsync, list[str]()

    def noted(file: int) -> None:
        fsync(file)
        waits.append("content" if stat.S_ISREG(os.fstat(file).st_mode) else disk.fsyncs[-1])

    monkeypatch.setattr(os, "fsync", noted)
    disk.fsyncs.clear()
    alone(table, ("a", "x", 3))
    assert waits == ["content", HUDI, "content", ".", "content", TIMELINE, HUDI]


def test_no_file_is_put_under_a_time_whose_claim_does_not_last(make: Make, path: str, disk: Disk) -> None:
    table = make(buckets=1)
    table.upsert(frame(("a", "x", 1)))
    before = sorted(os.listdir(path))
    disk.fsyncs.clear()
    disk.fails = lambda fsyncs: fsyncs == [HUDI]
    with pytest.raises(StorageUnavailableError, match="nothing was published"):
        table.upsert(frame(("a", "x", 2)))
    assert sorted(os.listdir(path)) == before
    alone(table, ("a", "x", 3))


@pytest.mark.parametrize("waits", [True, False], ids=["as it is", "the name of a claim is not waited for"])
def test_no_later_write_takes_the_time_of_a_log_file_that_has_outlasted_its_write(
    make: Make, path: str, disk: Disk, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """Hudi's readers would show that file, as of the later write.

    The machine's clock is behind the table's, or goes back when the power is back, so that the same time is chosen.
    """
    now_ms = LocalStore(path).now_ms()
    table = make(buckets=8, opening=Opening(environment=SimulatedEnvironment(now_ms)))
    table.upsert(frame(("a", "x", 1)))
    if not waits:
        last = LocalStore.make_durable
        monkeypatch.setattr(LocalStore, "make_durable", lambda s, at: at.endswith("commit.requested") or last(s, at))
    kill_after_link(TIMELINE, lambda: alone(table, ("b", "x", 2)))
    disk.cut()
    after = Table(path, opening=Opening(environment=SimulatedEnvironment(now_ms, stem="after")))
    commits = [after.upsert(frame(("c", "x", n))) for n in range(3)]
    named = set(after.inspect.files()["path"].to_pylist())
    shown = {file for file in os.listdir(path) if any(commit.requested_at in file for commit in commits)}
    assert (shown <= named) is waits, shown - named


@pytest.mark.parametrize("lasts", [True, False], ids=["as it is", "removed files may be back"])
def test_no_later_write_takes_the_time_of_a_log_file_that_is_back_after_its_write_was_given_up(
    make: Make, path: str, disk: Disk, monkeypatch: pytest.MonkeyPatch, lasts: bool
) -> None:
    """A version cannot be put, as the disk is full for a moment, and the clock stands still."""
    table = make(partition_by="region", opening=Opening(environment=SimulatedEnvironment(LocalStore(path).now_ms())))
    table.upsert(frame(("a", "x", 1)))
    put, make_durable = LocalStore.put, LocalStore.make_durable

    def full(store: LocalStore, at: str, data: bytes, **how: Any) -> bool:
        if at.startswith(TIMELINE):
            for earlier in how["after"]:
                make_durable(store, earlier)
            raise StorageUnavailableError("the disk is full")
        return put(store, at, data, **how)

    def not_of_removed(store: LocalStore, at: str) -> None:
        if (store.root / at).exists():
            make_durable(store, at)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "put", full)
        if not lasts:
            patch.setattr(LocalStore, "make_durable", not_of_removed)
        with pytest.raises(StorageUnavailableError, match="nothing was published"):
            table.upsert(frame(("b", "x", 2)))
    commits = [table.upsert(frame(("c", "y", n))) for n in range(3)]
    disk.cut()
    named = set(Table(path).inspect.files()["path"].to_pylist())
    files = {str(file.relative_to(path)) for file in Path(path).rglob(".*.log.*")}
    shown = {file for file in files if any(commit.requested_at in file for commit in commits)}
    assert (shown <= named) is lasts, shown - named


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
    assert rows(Table(path), "id", "n") == [(key, 1) for key in sorted(KEYS)]


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
    assert rows(Table(path), "n") == [(0,)] * len(KEYS)


def test_a_begin_that_cannot_be_made_durable_publishes_nothing(make: Make, path: str, disk: Disk) -> None:
    table = make(buckets=1)
    table.upsert(frame(("a", "x", 1)))
    disk.fails = lambda fsyncs: fsyncs[-1] == TIMELINE
    with pytest.raises(StorageUnavailableError, match="nothing was published"):
        in_block(table, ("a", "x", 2))
    assert rows(Table(path), "n") == [(1,)]


def test_a_base_file_that_a_dead_executor_put_lasts_once_the_compaction_is_acknowledged(
    make: Make, path: str, disk: Disk
) -> None:
    table = make(buckets=1, partition_by="region")
    table.upsert(frame(("a", "x", 1), ("b", "x", 1)))
    before = rows(table)
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    kill_after_link(".parquet", lambda: table.maintenance.plans.execute(plan))
    assert Table(path).maintenance.compact(plan)[0].rows == 2
    disk.cut()
    assert rows(Table(path)) == before


def test_a_carry_that_a_dead_executor_put_lasts_once_the_compaction_is_acknowledged(
    make: Make, path: str, disk: Disk
) -> None:
    table = make(buckets=1, partition_by="region", ordering="n")
    straggler = table.transaction()
    straggler.__enter__()
    straggler.upsert(frame(("s", "x", 1)))
    table.upsert(frame(("a", "x", 1)))
    before = rows(table)
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    kill_after_link(f"{plan.barrier}.log", lambda: table.maintenance.plans.execute(plan))
    assert Table(path).maintenance.compact(plan)[0].carried == 1
    disk.cut()
    assert rows(Table(path)) == before
    straggler.__exit__(ValueError, ValueError("not committed"), None)


def test_a_segment_that_a_dead_writer_put_lasts_once_a_version_that_names_it_is_acknowledged(
    make: Make, path: str, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 2)
    table = make(buckets=1)
    for i in range(2):
        table.upsert(frame((f"k{i}", "x", i)))
    kill_after_link("segments/", lambda: table.upsert(frame(("dead", "x", 1))))
    Table(path).upsert(frame(("k2", "x", 2)))
    disk.cut()
    assert rows(Table(path), "id", "n") == [("k0", 0), ("k1", 1), ("k2", 2)]


def test_a_file_that_a_dead_driver_placed_lasts_once_the_write_is_acknowledged(
    make: Make, path: str, disk: Disk
) -> None:
    table = make(buckets=1, partition_by="region")
    table.upsert(frame(("a", "x", 1)))
    job = table.jobs.plan("upsert", frame().schema)
    receipts = [job.stage(frame(("a", "x", 2)), task=0)]
    kill_after_link(".log.1_", lambda: table.jobs.complete(job, receipts))
    Table(path).jobs.complete(job, receipts)
    disk.cut()
    assert rows(Table(path), "id", "n") == [("a", 2)]


@pytest.mark.parametrize("way", ["transaction", "planned", "completed"])
def test_a_write_that_is_told_that_it_was_made_before_lasts(make: Make, path: str, disk: Disk, way: str) -> None:
    table = make(buckets=1)
    table.upsert(frame(("a", "x", 1)))
    token = ("job", 1)
    job = table.jobs.plan("upsert", frame().schema, token=token)
    receipts = [job.stage(frame(("a", "x", 2)), task=0)]
    kill_after_link(TIMELINE, lambda: table.jobs.complete(job, receipts), holds=b'[["job",1,')
    again = Table(path)
    if way == "transaction":
        assert again.upsert(frame(("a", "x", 2)), token=token).repeated
    elif way == "planned":
        repeated = again.jobs.plan("upsert", frame().schema, token=token)
        assert again.jobs.complete(repeated, []).repeated
    else:
        assert again.jobs.complete(job, receipts).repeated
    disk.cut()
    assert rows(Table(path), "id", "n") == [("a", 2)]


# --- what was deleted -------------------------------------------------------------------------------------------------


def instants_of_files(path: str) -> set[str]:
    """The instants of the data files that are there, by their names."""
    names = (data_file_name(name) for _, _, names in os.walk(path) for name in names)
    return {name.instant for name in names if name is not None}


def told(path: str) -> set[str]:
    """The instants in Hudi's timeline."""
    return {name[:17] for name in os.listdir(f"{path}/.hoodie/timeline") if name[:1].isdigit()}


@pytest.mark.parametrize("partitions", [["x"], None], ids=["a partition", "all"])
def test_what_an_overwrite_has_voided_stays_away_once_the_write_is_complete(
    make: Make, path: str, disk: Disk, partitions: list[str] | None
) -> None:
    """Its instant is committed, so that Hudi's readers would show a file of it that was back."""
    table = make(buckets=1, partition_by="region")
    table.upsert(frame(("a", "x", 1), ("b", "y", 1)))
    with table.transaction() as straggler:
        straggler.upsert(frame(("c", "x", 99), ("b", "y", 2)))
        if partitions is None:
            table.truncate()
        else:
            table.delete_partitions(partitions)
    assert straggler.commit is not None
    before = instants_of_files(f"{path}/region=x")
    disk.cut()
    assert instants_of_files(f"{path}/region=x") == before
    assert straggler.commit.requested_at not in before
    assert rows(Table(path), "id", "n") == ([] if partitions is None else [("b", 2)])


@pytest.mark.parametrize("empty", [False, True], ids=["rows", "no rows"])
def test_what_a_restore_has_dropped_stays_away(make: Make, path: str, disk: Disk, empty: bool) -> None:
    """Else a file might be back whose instant Hudi's timeline knows no more, and which is older than all there."""
    table = make(buckets=1, partition_by="region")
    if not empty:
        table.upsert(frame(("a", "x", 1)))
    table.maintenance.savepoint("s")
    table.upsert(frame(("b", "x", 2)))
    table.maintenance.compact()
    table.maintenance.restore("s")
    there = instants_of_files(path), told(path)
    disk.cut()
    assert (instants_of_files(path), told(path)) == there
    assert rows(Table(path), "id") == ([] if empty else [("a",)])


def test_what_a_cut_leaves_of_a_restore_that_is_under_way_is_one_moment_of_before(
    make: Make, path: str, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is deleted last may be back; of what was deleted before it nothing is."""
    table = make(buckets=1, partition_by="region")
    table.upsert(frame(("a", "x", 1)))
    table.maintenance.savepoint("s")
    for n in (2, 3):
        table.upsert(frame(("b", "x", n)))
    delete, seen = LocalStore.delete, []

    def looked(store: LocalStore, at: str) -> None:
        """At no time would more than the files of one instant, of one kind, be back."""
        instants = {(Path(name).parent.name, Path(name).name.partition(".")[0]) for name in disk.deleted
                    if "/.crdt_mor/" not in name and "/.temp/" not in name and "/.heartbeat/" not in name}  # fmt: skip
        seen.append(len(instants))
        delete(store, at)

    monkeypatch.setattr(LocalStore, "delete", looked)
    table.maintenance.restore("s")
    assert max(seen) <= 1


def test_the_files_of_a_write_and_of_a_plan_that_are_given_up_go_for_good_before_hudi_forgets_them(
    make: Make, path: str, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(buckets=1, partition_by="region")
    table.upsert(frame(("a", "x", 1)))
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    table.maintenance.plans.execute(plan)
    table.maintenance.plans.cancel(plan.barrier)
    monkeypatch.setattr("crdt_mor.events.write.complete", _fails)
    with pytest.raises(KeyError):
        in_block(table, ("b", "x", 2))
    there = instants_of_files(path)
    assert plan.barrier not in there
    disk.cut()
    assert instants_of_files(path) == there


def _fails(*_: object, **__: object) -> None:
    raise KeyError


def test_no_byte_of_what_was_erased_is_back(make: Make, path: str, disk: Disk) -> None:
    table = make(buckets=1, partition_by="region")
    table.upsert(frame(("a", "x", 1), ("b", "y", 1)))
    table.upsert(frame(("a", "x", 2)))
    table.maintenance.erase(where="id = 'a'")
    there = instants_of_files(f"{path}/region=x")
    disk.cut()
    assert instants_of_files(f"{path}/region=x") == there

"""Each verb keeps few rows in memory at once, as docs/memory.md states.

Most tests count file groups or rows; the slow ones measure the peak of a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pytest

from benches import memory
from crdt_mor import Opening, Table
from crdt_mor.columns.arrow_input import bytes_of
from crdt_mor.ground import threads
from crdt_mor.ground.machine import memory_bytes
from crdt_mor.ground.threads import groups_in_threads
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline_parts import Completion, DataFile
from crdt_mor.planners.compaction import CompactionPlan
from crdt_mor.read.fetching import Fetch
from crdt_mor.read.together import Merge
from crdt_mor.read.window_states import TouchedGroups
from crdt_mor.services.erasure_traces import GroupHistory
from crdt_mor.store import MemoryStore
from crdt_mor.store.protocol import Stat
from crdt_mor.write import load, load_sorting
from crdt_mor.write.spilled import SpilledWrite
from crdt_mor.write.spilling import part_bytes
from tests.counting import Bucket

MIB = 1 << 20
PROCESSORS = 3
PARTITIONS = 6

# --- file groups at once ----------------------------------------------------------------------------------------------

ONE: Final = (Merge, TouchedGroups, CompactionPlan, GroupHistory, FileSlice, Stat)
"""Items of pools whose work holds a file group, or an object to copy."""


class Gauge:
    """The most items of a pool that are in memory at once, from their start to the use of their results."""

    def __init__(self, counts: Callable[[Any], bool]) -> None:
        self.counts = counts
        self.most = 0

    @contextmanager
    def reading(self) -> Iterator[Gauge]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threads, "ThreadPoolExecutor", lambda *given, **named: _Pool(self, *given, **named))
            patch.setattr(threads, "THREADS", PROCESSORS)
            yield self


class _Pool(ThreadPoolExecutor):
    def __init__(self, gauge: Gauge, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._gauge, self._held = gauge, 0

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        future = super().submit(work, *given, **named)
        if self._gauge.counts(given[0] if given else None):
            self._held += 1
            self._gauge.most = max(self._gauge.most, self._held)
            result = future.result

            def taken(timeout: float | None = None) -> Any:
                value = result(timeout)
                self._held -= 1
                return value

            future.result = taken  # type: ignore[method-assign]
        return future


def is_of_groups(item: Any) -> bool:
    if isinstance(item, ONE):
        return True
    match item:
        case (DataFile(), Completion()) | (FileSlice(), Fetch()) | (int(), TouchedGroups()):
            return True
        case ((str(), str()), list()):  # a file group, and the findings in its files
            return True
    return False


@pytest.mark.parametrize(
    ("sizes", "limit", "at_once", "expected"),
    [
        ([100 * MIB] * 9, 1 << 40, None, PROCESSORS + 1),
        ([100 * MIB] * 9, 1 << 40, 64, PROCESSORS + 1),
        ([100 * MIB] * 9, 2 * 800 * MIB, None, 2),
        ([100 * MIB] * 9, 799 * MIB, None, 1),
        ([100 * MIB] * 9, 1, 64, 1),
        ([MIB] * 99, 1 << 40, None, PROCESSORS + 1),
        ([MIB] * 99, 1 << 40, 64, 32),
        ([MIB] * 99, 40 * MIB, 64, 5),
        ([100 * MIB, MIB] * 5, 1600 * MIB, None, 3),
        ([0] * 99, 1, 64, 65),
    ],
    ids=["large", "large in a bucket", "two fit", "one fits not", "no room", "small", "small in a bucket",
         "small without room", "large and small", "empty"],
)  # fmt: skip
def test_file_groups_at_once_are_limited_by_processors_and_memory(
    sizes: list[int], limit: int, at_once: int | None, expected: int
) -> None:
    with Gauge(lambda _: True).reading() as gauge:
        done = list(groups_in_threads(lambda size: size, sizes, lambda size: size, limit, at_once))
    assert done == sizes
    assert gauge.most == expected


SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("n", pa.int64())])
SETTINGS: dict[str, Any] = {"key": ["id", "day"], "partition_by": "day", "buckets": 1}


def rows(count: int = 5 * PARTITIONS) -> pa.Table:
    days = [f"d{i % PARTITIONS}" for i in range(count)]
    return pa.table({"id": range(count), "day": days, "n": range(count)}, schema=SCHEMA)


def stream(rows: pa.Table, step: int = 100) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(step))


def merged(table: Table) -> None:
    table.merge(rows(), on=["id", "day"]).when_matched_update_all().execute()


def migrated(table: Table) -> None:
    table.maintenance.migrate("memory://moved", buckets=2, store=MemoryStore())


VERBS: dict[str, Callable[[Table, int], object]] = {
    "scan().to_reader()": lambda table, first: table.scan().to_reader().read_all(),
    "scan().to_polars()": lambda table, first: table.scan().to_polars(),
    "scan().count()": lambda table, first: table.scan().count(),
    "changes()": lambda table, first: table.changes().to_reader().read_all(),
    "changes(since)": lambda table, first: table.changes(since=first).to_reader().read_all(),
    "changes(since, images)": lambda table, first: table.changes(since=first, images=True).to_reader().read_all(),
    "update": lambda table, first: table.update({"n": "n + 1"}, where="n >= 0"),
    "delete(where)": lambda table, first: table.delete(where="n % 2 = 0"),
    "merge": lambda table, first: merged(table),
    "compact": lambda table, first: table.maintenance.compact(),
    "migrate": lambda table, first: migrated(table),
    "erase": lambda table, first: table.maintenance.erase(where="id = 7"),
}


def table_with_logs(store: Any, limit: int | None, uri: str = "memory://events") -> tuple[Table, int]:
    """Return a table whose file groups have a base and a log file, and the version before the last write."""
    opening = Opening(store=store, memory_limit=limit)
    table = Table.create_from(uri, rows(), opening=opening, **SETTINGS)
    first = table.upsert(rows()).version
    table.upsert(rows(3 * PARTITIONS))
    return table, first


@pytest.mark.parametrize("limit", [1, None])
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_as_many_file_groups_in_memory_as_the_limit_allows(verb: str, limit: int | None) -> None:
    table, first = table_with_logs(MemoryStore(), limit)
    with Gauge(is_of_groups).reading() as gauge:
        VERBS[verb](table, first)
    assert gauge.most == 1 if limit else gauge.most > 1


FAR: dict[str, Callable[[Table, Bucket], object]] = {
    "scan": lambda table, bucket: table.scan().to_reader().read_all(),
    "compact": lambda table, bucket: table.maintenance.compact(),
    "verify": lambda table, bucket: table.verify(deep=True),
    "copy": lambda table, bucket: table.copy("s3://counted/copy", store=bucket.store(folder="copy"), verify=False),
}


@pytest.mark.parametrize("limit", [1, None])
@pytest.mark.parametrize("verb", FAR)
def test_in_a_bucket_requests_are_limited_too(verb: str, limit: int | None) -> None:
    bucket = Bucket()
    with bucket.counting():
        table, _ = table_with_logs(bucket.store(), limit, "s3://counted/table")
        with Gauge(is_of_groups).reading() as gauge:
            FAR[verb](table, bucket)
    assert gauge.most == 1 if limit else gauge.most > 1


def test_on_a_disk_a_verification_reads_one_file_group_at_a_time(fast_path: Path) -> None:
    table, _ = table_with_logs(None, None, str(fast_path / "table"))
    with Gauge(is_of_groups).reading() as gauge:
        assert not table.verify(deep=True).findings
    assert gauge.most == 0


# --- rows at once -----------------------------------------------------------------------------------------------------

MANY = 4_000


@pytest.mark.parametrize("verb", ["append", "upsert", "overwrite"])
def test_a_streamed_write_has_a_part_in_memory(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limit, read, parts = 400_000, SpilledWrite.rows, list[int]()

    def noted(self: SpilledWrite, part: Any) -> pa.Table:
        table = read(self, part)
        parts.append(bytes_of(table))
        return table

    monkeypatch.setattr(SpilledWrite, "rows", noted)
    data = rows(MANY)
    table = Table.create(
        "memory://events", SCHEMA, opening=Opening(store=MemoryStore(), memory_limit=limit), **SETTINGS
    )
    assert getattr(table, verb)(stream(data)).rows == MANY
    assert max(parts) <= 1.1 * part_bytes(limit) < bytes_of(data)


def test_a_first_load_sorts_few_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sorted_at_once = list[int]()

    def noted(frame: pl.DataFrame) -> pl.DataFrame:
        sorted_at_once.append(frame.height)
        return load_sorting.in_order(frame)

    monkeypatch.setattr(load, "in_order", noted)
    monkeypatch.setattr(load, "RUN_ROWS", 300)
    table = Table.create_from("memory://events", stream(rows(MANY)), opening=Opening(store=MemoryStore()), **SETTINGS)
    assert table.count() == MANY
    assert max(sorted_at_once) <= 300 < sum(sorted_at_once) == MANY


# --- bytes of a process -----------------------------------------------------------------------------------------------

LIMIT = 32 * MIB


def peak(verb: str, folder: Path, rows: int) -> int:
    command = [sys.executable, memory.__file__, "--verb", verb, "--uri", str(folder / "table"), "--rows", str(rows)]
    done = subprocess.run([*command, "--limit", str(LIMIT)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peaks are read from /proc")
def test_an_upsert_keeps_its_bound(tmp_path: Path) -> None:
    """80 MiB of Arrow rows take 400 MiB if they are written in memory."""
    assert peak("upsert", tmp_path, 600_000) < 200 * MIB


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peaks are read from /proc")
def test_each_verb_keeps_its_bound(tmp_path: Path) -> None:
    rows = 300_000
    peaks = {verb: peak(verb, tmp_path, rows) for verb in memory.BOUNDS}  # each uses the tables of earlier verbs
    assert not {verb: found for verb, found in peaks.items() if found > memory.bound_of(verb, rows, 1)}


# --- the limit --------------------------------------------------------------------------------------------------------


def written(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return f"{root}/"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/meminfo": "MemTotal:       1000 kB\n"}, 1000 << 10),
        ({"proc/meminfo": "MemTotal: 1000 kB\n", "proc/self/cgroup": "0::/a/b\n",
          "sys/fs/cgroup/a/memory.max": "5000\n", "sys/fs/cgroup/a/b/memory.max": "max\n"}, 5000),
        ({"proc/meminfo": "MemTotal: 1000 kB\n", "proc/self/cgroup": "4:memory:/a\n3:cpu:/\n",
          "sys/fs/cgroup/memory/memory.limit_in_bytes": "7000\n"}, 7000),
        ({}, 8 << 30),
    ],
    ids=["machine", "version 2", "version 1", "unknown"],
)  # fmt: skip
def test_the_memory_of_a_container_is_its_limit(files: dict[str, str], expected: int, tmp_path: Path) -> None:
    assert memory_bytes(written(tmp_path, files)) == expected

"""Tasks that fail, repeat, run twice at once or are stopped: one commit, or nothing that any reader could see."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from crdt_mor import CrdtMorError, Table
from crdt_mor.api.scan import Scan
from crdt_mor.events.session import Session
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.parts import PartDone, UpdatePart
from crdt_mor.readers.spark.writing import BatchWriter, PlannedWrites, Staged
from crdt_mor.store.local import LocalStore
from crdt_mor.testing.faults import InterruptedStore, ProcessDied
from tests import waiting
from tests.inside import session_of
from tests.spark.counting import counters, ones, total
from tests.spark.sessions import fixture
from tests.spark.tables import leftovers, pending
from tests.table.helpers import data_files

pytestmark = pytest.mark.spark
spark = fixture("local[2,2]")


def passing(path: Path, *, always: bool = False) -> Any:
    """A step in which the task of one partition fails: its first attempt, or every one."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.partitionId() == 1 and (always or context.attemptNumber() == 0):
            raise ValueError("the task of partition 1 fails on purpose")

    return step


@pytest.mark.parametrize("shuffled", [False, True], ids=["unshuffled", "shuffled"])
def test_a_task_that_fails_once_counts_once(spark: Any, tmp_path: Path, shuffled: bool) -> None:
    from crdt_mor.readers.spark import upsert

    table = counters(tmp_path / "t")
    frame = ones(spark).mapInArrow(passing(tmp_path), "id long, n long")
    if shuffled:
        assert upsert(frame, table.uri).rows == 20
    else:
        frame.write.format("crdt_mor").mode("append").save(table.uri)
    assert total(table) == 100
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])


@pytest.mark.parametrize("shuffled", [False, True], ids=["unshuffled", "shuffled"])
def test_a_task_that_fails_for_good_fails_the_job_and_leaves_nothing(
    spark: Any, tmp_path: Path, shuffled: bool
) -> None:
    from crdt_mor.readers.spark import upsert

    table = counters(tmp_path / "t")
    frame = ones(spark).mapInArrow(passing(tmp_path, always=True), "id long, n long")
    write = partial(upsert, frame, table.uri) if shuffled else partial(
        frame.write.format("crdt_mor").mode("append").save, table.uri
    )  # fmt: skip
    with pytest.raises(Exception, match="fails on purpose"):
        write()
    assert (total(table), data_files(table.uri)) == (0, set())
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])
    ones(spark).write.format("crdt_mor").mode("append").save(table.uri)
    assert total(table) == 100


class BesideAnother(BatchWriter):
    """A driver's part, while another process has the job and its receipts as well, and completes or dies before it.

    It notes the job and the other's commit beside the table. dies_at: after which change of the store it dies.
    """

    dies_at = 0

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        receipts = [message.receipt for message in messages if isinstance(message, Staged)]
        home = Path(self._planned.job.uri)
        if self.dies_at:
            store = InterruptedStore(LocalStore(home))
            first = Table._of(Session(store, SystemEnvironment(), session_of(Table(home)).config, 600_000), str(home))
            store.arm(self.dies_at, store.die, after=True)
            with pytest.raises(ProcessDied):
                first.jobs.complete(self._planned.job, receipts)
        other = Table(home).jobs.complete(self._planned.job, receipts)
        home.with_name("other").write_bytes(pickle.dumps((self._planned.job, other)))
        super().commit(messages)


class BesideOneThatDied(BesideAnother):
    dies_at = 5


class BesideOneThatDiedEarly(BesideAnother):
    dies_at = 2


class TwoDrivers(PlannedWrites):
    """The writes of `upsert`, completed by two drivers."""

    driver: type[BesideAnother] = BesideAnother

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        planned = super().writer(schema, overwrite)
        assert isinstance(planned, BatchWriter)
        return self.driver(planned._planned)


class TwoDriversOfWhichOneDied(TwoDrivers):
    driver = BesideOneThatDied


class TwoDriversOfWhichOneDiedEarly(TwoDrivers):
    """Before the event of an overwrite, which comes sooner than that of a write whose files get their names before."""

    driver = BesideOneThatDiedEarly


@pytest.mark.parametrize("drivers", [TwoDrivers, TwoDriversOfWhichOneDied])
def test_a_second_driver_of_a_spark_job_counts_nothing_twice(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drivers: type[TwoDrivers]
) -> None:
    """Where a driver was thought to be dead and was not."""
    from crdt_mor.readers.spark import upsert

    table = counters(tmp_path / "t")
    monkeypatch.setattr("crdt_mor.readers.spark.writing.PlannedWrites", drivers)
    done = upsert(ones(spark), table.uri)
    job, other = pickle.loads((tmp_path / "other").read_bytes())
    assert (other.repeated, other.version) == (False, done.version)
    late = job.stage(pa.table({"id": [1], "n": [1]}), task=0)  # a speculative attempt that comes when all is over
    assert table.jobs.complete(job, [late]) == replace(done, repeated=True)
    assert total(table) == 100
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])


@pytest.mark.parametrize("drivers", [TwoDrivers, TwoDriversOfWhichOneDiedEarly])
def test_a_second_driver_of_an_overwrite_finds_the_commit(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drivers: type[TwoDrivers]
) -> None:
    from crdt_mor.readers.spark import overwrite

    table = counters(tmp_path / "t")
    table.upsert(pa.table({"id": [1, 77], "n": [50, 50]}))
    monkeypatch.setattr("crdt_mor.readers.spark.writing.PlannedWrites", drivers)
    done = overwrite(ones(spark), table.uri)
    job, other = pickle.loads((tmp_path / "other").read_bytes())
    assert (other.repeated, other.version, other.covered) == (False, done.version, ("*",))
    late = job.stage(pa.table({"id": [1], "n": [1]}), task=0)
    assert table.jobs.complete(job, [late]) == replace(done, repeated=True)
    assert total(table) == 100
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])


def test_a_job_that_is_stopped_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    table = counters(tmp_path / "t")

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        waiting.let_run(60)  # longer than the test takes to stop it

    def stop() -> None:
        waiting.wait_for("write", lambda: bool(pending(table.uri)), patience_s=60, every_s=0.1)
        spark.sparkContext.cancelAllJobs()

    stopper = threading.Thread(target=stop)
    stopper.start()
    frame = ones(spark).union(ones(spark).mapInArrow(slow, "id long, n long"))
    with pytest.raises(Exception, match=r"(?i)cancel"):
        frame.write.format("crdt_mor").mode("append").save(table.uri)
    stopper.join()
    assert (total(table), data_files(table.uri), pending(table.uri)) == (0, set(), [])
    table.upsert(pa.table({"id": [1], "n": [1]}))
    assert total(table) == 1


# --- updates in place ---------------------------------------------------------------------------------------------


def dies_at_first(partition: int) -> None:
    """Kill the worker in which a task runs, where it is the first attempt at a partition."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == 0 and context.partitionId() == partition:
        os.kill(os.getpid(), signal.SIGKILL)


def test_an_update_whose_worker_is_killed_counts_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crdt_mor.readers.spark import updating
    from crdt_mor.readers.spark.tasks import in_tasks

    def execute(part: UpdatePart) -> PartDone:
        done = part.execute()
        dies_at_first(1)
        return done

    def run(spark: Any, parts: Sequence[UpdatePart]) -> list[PartDone | CrdtMorError]:
        return in_tasks(spark, parts, execute, updating.is_final)

    table = counters(tmp_path / "t")
    table.upsert(pa.table({"id": [*range(20)], "n": [5] * 20}))
    whole = Scan.parts
    monkeypatch.setattr(Scan, "parts", lambda scan: whole(scan, 1))
    monkeypatch.setattr(updating, "_execute", run)
    assert updating.update(spark, table.uri, {"n": "n + 1"}).rows == 20
    assert total(table) == 120
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])


def test_a_merge_whose_worker_is_killed_counts_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crdt_mor.readers.spark import merge, merging

    class Dying(merging.TasksWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> merging.TaskOutcomes:
            told = super().write(iterator)
            dies_at_first(1)
            return told

    class DyingTasks(merging.MergeTasks):
        def writer(self, schema: StructType, overwrite: bool) -> merging.TasksWriter:
            return Dying(super().writer(schema, overwrite)._job)

    monkeypatch.setattr(merging, "MergeTasks", DyingTasks)
    table = counters(tmp_path / "t")
    table.upsert(pa.table({"id": [*range(20)], "n": [5] * 20}))
    rows = spark.range(10, 30, numPartitions=2).selectExpr("id", "1L as n")
    merged = merge(spark, table.uri, rows).when_matched_update({"n": "target.n + source.n"})
    done = merged.when_not_matched_insert_all().execute()
    assert (done.updated, done.inserted, total(table)) == (10, 10, 120)
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])

"""Writes from threads that have not made the session, from sessions beside it, and without a word of registering."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import pyspark_crdt_mor
from crdt_mor import Table
from crdt_mor.readers.spark import compact, delete_where, merge, register, register_path, update, upsert
from crdt_mor.readers.spark.sessions import know
from crdt_mor.readers.spark.source import CrdtMorSource
from crdt_mor.readers.spark.versions import FINDS_SOURCES, SPARK
from tests.spark.counting import counters, feed, ones, total
from tests.spark.sessions import fixture

pytestmark = pytest.mark.spark
spark = fixture()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return counters(tmp_path / "t")


def saved(spark: Any, table: Table) -> None:
    ones(spark).write.format("crdt_mor").mode("append").save(table.uri)


def in_pool(*calls: Callable[[], object]) -> None:
    """The calls, each in a thread of a pool."""
    with ThreadPoolExecutor(len(calls)) as pool:
        for future in [pool.submit(call) for call in calls]:
            future.result()


def in_inheritable(*calls: Callable[[], object]) -> None:
    """The calls, each in a thread of Spark's own, which inherits the properties of the thread that starts it."""
    ended: list[object] = []
    threads = [InheritableThread(target=lambda call=call: ended.append(call())) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == len(calls), "one of the calls has raised"


def test_the_functions_write_from_any_thread(spark: Any, table: Table) -> None:
    in_inheritable(*[lambda: upsert(ones(spark), table.uri)] * 2)
    assert total(table) == 200
    in_pool(
        lambda: update(spark, table.uri, {"n": "n + 1"}, "id = 7"),
        lambda: merge(spark, table.uri, ones(spark, 5), on="id").when_matched_update({"n": "0"}).execute(),
    )
    in_pool(lambda: delete_where(spark, table.uri, "id > 9"), lambda: compact(spark, table.uri))
    assert (total(table), table.scan().to_polars().height) == (51, 10)


def test_a_frame_is_saved_from_any_thread_that_has_registered(spark: Any, table: Table) -> None:
    def save() -> None:
        register(spark)
        saved(spark, table)

    in_pool(save)
    in_inheritable(save)
    assert total(table) == 200


def test_a_session_beside_the_first_writes_without_becoming_the_active_one(spark: Any, table: Table) -> None:
    beside = spark.newSession()
    upsert(ones(spark), table.uri)
    upsert(ones(beside), table.uri)
    in_pool(lambda: upsert(ones(beside), table.uri))
    assert total(table) == 300
    active = SparkSession.getActiveSession()
    assert active is not None
    assert active.version == spark.version
    assert spark._jsparkSession.equals(active._jsparkSession)


def test_a_session_beside_the_first_can_be_registered(spark: Any, table: Table) -> None:
    beside = spark.newSession()
    try:
        register(beside)
        saved(beside, table)
    finally:
        register(spark)
    saved(spark, table)
    assert total(table) == 200


def test_batches_of_two_streams_are_written_by_functions_and_by_frames(
    spark: Any, table: Table, tmp_path: Path
) -> None:
    def function(rows: Any, number: int) -> None:
        upsert(rows, table.uri, token=("function", number))

    def frame(rows: Any, number: int) -> None:
        token = {"txnAppId": "frame", "txnVersion": str(number)}
        rows.write.format("crdt_mor").options(**token).mode("append").save(table.uri)

    def start(name: str, batch: Callable[[Any, int], None]) -> Any:
        rows = spark.readStream.schema("id long, n long").option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
        writer = rows.writeStream.foreachBatch(batch).option("checkpointLocation", str(tmp_path / name))
        return writer.trigger(availableNow=True).start()

    for number in range(2):
        feed(tmp_path, number)
    queries = [start("function", function), start("frame", frame)]
    for query in queries:
        query.awaitTermination()
    assert total(table) == 40


def test_a_new_session_finds_the_format_by_itself(spark: Any, table: Table) -> None:
    assert hasattr(pyspark_crdt_mor, "DefaultSource") == (SPARK >= FINDS_SOURCES)
    if SPARK < FINDS_SOURCES:
        return
    beside = spark.newSession()
    saved(beside, table)
    assert beside.read.format("crdt_mor").load(table.uri).count() == 20
    beside.sql(f"CREATE TEMPORARY VIEW found USING crdt_mor OPTIONS (path '{table.uri}')")
    assert beside.sql("SELECT sum(n) FROM found").collect() == [(100,)]


def test_register_path_from_threads_at_once_gives_each_the_name(spark: Any, table: Table) -> None:
    for _ in range(5):
        beside, gate = spark.newSession(), Barrier(4)

        def call(beside: Any = beside, gate: Barrier = gate) -> None:
            gate.wait()
            register_path(beside, "counted", table.uri)

        in_pool(*[call] * 4)
    assert beside.read.format("counted").load().count() == 0


def test_first_upserts_of_threads_at_once_all_count(spark: Any, table: Table) -> None:
    beside, gate = spark.newSession(), Barrier(3)

    def call() -> None:
        gate.wait()
        upsert(ones(beside, 3), table.uri)

    in_pool(*[call] * 3)
    assert total(table) == 9


def test_know_name_taken_by_another_process_is_taken_over() -> None:
    class TakenError(AnalysisException):
        def getCondition(self) -> str:  # noqa: N802
            return "DATA_SOURCE_ALREADY_EXISTS"

    class Sources:
        def __init__(self, refusals: int) -> None:
            self.left, self.known = refusals, list[object]()

        def register(self, source: object) -> None:
            if self.left:
                self.left -= 1
                raise TakenError("taken")
            self.known.append(source)

    once: Any = SimpleNamespace(dataSource=Sources(1))
    know(once, CrdtMorSource)
    assert once.dataSource.known == [CrdtMorSource]
    for_good: Any = SimpleNamespace(dataSource=Sources(2))
    with pytest.raises(TakenError):
        know(for_good, CrdtMorSource)

"""A stream's micro-batches are committed once each, whatever is repeated, restarted or killed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Table
from crdt_mor.readers.spark import stream
from tests import waiting
from tests.spark.counting import SCHEMA, counters, driver, feed, kill, total
from tests.spark.sessions import fixture
from tests.spark.tables import leftovers, pending

pytestmark = pytest.mark.spark
spark = fixture()


def run(spark: Any, home: Path, path: str, checkpoint: str = "checkpoint", **options: str) -> None:
    """All that is there, one file a batch, to its end."""
    stream = spark.readStream.schema("id long, n long").option("maxFilesPerTrigger", 1).json(str(home / "in"))
    query = (
        stream.writeStream.format("crdt_mor")
        .option("checkpointLocation", str(home / checkpoint))
        .options(**options)
        .trigger(availableNow=True)
        .start(path)
    )
    query.awaitTermination()


def commits(table: Table) -> int:
    return sum(row["state"] == "completed" for row in table.inspect.timeline().to_pylist())


def test_each_batch_is_a_commit_and_a_repeated_one_is_none(spark: Any, tmp_path: Path) -> None:
    table, home = counters(tmp_path / "t"), tmp_path / "q"
    for number in range(3):
        feed(home, number)
    run(spark, home, table.uri)
    assert (total(table), commits(table)) == (30, 3)

    # As if the driver had died after its commit, before Spark noted that the batch was done.
    (home / "checkpoint" / "commits" / "2").unlink()
    (home / "checkpoint" / "commits" / ".2.crc").unlink()
    feed(home, 3)
    run(spark, home, table.uri)
    assert (total(table), commits(table)) == (40, 4)
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])


def test_the_zombie_of_an_earlier_driver_commits_nothing_twice(spark: Any, tmp_path: Path) -> None:
    table, home = counters(tmp_path / "t"), tmp_path / "q"
    feed(home, 0)
    run(spark, home, table.uri)
    for number in (1, 2):
        feed(home, number)
    shutil.copytree(home / "checkpoint", home / "zombie")
    run(spark, home, table.uri)
    assert total(table) == 30
    with pytest.raises(Exception, match="below the last number of its application"):
        run(spark, home, table.uri, "zombie")  # its batch 1 comes after batch 2 of the living one
    assert total(table) == 30
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])


def test_options_of_a_stream(spark: Any, tmp_path: Path) -> None:
    table, home = counters(tmp_path / "t"), tmp_path / "q"
    feed(home, 0)
    with pytest.raises(Exception, match="no such options of a write"):
        run(spark, home, table.uri, txnAppId="mine")
    shutil.rmtree(home / "checkpoint")
    run(spark, home, table.uri, operation="upsert")
    assert total(table) == 10
    gone = tmp_path / "gone"
    feed(gone, 0)
    run(spark, gone, table.uri, operation="delete")
    assert total(table) == 0


def test_a_running_aggregate_is_upserted_batch_by_batch(spark: Any, tmp_path: Path) -> None:
    from crdt_mor.readers.spark import upsert

    table, home = Table.create(tmp_path / "t", SCHEMA, key="id"), tmp_path / "q"
    for number in range(2):
        feed(home, number)
    clicks = spark.readStream.schema("id long, n long").option("maxFilesPerTrigger", 1).json(str(home / "in"))
    totals = clicks.groupBy("id").sum("n").withColumnRenamed("sum(n)", "n").writeStream
    options = {"checkpointLocation": str(home / "checkpoint")}
    for mode, says in {"update": "does not support Update mode", "complete": "would replace all rows"}.items():
        with pytest.raises(Exception, match=says):
            totals.format("crdt_mor").outputMode(mode).options(**options).start(table.uri).awaitTermination()

    def put(rows: Any, number: int) -> None:
        upsert(rows, table.uri, token=("totals", number))

    query = totals.foreachBatch(put).outputMode("update").options(**options).trigger(availableNow=True).start()
    query.awaitTermination()
    assert (total(table), commits(table)) == (20, 2)


def test_a_batch_that_fails_leaves_nothing_visible(spark: Any, tmp_path: Path) -> None:
    table, home = counters(tmp_path / "t"), tmp_path / "q"
    feed(home, 0)
    (home / "in" / "000001.json").write_text('{"id": null, "n": 1}\n')
    with pytest.raises(Exception, match="a record key cannot be null"):
        run(spark, home, table.uri)
    assert total(table) == 10
    (home / "in" / "000001.json").write_text('{"id": 1, "n": 1}\n')
    run(spark, home, table.uri)
    assert total(table) == 11


def test_a_running_stream_goes_on_when_another_writer_adds_a_column(spark: Any, tmp_path: Path) -> None:
    table, home = counters(tmp_path / "t"), tmp_path / "q"
    feed(home, 0)
    stream = spark.readStream.schema("id long, n long").json(str(home / "in")).writeStream.format("crdt_mor")
    query = stream.option("checkpointLocation", str(home / "checkpoint")).start(table.uri)
    try:
        query.processAllAvailable()
        table.upsert(pa.table({"id": [99], "n": [5], "colour": ["red"]}), schema_mode="merge")
        feed(home, 1)
        query.processAllAvailable()
    finally:
        query.stop()
    assert total(table) == 25
    assert table.scan(filter="colour IS NOT NULL").to_arrow()["id"].to_pylist() == [99]


def streamed(spark: Any, home: Path, table: Table, **options: Any) -> None:
    """All that is there, one file a batch, to its end, by the function of ours."""
    rows = spark.readStream.schema("id long, n long").option("maxFilesPerTrigger", 1).json(str(home / "in"))
    query = stream(rows, table.uri, str(home / "checkpoint"), trigger={"availableNow": True}, **options)
    query.awaitTermination()


def test_stream_used_checkpoint_without_new_rows_is_refused(spark: Any, tmp_path: Path) -> None:
    first, second, home = counters(tmp_path / "first"), counters(tmp_path / "second"), tmp_path / "q"
    feed(home, 0)
    streamed(spark, home, first, name="clicks", options={"operation": "upsert"})
    with pytest.raises(InvalidInputError, match="batches that this table lacks"):
        streamed(spark, home, second)
    feed(home, 1)
    streamed(spark, home, first)
    assert (total(first), total(second)) == (20, 0)


def test_write_stream_used_checkpoint_is_refused_at_its_first_batch(spark: Any, tmp_path: Path) -> None:
    first, second, home = counters(tmp_path / "first"), counters(tmp_path / "second"), tmp_path / "q"
    feed(home, 0)
    run(spark, home, first.uri)
    feed(home, 1)
    with pytest.raises(Exception, match="batches that this table lacks"):
        run(spark, home, second.uri)
    assert total(second) == 0
    (said,) = first.inspect.tokens().to_pylist()
    second.delete(keys=[], token=(said["application"], said["number"]))  # as the message says
    run(spark, home, second.uri)
    assert (total(first), total(second)) == (10, 10)


@pytest.mark.slow
def test_a_driver_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    table = counters(tmp_path / "t")
    for number in range(20):
        feed(tmp_path / "q", number)
    process = driver(tmp_path, table.uri, "q", options=["--once"])
    kills = 0
    try:
        waiting.wait_for("commits", lambda: process.poll() is not None or commits(table) > 4, 240, every_s=0.05)
        if process.poll() is None:
            kill(process)
            kills += 1
            process = driver(tmp_path, table.uri, "q", options=["--once"])
        waiting.wait_for("end", lambda: process.poll() is not None, 240, every_s=0.05)
    finally:
        if process.poll() is None:
            kill(process)
    assert process.returncode == 0, (tmp_path / "q.log").read_text()[-3000:]
    assert kills == 1
    assert total(table) == 200

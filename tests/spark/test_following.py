"""A stream of changes: each commit once, whatever fails and however the batches are cut."""

from __future__ import annotations

import json
import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from crdt_mor import InvalidInputError, Table
from crdt_mor.payloads import Counter
from crdt_mor.readers.spark.options import ReadOptions
from tests.spark.helpers import Stream, listed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


def rows(*pairs: tuple[str, int]) -> pa.Table:
    return pa.Table.from_pylist([{"id": key, "n": n} for key, n in pairs], SCHEMA)


@pytest.fixture
def table(fast_path: Path) -> Table:
    """Three commits and a delete."""
    made = Table.create(fast_path / "counts", SCHEMA, key="id", buckets=2, merge={"n": Counter()})
    made.upsert(rows(("a", 1), ("b", 1), ("c", 1)))
    made.upsert(rows(("a", 10)))
    made.upsert(rows(("b", 10), ("d", 1)))
    made.delete(keys=["c"])
    return made


def test_a_stream_begins_with_the_whole_table_and_goes_on_with_what_changes(
    spark: SparkSession, table: Table, fast_path: Path
) -> None:
    stream = Stream(spark, table, fast_path / "checkpoint", changes="merged")
    assert stream.run() == {0: listed(table.changes())}
    since = table.changes().checkpoint
    assert len(stream.run()) == 1, "nothing new, no batch"
    table.upsert(rows(("a", 100)))
    table.maintenance.compact()
    table.delete(keys=["d"])
    assert stream.run()[1] == listed(table.changes(since)) == [("a", 111, "upsert"), ("d", None, "delete")]


@pytest.mark.parametrize(
    ("kind", "limit", "batches"),
    [
        ("raw", {"maxCommitsPerTrigger": 1}, 4),
        ("images", {"maxFilesPerTrigger": 3}, 2),
        ("raw", {"maxBytesPerTrigger": 1}, 4),
        ("raw", {"maxRowsPerTrigger": 3}, 3),
        ("images", {"maxBytesPerTrigger": "1g"}, 1),
    ],
    ids=["commits", "files", "bytes", "rows", "a limit that is not reached"],
)
def test_batches_are_limited_and_together_they_are_all_changes(
    spark: SparkSession, table: Table, fast_path: Path, kind: str, limit: dict[str, int | str], batches: int
) -> None:
    found = Stream(spark, table, fast_path / "checkpoint", changes=kind, **limit).run()
    wanted = listed(table.changes(**{kind: True}))  # type: ignore[arg-type]
    assert sorted((row for batch in found.values() for row in batch), key=repr) == wanted
    assert len(found) == batches


def test_limits_of_rows_and_bytes_may_have_units() -> None:
    def limit(name: str, value: str) -> int:
        (limit,) = ReadOptions.of({"path": "/t", name: value}).limits.values()
        return limit

    for value, wanted in {"64": 64, "1k": 1 << 10, "10m": 10 << 20, "10MB": 10 << 20, "1g": 1 << 30, "5b": 5}.items():
        assert limit("maxBytesPerTrigger", value) == wanted
    assert limit("maxRowsPerTrigger", "10m") == 10_000_000
    for value in ("0", "-1", "m", "1.5g", "10 m", "1p", ""):
        with pytest.raises(InvalidInputError, match=r"a number above 0, or one with k, m, g or t behind it"):
            limit("maxBytesPerTrigger", value)
    with pytest.raises(InvalidInputError, match=r"maxFilesPerTrigger is a number above 0\. "):
        limit("maxFilesPerTrigger", "10m")


def test_the_progress_of_a_query_says_how_far_behind_it_is(spark: SparkSession, table: Table, fast_path: Path) -> None:
    """Each batch has one of the four commits."""
    stream = Stream(spark, table, fast_path / "checkpoint", changes="raw", maxCommitsPerTrigger=1)
    stream.run()
    seen = [json.loads(progress.sources[0].latestOffset) for progress in stream.progress if progress.numInputRows]
    assert seen == [{"checkpoint": table.changes().checkpoint, "commits": left} for left in (3, 2, 1, 0)]


@pytest.mark.parametrize("kind", ["merged", "images", "raw"])
def test_a_batch_that_is_repeated_is_the_same_whatever_was_committed_meanwhile(
    spark: SparkSession, table: Table, fast_path: Path, kind: str
) -> None:
    straggler = table.transaction()
    straggler.__enter__().upsert(rows(("a", 1000), ("late", 1)))
    stream = Stream(spark, table, fast_path / "checkpoint", changes=kind, maxCommitsPerTrigger=2)
    stream.fail_at = 1
    with pytest.raises(StreamingQueryException, match="the sink is away"):
        stream.run()
    assert set(stream.batches) == {0, 1}
    straggler.__exit__(None, None, None)
    table.upsert(rows(("a", 7)))
    table.maintenance.compact()
    found = stream.run()
    if kind != "merged":
        everything = sorted((row for batch in found.values() for row in batch), key=repr)
        assert everything == listed(table.changes(**{kind: True}))  # type: ignore[arg-type]
    state: dict[object, tuple[object, ...]] = {}
    for number in sorted(found):
        state |= {row[0]: row for row in found[number] if row[2] in ("upsert", "delete")}
    if kind == "merged":
        assert sorted((row[:2] for row in state.values() if row[2] == "upsert"), key=repr) == listed(table.scan())


def test_a_stream_goes_on_after_it_was_stopped(spark: SparkSession, table: Table, fast_path: Path) -> None:
    stream = Stream(spark, table, fast_path / "checkpoint", changes="raw", maxCommitsPerTrigger=1)
    stream.run()
    for i in range(3):
        table.upsert(rows(("a", i)))
        stream.run()
    assert [len(stream.batches[i]) for i in range(4, 7)] == [1, 1, 1]
    assert set(stream.batches) == set(range(7))


def test_a_running_stream_sees_commits_as_they_come(spark: SparkSession, table: Table, fast_path: Path) -> None:
    source = spark.readStream.format("crdt_mor").option("changes", "raw").load(table.uri)
    query = (
        source.writeStream.format("memory").queryName("running")
        .option("checkpointLocation", str(fast_path / "checkpoint")).start()
    )  # fmt: skip
    try:
        for i in range(3):
            table.upsert(rows(("z", i)))
            query.processAllAvailable()
            assert listed(spark.table("running")) == listed(table.changes(raw=True))
    finally:
        query.stop()


@pytest.mark.parametrize("since", ["version", "checkpoint", "instant"])
def test_a_stream_begins_where_it_is_told(spark: SparkSession, table: Table, fast_path: Path, since: str) -> None:
    commits = [row for row in table.inspect.timeline().to_pylist() if row["rows"]]
    points = {
        "version": commits[1]["version"],
        "checkpoint": f"completed:{commits[1]['completed_at']}",
        "instant": commits[1]["completed_at"],
    }
    found = Stream(spark, table, fast_path / "checkpoint", since=points[since]).run()
    assert found == {0: [("b", 11, "upsert"), ("c", None, "delete"), ("d", 1, "upsert")]}


def test_a_stable_stream_waits_for_what_was_begun_before(spark: SparkSession, table: Table, fast_path: Path) -> None:
    pending = table.transaction()
    pending.__enter__().upsert(rows(("p", 1)))
    table.upsert(rows(("q", 1)))
    stream = Stream(spark, table, fast_path / "checkpoint", changes="raw", consistency="stable")
    keys = [row[0] for row in stream.run()[0]]
    assert "q" not in keys
    pending.__exit__(None, None, None)
    assert sorted(str(row[0]) for row in stream.run()[1]) == ["p", "q"]


def test_without_a_word_about_changes_a_stream_has_the_tables_columns_until_something_is_deleted(
    spark: SparkSession, table: Table, fast_path: Path
) -> None:
    stream = Stream(spark, table, fast_path / "checkpoint", maxCommitsPerTrigger=1)
    with pytest.raises(StreamingQueryException, match="a row was deleted, and this stream has no column"):
        stream.run()
    assert stream.batches == {0: [("a", 1), ("b", 1), ("c", 1)], 1: [("a", 11)], 2: [("b", 11), ("d", 1)]}


def test_a_new_column_shows_when_the_query_starts_again(spark: SparkSession, table: Table, fast_path: Path) -> None:
    stream = Stream(spark, table, fast_path / "checkpoint", changes="merged")
    stream.run()
    table.upsert(pa.table({"id": ["a"], "n": [1], "colour": ["red"]}), schema_mode="merge")
    assert stream.run()[1] == [("a", 12, "red", "upsert")]


def test_what_a_checkpoint_needs_and_is_gone_is_said(spark: SparkSession, table: Table, fast_path: Path) -> None:
    for path in Path(table.uri).rglob(".*.log.*"):
        path.unlink()
    with pytest.raises(StreamingQueryException, match="files after this checkpoint are gone: scan the table"):
        Stream(spark, table, fast_path / "checkpoint", changes="raw").run()


def test_a_query_is_refused_by_the_table_that_came_in_the_place_of_its_own(
    spark: SparkSession, table: Table, fast_path: Path
) -> None:
    """Its checkpoint is before the new table's first commit, so that it would seem to have missed nothing."""
    Stream(spark, table, fast_path / "checkpoint", changes="raw").run()
    since = table.scan().checkpoint
    shutil.rmtree(table.uri)
    again = Table.create(table.uri, SCHEMA, key="id")
    again.upsert(rows(("a", 1)))
    with pytest.raises(StreamingQueryException, match=r"belongs to another table.*new checkpointLocation"):
        Stream(spark, again, fast_path / "checkpoint", changes="raw").run()
    with pytest.raises(AnalysisException, match="this checkpoint belongs to another table"):
        Stream(spark, again, fast_path / "another", since=since).run()
    with pytest.raises(AnalysisException, match="this checkpoint belongs to another table"):
        spark.read.format("crdt_mor").option("since", since).load(again.uri).collect()
    assert Stream(spark, again, fast_path / "new", changes="merged").run() == {0: [("a", 1, "upsert")]}


def test_a_running_query_ends_when_its_table_is_replaced(spark: SparkSession, table: Table, fast_path: Path) -> None:
    source = spark.readStream.format("crdt_mor").option("changes", "raw").load(table.uri)
    query = (
        source.writeStream.format("memory").queryName("replaced")
        .option("checkpointLocation", str(fast_path / "checkpoint")).start()
    )  # fmt: skip
    try:
        query.processAllAvailable()
        before = listed(spark.table("replaced"))
        shutil.rmtree(table.uri)
        Table.create(table.uri, SCHEMA, key="id").upsert(rows(("new", 1)))
        with pytest.raises(StreamingQueryException, match=r"TableReplacedError|TableNotFoundError"):
            query.processAllAvailable()
        assert listed(spark.table("replaced")) == before
    finally:
        query.stop()


def test_an_offset_of_the_release_before_goes_on(spark: SparkSession, table: Table, fast_path: Path) -> None:
    """Its offsets had no id of a table."""
    stream = Stream(spark, table, fast_path / "checkpoint", changes="merged")
    stream.run()
    for file in (fast_path / "checkpoint" / "offsets").glob("[0-9]*"):
        text = file.read_text()
        file.write_text(re.sub(r"(completed:\d{17}):\w+", r"\1", text))
        assert file.read_text() != text
    table.upsert(rows(("a", 7)))
    assert stream.run()[1] == [("a", 18, "upsert")]


def test_a_checkpoint_that_is_ahead_of_its_table_is_refused(spark: SparkSession, table: Table, fast_path: Path) -> None:
    Stream(spark, table, fast_path / "checkpoint", changes="raw").run()
    offsets = fast_path / "checkpoint" / "offsets" / "0"
    offsets.write_text(re.sub(r"completed:\d{8}", "completed:29990101", offsets.read_text()))
    with pytest.raises(StreamingQueryException, match="this checkpoint is ahead of the table"):
        Stream(spark, table, fast_path / "checkpoint", changes="raw").run()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"asOf": "1"}, "asOf has no place in a stream"),
        ({"until": "1"}, "until has no place in a stream"),
        ({"filter": "n > 1"}, "filter has no place in a stream"),
        ({"names": "then"}, "names has no place in a stream"),
        ({"maxBytesPerTrigger": "many"}, "maxBytesPerTrigger is a number above 0"),
        ({"since": "99"}, "this version does not exist yet"),
    ],
)
def test_what_a_stream_has_not_is_refused_in_the_first_line(
    spark: SparkSession, table: Table, fast_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises((AnalysisException, StreamingQueryException)) as raised:
        Stream(spark, table, fast_path / "checkpoint", **options).run()
    assert message in str(raised.value).splitlines()[0]
    assert "Traceback" not in str(raised.value)


def test_a_stream_that_was_away_for_longer_than_history_is_kept_says_what_to_do(
    spark: SparkSession, table: Table, fast_path: Path
) -> None:
    stream = Stream(spark, table, fast_path / "checkpoint", changes="merged")
    stream.run()
    table.upsert(rows(("a", 100)))
    table.maintenance.compact()
    table.maintenance.clean(timedelta(0), readers=timedelta(0))
    with pytest.raises(StreamingQueryException, match=r"CheckpointExpiredError.*new checkpointLocation.*oldest="):
        stream.run()
    anew = Stream(spark, table, fast_path / "another", changes="merged", maxCommitsPerTrigger=1)
    assert anew.run() == {0: listed(table.changes())}, "what is kept begins with a snapshot"
    since = table.scan().checkpoint
    going_on = Stream(spark, table, fast_path / "third", changes="merged", since=since)
    table.upsert(rows(("z", 1)))
    assert list(going_on.run().values()) == [[("z", 1, "upsert")]]


def test_a_stream_with_a_name_keeps_its_place_in_the_table(spark: SparkSession, table: Table, fast_path: Path) -> None:
    options = {"changes": "images", "reader": "billing", "since": str(table.version)}
    stream = Stream(spark, table, fast_path / "checkpoint", **options)
    stream.run()
    for n in range(2):
        table.upsert(rows(("a", n + 1)))
        table.maintenance.compact()
        table.maintenance.clean(timedelta(0), readers=timedelta(0))  # an unnamed stream would have lost its place
        found = [str(row[2]) for batch in stream.run().values() for row in batch]
        assert sorted(found) == ["update_postimage"] * (n + 1) + ["update_preimage"] * (n + 1)
    (place,) = table.inspect.readers().to_pylist()
    assert (place["reader"], place["commits"], place["lost"]) == ("billing", 1, False), "Spark commits a batch late"
    table.upsert(rows(("a", 100)))
    anew = Stream(spark, table, fast_path / "another checkpoint", changes="raw", reader="billing")
    assert [row[:2] for row in anew.run()[0]] == [("a", 100), ("a", 2)], "another query of the name begins there"


def test_only_a_stream_has_a_name(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="only a stream has a named reader"):
        ReadOptions.of({"path": table.uri, "changes": "raw", "reader": "billing"}).for_batch()

"""Tables of Hudi's beyond plain rows: partial update modes, payloads that Hudi turns into properties, log compactions,
archives and metadata tables beside writes of ours.

Hudi's Spark writes each of them here, and our rows are those of its reader, now and as of every moment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import Table
from crdt_mor.errors import InvalidInputError, UnsupportedFeatureError
from tests.inside import look_for_hudi, session_of
from tests.interop.readers import HudiSpark, hudi_rs
from tests.interop.written_by_hudi import ARCHIVING, Written, exactly, rows
from tests.tiers import long

pytestmark = pytest.mark.spark

PAYLOADS = "org.apache.hudi.common.model."
LOGS_ONLY = {"datasource__write__table__type": "MERGE_ON_READ", "compact__inline": "false"}
OVERLAPPING = {
    **LOGS_ONLY,
    "table__type": "MERGE_ON_READ",
    "index__type": "BUCKET",
    "bucket__index__num__buckets": "1",
    "record__merge__mode": "COMMIT_TIME_ORDERING",
    "write__concurrency__mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    "write__lock__provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
    "table__timeline__timezone": "UTC",
}
"""A table of Hudi's non-blocking writers."""
GAPS = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string()), ("w", pa.string()), ("n", pa.int64())])
CHANGES = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string()), ("Op", pa.string())])
DEBEZIUM = pa.schema(
    [("id", pa.string()), ("_event_lsn", pa.int64()), ("_change_operation_type", pa.string()), ("v", pa.string()),
     ("w", pa.string()), ("b", pa.binary())]
)  # fmt: skip
UNAVAILABLE = "__debezium_unavailable_value"


def with_payload(spark: HudiSpark, root: Path, payload: str, ordering: str = "ts") -> Written:
    name = PAYLOADS + payload
    return Written(
        spark, root, **LOGS_ONLY, datasource__write__precombine__field=ordering, compaction__payload__class=name,
        datasource__write__payload__class=name,
    )  # fmt: skip


def table_of(schema: pa.Schema, *rows: tuple[object, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


@pytest.mark.parametrize("payload", [long("PartialUpdateAvroPayload"), "OverwriteNonDefaultsWithLatestAvroPayload"])
def test_nulls_that_leave_columns_as_they_are(spark: HudiSpark, tmp_path: Path, payload: str) -> None:
    table = with_payload(spark, tmp_path / payload.lower(), payload)
    table.write(table_of(GAPS, ("a", 5, "x", None, 1), ("b", 5, None, "y", 1), ("c", 5, "z", "q", None)), "insert")
    table.write(table_of(GAPS, ("a", 6, None, "p", None), ("b", 3, "low", "low", 7), ("c", 5, None, "tie", None)))
    table.write(table_of(GAPS, ("a", 7, "x3", None, 9), ("d", 5, None, "n", None), ("c", 4, "late", None, 4)))
    table.write(table_of(GAPS, ("d", 4, "below", "lost", None), ("e", 1, None, None, None)))
    table.write(table_of(GAPS, ("e", 1, None, None, None)), "delete")
    table.write(table_of(GAPS, ("e", 2, None, "back", None)))
    read, expired = table.check()
    assert (read, expired) == (6, 0)
    assert hudi_rs(table.root) == table.seen[max(table.seen)]
    opened = Table(table.root)
    assert opened.scan(filter="w = 'p'").to_arrow()["v"].to_pylist() == ["x3"]
    assert opened.scan(filter="v = 'late'").to_arrow()["w"].to_pylist() == ["tie"]
    with pytest.raises(InvalidInputError):
        opened.upsert(table_of(GAPS, ("a", 9, "ours", None, None)))


@pytest.mark.long
def test_a_value_that_was_left_below_a_delete_is_refused(spark: HudiSpark, tmp_path: Path) -> None:
    """Hudi's reader takes it from the deleted row while that is in a base file, and no more after a compaction."""
    table = with_payload(spark, tmp_path / "left_below", "PartialUpdateAvroPayload")
    table.write(table_of(GAPS, ("a", 5, "old", "old", 1), ("b", 5, "x", "y", 1)), "insert")
    table.write(table_of(GAPS, ("a", 6, None, None, None)), "delete")
    table.write(table_of(GAPS, ("b", 6, None, "y2", None)))
    table.check()
    table.write(table_of(GAPS, ("a", 7, None, "new", None)))
    assert table.seen[max(table.seen)]["", "a"]["v"] == "old"
    with pytest.raises(UnsupportedFeatureError, match="key=a"):
        Table(table.root).scan().to_arrow()


def test_values_that_debezium_did_not_have(spark: HudiSpark, tmp_path: Path) -> None:
    table = with_payload(spark, tmp_path / "debezium", "debezium.PostgresDebeziumAvroPayload", "_event_lsn")
    gap = UNAVAILABLE.encode()
    table.write(table_of(DEBEZIUM, ("a", 5, "c", "x", "y", b"1"), ("b", 5, "c", "x", None, b"1")), "insert")
    table.write(table_of(DEBEZIUM, ("a", 6, "u", UNAVAILABLE, None, gap), ("b", 3, "u", "low", "low", b"0")))
    table.write(table_of(DEBEZIUM, ("c", 1, "c", UNAVAILABLE, "only", b"")))
    table.write(table_of(DEBEZIUM, ("c", 2, "u", UNAVAILABLE, "two", b""), ("b", 9, "d", None, None, None)))
    read, expired = table.check()
    assert (read, expired) == (4, 0)


def test_changes_of_amazons_migration_service(spark: HudiSpark, tmp_path: Path) -> None:
    table = with_payload(spark, tmp_path / "dms", "AWSDmsAvroPayload")
    table.write(table_of(CHANGES, ("a", 1, "x", "I"), ("b", 1, "y", "I"), ("c", 1, "z", "I")))
    table.write(table_of(CHANGES, ("a", 2, "x2", "U"), ("b", 2, "y2", "D"), ("c", 0, "old", "U")))
    table.write(table_of(CHANGES, ("b", 3, "y3", "I"), ("a", 3, "x3", "D")))
    read, expired = table.check()
    assert (read, expired) == (3, 0)
    assert hudi_rs(table.root) == exactly(Table(table.root))


def test_log_compactions_of_hudis(spark: HudiSpark, tmp_path: Path) -> None:
    """Two of them, the later of which stands for the earlier one, with a write behind each."""
    table = Written(
        spark, tmp_path / "log_compaction", **LOGS_ONLY, datasource__write__precombine__field="ts",
        log__compaction__inline="true", log__compaction__enable="true", log__compaction__blocks__threshold="2",
    )  # fmt: skip
    table.write(rows([0, 1, 2], 1, "a"), "insert")
    for n in range(2, 7):
        table.write(rows([1, n], 3 if n == 5 else n, "b"), "delete" if n == 4 else "upsert")
    opened = Table(table.root)
    operations = opened.inspect.timeline()["operation"].to_pylist()
    assert operations.count("LOG_COMPACT") >= 2
    read, expired = table.check()
    assert (read, expired) == (6, 0)
    changed = opened.changes(sorted(table.seen)[2]).to_arrow()
    assert {row["id"] for row in changed.to_pylist()} == {"k1", "k5", "k6"}


@pytest.mark.long
def test_a_table_with_an_archive_of_hudis_is_written_in_turns(spark: HudiSpark, tmp_path: Path) -> None:
    table = Written(spark, tmp_path / "archived_turns", **OVERLAPPING, **ARCHIVING)
    for n in range(4):
        table.write(rows([0, n], n, "a"))
    table.compact()
    for n in range(4, 8):
        table.write(rows([1, n], n, "b"))
    assert list((table.root / ".hoodie/timeline/history").glob("*.parquet"))
    table.check()
    table.name_buckets(1)
    opened = Table(table.root)
    opened.upsert(rows([0, 50], 9, "ours"))
    opened.delete(keys=["k4"])
    assert exactly(opened) == spark.read(table.root) == hudi_rs(table.root)
    table.write(rows([0], 10, "hudi"))
    look_for_hudi(opened)
    opened.maintenance.compact()
    for n in range(11, 14):
        table.write(rows([n], n, "c"))
    opened = Table(table.root)
    assert exactly(opened) == spark.read(table.root)
    values = {row["id"]: row["v"] for row in opened.scan().to_arrow().to_pylist()}
    assert (values["k0"], values["k50"], "k4" in values, values["k13"]) == ("hudi0", "ours50", False, "c13")


def test_a_metadata_table_is_dropped_and_hudis_readers_see_what_we_write(spark: HudiSpark, tmp_path: Path) -> None:
    table = Written(spark, tmp_path / "with_metadata", **{**OVERLAPPING, "metadata__enable": "true"})
    looking = {"hoodie.metadata.enable": "true"}
    for n in range(2):
        table.write(rows([0, 1, 2 + n], n, "a"))
        table.name_buckets(1)
        opened = Table(table.root)
        assert session_of(opened).config.metadata_partitions
        with pytest.raises(InvalidInputError, match=r"drop_metadata_table\(\)"):
            opened.upsert(rows([0, 50], 9, "ours"))
        assert opened.maintenance.drop_metadata_table() > 0
        opened.upsert(rows([0, 50 + n], 9, "ours"))
        opened.maintenance.compact()
        opened.upsert(rows([1], 9, "late"))
        assert exactly(opened) == spark.read(table.root, looking) == spark.read(table.root) == hudi_rs(table.root)
    assert sorted(row["id"] for row in opened.scan().to_arrow().to_pylist()) == ["k0", "k1", "k2", "k3", "k50", "k51"]


class WithoutKeys(Written):
    """A table of which Hudi's reader shows no meta columns, and the rows that it showed after each step."""

    rows: list[list[object]]

    def look(self) -> None:
        """See the rows that Hudi's reader shows now."""
        self.rows = [*getattr(self, "rows", []), self.spark.ask(read=str(self.root))]


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", long("COPY_ON_WRITE")])
def test_a_table_without_meta_columns(spark: HudiSpark, tmp_path: Path, kind: str) -> None:
    """Hudi's reader shows none of them either, so that rows are compared by their own columns."""
    table = WithoutKeys(
        spark, tmp_path / f"virtual_{kind.lower()}", datasource__write__table__type=kind, compact__inline="false",
        datasource__write__precombine__field="ts", datasource__write__partitionpath__field="p",
        populate__meta__fields="false",
    )  # fmt: skip
    table.write(rows([0, 1, 2, 3], 2, "a"), "bulk_insert")
    table.write(rows([1, 5], 3, "b"))
    table.write(rows([2], 3, "c"), "delete")
    table.write(rows([3, 5], 1, "late"))
    opened = Table(table.root)
    times = opened.inspect.timeline()["completed_at"].to_pylist()
    assert len(times) == len(table.rows) == 4
    for time, expected in zip(times, table.rows, strict=True):
        for found in (opened.scan(as_of=time), *([opened.scan()] if time == times[-1] else [])):
            assert sorted(found.to_arrow().to_pylist(), key=by_id) == sorted(expected, key=by_id)
            assert found.count() == len(expected)
    keys = opened.scan(meta=True).to_arrow().select(["_hoodie_record_key", "_hoodie_partition_path"]).to_pylist()
    assert {tuple(row.values()) for row in keys} == {("k0", "p=p0"), ("k1", "p=p1"), ("k3", "p=p1"), ("k5", "p=p1")}
    with pytest.raises(UnsupportedFeatureError, match="no meta columns"):
        opened.changes(times[0]).to_arrow()
    with pytest.raises(InvalidInputError):
        opened.upsert(rows([0], 9, "ours"))


def by_id(row: Any) -> str:
    return str(row["id"])


@pytest.mark.long
def test_a_consistent_hashing_index_whose_buckets_were_split(spark: HudiSpark, tmp_path: Path) -> None:
    clustering, bucket = "org.apache.hudi.client.clustering", "strategy.SparkConsistentBucket"
    table = Written(
        spark, tmp_path / "split", **LOGS_ONLY, datasource__write__precombine__field="ts", index__type="BUCKET",
        index__bucket__engine="CONSISTENT_HASHING", bucket__index__num__buckets="2",
        bucket__index__max__num__buckets="8", bucket__index__split__threshold="0.00000001",
        parquet__max__file__size="2000", clustering__inline="true", clustering__inline__max__commits="2",
        clustering__plan__strategy__class=f"{clustering}.plan.{bucket}ClusteringPlanStrategy",
        clustering__execution__strategy__class=f"{clustering}.run.{bucket}ClusteringExecutionStrategy",
        clustering__updates__strategy=f"{clustering}.update.{bucket}DuplicateUpdateStrategy",
    )  # fmt: skip
    for n in range(4):
        table.write(rows(list(range(n * 5, n * 5 + 12)), n, "a"))
    assert len(set(Table(table.root).inspect.files()["file_id"].to_pylist())) > 2
    read, expired = table.check()
    assert (read, expired) == (4, 0)

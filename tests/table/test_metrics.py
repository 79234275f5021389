"""`table.inspect.metrics()`: numbers agree with the table's history, and cost few requests and no data file."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import crdt_mor as mor
from crdt_mor.errors import StorageUnavailableError
from crdt_mor.results import Metrics
from crdt_mor.store.memory import MemoryStore
from crdt_mor.store.protocol import Store
from tests.counting import Bucket
from tests.inside import store_of
from tests.simulated import Simulated
from tests.table.helpers import Make, frame

SCHEMA = {"id": pl.String, "views": pl.Int64}


def rows(first: int, count: int = 8) -> pl.DataFrame:
    return pl.DataFrame({"id": [f"key{i}" for i in range(first, first + count)], "views": 1})


@pytest.fixture
def table(simulated: Simulated) -> mor.Table:
    return simulated.create(SCHEMA, key="id", buckets=2)


def due(table: mor.Table) -> set[str]:
    return {name for name, is_due in table.inspect.metrics().service_due.items() if is_due}


def test_an_empty_table_has_zeros_and_nothing_unknown_is_a_number(table: mor.Table) -> None:
    found = table.inspect.metrics()
    unknown = {"last_commit_age_seconds", "verify_findings", "verify_age_seconds"}
    assert {one.name for one in fields(Metrics) if getattr(found, one.name) is None} == unknown
    assert (found.versions_total, found.file_groups, found.log_files, found.unmerged_ratio) == (0, 0, 0, 0.0)


def test_ages_are_those_of_the_newest_commit_and_of_the_oldest_pending_write(
    table: mor.Table, simulated: Simulated
) -> None:
    table.upsert(rows(0))
    simulated.environment.sleep(60)
    with table.transaction() as tx:
        tx.upsert(rows(0))
        simulated.environment.sleep(30)
        found = table.inspect.metrics()
        assert found.pending_writes == 1
        assert found.oldest_pending_age_seconds == pytest.approx(30, abs=0.5)
        assert found.last_commit_age_seconds == pytest.approx(90, abs=0.5)
    found = table.inspect.metrics()
    assert (found.pending_writes, found.oldest_pending_age_seconds) == (0, 0.0)
    assert found.last_commit_age_seconds == pytest.approx(0, abs=0.5)


def test_upkeep_is_no_commit_and_a_commit_that_history_dropped_is_at_least_as_old_as_its_base_file(
    table: mor.Table, simulated: Simulated
) -> None:
    table.upsert(rows(0))
    simulated.environment.sleep(1000)
    table.maintenance.compact()
    assert table.inspect.metrics().last_commit_age_seconds == pytest.approx(1000, abs=0.5)
    simulated.environment.sleep(3600 * 24 * 30)
    table.maintenance.maintain()
    found = table.inspect.metrics()
    assert found.last_commit_age_seconds is not None
    assert 3600 * 24 * 30 - 1 < found.last_commit_age_seconds < 3600 * 24 * 30 + 1001


def test_files_are_those_that_inspect_files_lists(table: mor.Table) -> None:
    for first in (0, 0, 4):
        table.upsert(rows(first))
    table.maintenance.compact()
    table.upsert(rows(0, 1))
    files = pl.DataFrame(pl.from_arrow(table.inspect.files()))
    logs = files.filter(pl.col("kind") == "log")
    found = table.inspect.metrics()
    assert (found.file_groups, found.base_files) == (2, 2)
    assert found.base_bytes == files.filter(pl.col("kind") == "base")["bytes"].sum()
    assert (found.log_files, found.log_bytes) == (logs.height, logs["bytes"].sum()) == (1, found.log_bytes)
    assert (found.file_group_log_files_max, found.file_group_log_files_p50) == (1, 0.5)
    assert (found.file_group_log_max_bytes, found.file_group_log_p50_bytes) == (found.log_bytes, found.log_bytes / 2)
    assert found.unmerged_ratio == pytest.approx(found.log_bytes / (found.log_bytes + found.base_bytes))


def test_a_service_is_due_when_a_dry_run_says_so(table: mor.Table, simulated: Simulated) -> None:
    for _ in range(10):
        table.upsert(rows(0))
    assert due(table) == {"compaction"}
    table.maintenance.plans.schedule()
    assert table.inspect.metrics().open_plans == 1
    simulated.environment.sleep(3600 * 24 * 8)
    assert due(table) == {action.service for action in table.maintenance.maintain(dry_run=True).actions}
    assert due(table) == {"compaction", "clean", "sweep"}
    table.maintenance.maintain()
    assert due(table) == set()
    assert table.inspect.metrics().open_plans == 0


def test_versions_of_the_last_ten_minutes_are_counted(table: mor.Table, simulated: Simulated) -> None:
    table.upsert(rows(0))
    simulated.environment.sleep(3600)
    before = table.inspect.metrics()
    for _ in range(5):
        table.upsert(rows(0))
    found = table.inspect.metrics()
    assert found.versions_total == table.version
    assert before.versions_per_minute == 0
    assert found.versions_per_minute == (found.versions_total - before.versions_total) / 10


def test_damage_is_that_of_the_last_verify_of_the_whole_table(make: Make, path: str) -> None:
    table = make(buckets=1)
    table.upsert(frame(("a", "eu")))
    assert table.inspect.metrics().verify_findings is None
    table.verify()
    assert table.inspect.metrics().verify_findings == 0
    (log,) = (file for file in Path(path).rglob("*.log.*") if ".hoodie" not in file.parts)
    data = log.read_bytes()
    log.write_bytes(data[:-20] + bytes(20))
    assert table.inspect.metrics().verify_findings == 0, "nobody has looked since"
    assert len(table.verify().findings) == table.inspect.metrics().verify_findings == 1
    log.write_bytes(data)
    table.verify()
    found = table.inspect.metrics()
    assert found.verify_findings == 0
    assert found.verify_age_seconds is not None
    assert len(store_of(table).list(".hoodie/.crdt_mor/verified")) == 1, "earlier notes are gone"


# --- the cost ---------------------------------------------------------------------------------------------------------


def opened(bucket: Bucket) -> mor.Table:
    return mor.Table("s3://counted/table", opening=mor.Opening(store=bucket.store()))


@pytest.mark.parametrize("commits", [3, 30])
@pytest.mark.parametrize("buckets", [2, 16])
def test_a_scrape_costs_at_most_nine_requests_and_reads_no_data_file(buckets: int, commits: int) -> None:
    bucket = Bucket()
    with bucket.counting():
        opening = mor.Opening(store=bucket.store())
        made = mor.Table.create("s3://counted/table", SCHEMA, key="id", buckets=buckets, opening=opening)
        for number in range(commits):
            made.upsert(rows(number))
        made.verify()
        table = opened(bucket)
        first, later = bucket.count(table.inspect.metrics), bucket.count(table.inspect.metrics)
    assert later.requests <= 9, later
    assert first.requests <= later.requests + 6, first  # the clock, and segments that later scrapes remember
    asked = [line for line in (*first.asked, *later.asked) if ".log." in line or ".parquet" in line]
    assert asked == []


class ReadOnly(MemoryStore):
    """A store whose user may only read."""

    closed = False

    def put(self, path: str, data: Any, **how: Any) -> Any:
        self._refuse()
        return super().put(path, data, **how)

    def delete(self, path: str) -> None:
        self._refuse()
        super().delete(path)

    def now_ms(self) -> int:
        self._refuse()
        return super().now_ms()

    def _refuse(self) -> None:
        if self.closed:
            raise StorageUnavailableError("no right to write")


def test_rights_to_read_are_enough_for_metrics_and_for_verify(simulated: Simulated) -> None:
    store = ReadOnly(simulated.environment.now_ms)
    opening = mor.Opening(store=store, environment=simulated.environment)
    mor.Table.create("events", SCHEMA, key="id", opening=opening).upsert(rows(0))
    store.closed = True
    table = mor.Table("events", opening=opening)
    assert table.verify().is_sound
    found = table.inspect.metrics()
    assert (found.log_files > 0, found.verify_findings) == (True, None)


def test_a_table_that_moved_is_still_measured(table: mor.Table, simulated: Simulated) -> None:
    table.upsert(rows(0))
    there: Store = MemoryStore(simulated.environment.now_ms)
    table.maintenance.migrate("elsewhere", buckets=1, store=there)
    found = table.inspect.metrics()
    assert found.log_files > 0
    assert not any(found.service_due.values())

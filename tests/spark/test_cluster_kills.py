"""Executors of a standalone cluster are killed in each stage of a write, and in upkeep: rows stay exact.

python -m tests.spark.cluster -k kills
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import StructType

from crdt_mor import CrdtMorError, Table
from crdt_mor.payloads import Counter
from crdt_mor.readers.spark import compact, compacting, maintain, upsert, writing
from crdt_mor.readers.spark.tasks import in_tasks
from tests.spark.counting import SCHEMA
from tests.spark.processes import kill_executor_once
from tests.spark.tables import leftovers, pending

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROWS = 1_000_000
KEYS = 100_000
TASKS = 40


def counters(path: Path) -> Table:
    return Table.create(path, SCHEMA, key="id", merge={"n": Counter()}, buckets=16)


def require_exact(table: Table, count: int) -> None:
    """Each key has counted so often, and no file is left that no commit names."""
    rows = table.scan().to_polars()
    assert rows["id"].sort().equals(pl.Series("id", range(KEYS)))
    assert rows["n"].unique().to_list() == [count]
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])
    assert table.verify().is_sound


def task() -> int:
    """The number of the task that runs here."""
    context = TaskContext.get()
    assert context is not None
    return int(context.partitionId())


class DyingWriter(writing.BatchWriter):
    """Of an upsert: one task is killed when it has read some of its rows, another when it has staged all of them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> writing.Staged:
        beside = Path(self._planned.job.uri)

        def interrupted() -> Iterator[pa.RecordBatch]:
            for batch in iterator:
                yield batch
                if task() == 0:
                    kill_executor_once(beside.with_name("killed while it reads"))

        staged = super().write(interrupted())
        if task() == 1:
            kill_executor_once(beside.with_name("killed when its files are there"))
        return staged


class DyingWrites(writing.PlannedWrites):
    def writer(self, schema: StructType, overwrite: bool) -> DyingWriter:
        whole = super().writer(schema, overwrite)
        assert isinstance(whole, writing.BatchWriter)
        return DyingWriter(whole._planned)


def test_a_million_rows_count_once_though_executors_die_in_both_stages_of_an_upsert(
    on_standalone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = counters(tmp_path / "t")

    def before_the_shuffle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if task() == TASKS // 2:
            kill_executor_once(tmp_path / "killed before the shuffle")

    monkeypatch.setattr(writing, "PlannedWrites", DyingWrites)
    rows = on_standalone.range(ROWS, numPartitions=TASKS).selectExpr(f"id % {KEYS} as id", "1L as n")
    assert upsert(rows.mapInArrow(before_the_shuffle, "id long, n long"), table.uri).rows == KEYS
    assert len([*tmp_path.glob("killed *")]) == 3
    require_exact(table, ROWS // KEYS)


def maintained(spark: Any, uri: str) -> None:
    done = maintain(spark, uri, keep=timedelta(0), keep_commits=1)
    assert done.ok
    assert {"compaction", "clean"} <= {action.service for action in done.actions}
    assert done.files_removed > 0


@pytest.mark.parametrize("upkeep", [compact, maintained])
def test_upkeep_whose_executors_die_changes_no_row(
    on_standalone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upkeep: Callable[[Any, str], object]
) -> None:
    """A task is killed before it writes the files of a plan, and another when they are there and nobody knows of it."""

    def dying(spark: Any, parts: Sequence[Any], execute: Callable[[Any], Any], *more: Any) -> list[Any | CrdtMorError]:
        def executed(part: Any) -> Any:
            if task() == 1:
                kill_executor_once(tmp_path / "killed before")
            done = execute(part)
            if task() == 2:
                kill_executor_once(tmp_path / "killed after")
            return done

        return in_tasks(spark, parts, executed, *more)

    monkeypatch.setattr(compacting, "in_tasks", dying)
    table = counters(tmp_path / "t")
    for _ in range(2):
        upsert(on_standalone.range(KEYS, numPartitions=4).selectExpr("id", "1L as n"), table.uri)
        table.maintenance.compact()
    for _ in range(2):
        upsert(on_standalone.range(KEYS, numPartitions=4).selectExpr("id", "1L as n"), table.uri)
    table.set_properties({"crdt_mor.compaction.log_files": "2", "crdt_mor.readers": "0s"})
    upkeep(on_standalone, table.uri)
    assert len([*tmp_path.glob("killed *")]) == 2
    assert set(table.inspect.files()["kind"].to_pylist()) == {"base"}
    require_exact(table, 4)

"""Five million rows and a thousand tasks on a standalone cluster, and the memory of its Python workers.

python -m tests.spark.cluster -k sizes
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crdt_mor import Table
from crdt_mor.payloads import Counter
from crdt_mor.readers.spark import maintain, upsert
from tests.spark.counting import SCHEMA
from tests.spark.helpers import read
from tests.spark.processes import PythonPeak
from tests.spark.standalone import Cluster
from tests.spark.tables import leftovers, pending

pytestmark = [pytest.mark.spark, pytest.mark.long]

GROUP_ROWS = 25_000
"""Rows of a file group, whatever the size of the table: a task has a few file groups."""
FEW, MANY = 250_000, 5_000_000
MORE_MIB = 96
"""How much more a worker may take for the larger table: its rows and their keys are 580 MiB in memory."""


def counters(path: Path, buckets: int) -> Table:
    return Table.create(path, SCHEMA, key="id", merge={"n": Counter()}, buckets=buckets)


def ones(spark: Any, rows: int, tasks: int) -> Any:
    return spark.range(rows, numPartitions=tasks).selectExpr("id", "1L as n")


def summed(frame: Any) -> tuple[int, int]:
    """The number of rows, and the sum of a checksum of each."""
    return tuple(frame.selectExpr("count(*)", "sum(crc32(concat(id, ':', n)))").collect()[0])


def require_exact(spark: Any, table: Table, rows: int, n: str) -> None:
    """The table has the rows that Spark makes itself; n: of a row, in SQL."""
    assert summed(read(spark, table.uri)) == summed(ones(spark, rows, 4).selectExpr("id", f"{n} as n"))


def peaks(spark: Any, cluster: Cluster, table: Table, rows: int) -> dict[str, int]:
    """The peak of a Python worker in each step of the life of a table, in MiB."""
    frame, again = ones(spark, rows, rows // GROUP_ROWS), "IF(id % 10 = 0, 2, 1)"
    first = table.version

    def write(frame: Any, count: int) -> None:
        assert upsert(frame, table.uri).rows == count

    def changes() -> None:
        changed = read(spark, table.uri, since=first).where("_change_type = 'upsert'")
        assert summed(changed) == summed(frame.selectExpr("id", f"{again} as n"))

    def upkeep() -> None:
        table.set_properties({"crdt_mor.compaction.log_files": "2"})
        assert [done.file_groups for done in maintain(spark, table.uri).actions if done.service == "compaction"]

    steps: dict[str, Callable[[], object]] = {
        "write": lambda: write(frame, rows),
        "write each tenth row again": lambda: write(frame.where("id % 10 = 0"), rows // 10),
        "read": lambda: require_exact(spark, table, rows, again),
        "changes": changes,
        "maintain": upkeep,
        "read base files": lambda: require_exact(spark, table, rows, again),
    }
    found = {}
    for name, step in steps.items():
        with PythonPeak(cluster.workers) as peak:
            step()
        found[name] = peak.mib
    return found


def test_a_worker_takes_the_memory_of_its_task_and_not_of_the_table(
    on_standalone: Any, standalone: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {}
    for rows in (FEW, MANY):
        table = counters(tmp_path / str(rows), rows // GROUP_ROWS)
        found[rows] = peaks(on_standalone, standalone, table, rows)
        with capsys.disabled():
            print(f"\n{rows:,} rows, MiB of a Python worker: {found[rows]}")  # noqa: T201
        assert (leftovers(table.uri), pending(table.uri)) == ([], [])
    assert min(found[FEW].values()) > 100, "a worker was not seen"
    for step, mib in found[MANY].items():
        assert mib < max(found[FEW].values()) + MORE_MIB, step


@pytest.mark.parametrize("shuffled", [True, False], ids=["shuffled", "unshuffled"])
def test_a_write_of_a_thousand_tasks_is_one_commit(on_standalone: Any, tmp_path: Path, shuffled: bool) -> None:
    """Unshuffled, each task has rows of each file group, and the driver joins a thousand files for each."""
    tasks, rows = 1000, 1_000_000
    table = counters(tmp_path / "t", 4)
    frame = ones(on_standalone, rows, tasks)
    if shuffled:
        assert upsert(frame, table.uri).rows == rows
    else:
        frame.write.format("crdt_mor").mode("append").save(table.uri)
    require_exact(on_standalone, table, rows, "1")
    assert table.inspect.files().num_rows == 4
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])

"""Ray Data: tasks stage files and the driver makes one commit; runs at once lose no row, repeated ones count once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import crdt_mor as mor
from crdt_mor.payloads import Counter
from tests.environments import ROOT

ray = pytest.importorskip("ray", reason="not installed: ray; `python -m tests.readers.installed` installs it elsewhere")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray warns of its own settings


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False,
        runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}},
    )  # fmt: skip
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


@pytest.fixture
def table(tmp_path: Path) -> mor.Table:
    schema = {"id": pl.Int64, "n": pl.Int64}
    return mor.Table.create(tmp_path / "stock", schema, key="id", merge={"n": Counter()}, buckets=4)


def numbers(count: int, by: int = 1, first: int = 0) -> Any:
    def counted(batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"] + first, "n": batch["id"] * 0 + by}

    return ray.data.range(count, override_num_blocks=4).map_batches(counted)


def test_a_dataset_is_one_commit_and_comes_back(table: mor.Table) -> None:
    from crdt_mor.readers.ray import read_table, write_table

    commit = write_table(numbers(100), table)
    assert (commit.rows, commit.repeated, len(table.history())) == (100, False, 1)
    read = read_table(table.uri, filter="id < 10", columns=["id", "n"])
    table.upsert(pl.DataFrame({"id": [1], "n": [1]}))
    assert sorted((row["id"], row["n"]) for row in read.take_all()) == [(i, 1) for i in range(10)]
    assert read_table(table).select_columns(["n"]).sum("n") == 101
    assert (read_table(table).count(), read_table(table, filter="id < 0").count()) == (100, 0)
    assert write_table(read_table(table, filter="id < 90"), table, operation="delete").deletes == 90
    assert table.count() == 10


def test_two_runs_at_once_lose_no_row(table: mor.Table) -> None:
    from crdt_mor.readers.ray import write_table

    with ThreadPoolExecutor(2) as both:
        runs = [both.submit(write_table, numbers(60, first=first), mor.Table(table.uri)) for first in (0, 30)]
        assert [run.result().rows for run in runs] == [60, 60]
    assert dict(table.to_polars().rows()) == {i: 2 if 30 <= i < 60 else 1 for i in range(90)}


def test_a_repeated_run_and_two_runs_with_one_token_count_once(table: mor.Table) -> None:
    from crdt_mor.readers.ray import write_table

    with ThreadPoolExecutor(2) as both:
        runs = [both.submit(write_table, numbers(50), mor.Table(table.uri), token=("day", 1)) for _ in range(2)]
        commits = [run.result() for run in runs]
    again = write_table(numbers(50), table, token=("day", 1))
    assert again.repeated
    assert {commit.completed_at for commit in (*commits, again)} == {again.completed_at}
    assert table.to_polars()["n"].to_list() == [1] * 50


def test_a_task_that_dies_behind_its_staging_counts_once(table: mor.Table, tmp_path: Path) -> None:
    from crdt_mor.readers.ray import write_table

    def dying(batch: dict[str, Any]) -> dict[str, Any]:
        import os

        mark = tmp_path / f"{batch['id'][0]}"
        if not mark.exists():
            mark.touch()
            os._exit(1)
        return {"id": batch["id"], "n": batch["id"] * 0 + 1}

    write_table(ray.data.range(40, override_num_blocks=4).map_batches(dying), table)
    assert dict(table.to_polars().rows()) == dict.fromkeys(range(40), 1)


def test_a_failed_run_leaves_nothing(table: mor.Table) -> None:
    from crdt_mor.readers.ray import write_table

    def failing(batch: dict[str, Any]) -> dict[str, Any]:
        if (batch["id"] == 30).any():
            raise ValueError("no thirty")
        return {"id": batch["id"], "n": batch["id"]}

    with pytest.raises(Exception, match="no thirty"):
        write_table(ray.data.range(40, override_num_blocks=4).map_batches(failing), table)
    assert table.count() == 0
    with pytest.raises(mor.InvalidInputError, match="dataset is empty"):
        write_table(ray.data.from_items([]), table)

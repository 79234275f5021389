"""Dagster's IO manager: runs at once lose no row, a retried step counts once, and a new run writes anew."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor.payloads import Counter

if TYPE_CHECKING:
    import dagster
else:
    REASON = "not installed: dagster; `python -m tests.readers.installed` installs it elsewhere"
    dagster = pytest.importorskip("dagster", reason=REASON)
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

RUN = """
import sys, dagster, polars as pl
from crdt_mor.readers.dagster import TablesIOManager

@dagster.asset(metadata={"key": "id"})
def stock():
    first = int(sys.argv[2])
    return pl.DataFrame({"id": range(first, first + 60), "n": [1] * 60})

done = dagster.materialize([stock], resources={"io_manager": TablesIOManager(folder=sys.argv[1])})
sys.exit(not done.success)
"""


@pytest.fixture
def instance() -> Iterator[Any]:
    with dagster.instance_for_test() as made:
        yield made


def run(place: Path, *assets: Any, **given: Any) -> Any:
    from crdt_mor.readers.dagster import TablesIOManager

    return dagster.materialize([*assets], resources={"io_manager": TablesIOManager(folder=str(place))}, **given)


def counting(place: Path) -> mor.Table:
    return mor.Table.create(place / "stock", {"id": pl.Int64, "n": pl.Int64}, key="id", merge={"n": Counter()})


def stock_of(rows: pl.DataFrame, **metadata: Any) -> Any:
    @dagster.asset(name="stock", metadata={"key": "id"} | metadata)
    def stock() -> Any:
        return rows

    return stock


def test_inputs_have_the_type_of_their_annotation(tmp_path: Path, instance: Any) -> None:
    seen: dict[str, Any] = {}

    @dagster.asset
    def read(stock: pl.DataFrame) -> None:
        seen["polars"] = stock

    @dagster.asset(ins={"stock": dagster.AssetIn()})
    def lazily(stock: pl.LazyFrame) -> None:
        seen["lazy"] = stock

    @dagster.asset
    def arrow(stock: pa.Table) -> None:
        seen["arrow"] = stock

    @dagster.asset
    def pandas(stock: pd.DataFrame) -> None:
        seen["pandas"] = stock

    @dagster.asset
    def scan(stock) -> None:  # type: ignore[no-untyped-def]
        seen["scan"] = stock

    rows = pl.DataFrame({"id": [1, 2], "n": [3, 4]})
    assert run(tmp_path, stock_of(rows), read, lazily, arrow, pandas, scan, instance=instance).success
    assert {name: type(value) for name, value in seen.items()} == {
        "polars": pl.DataFrame, "lazy": pl.LazyFrame, "arrow": pa.Table, "pandas": pd.DataFrame, "scan": mor.Scan,
    }  # fmt: skip
    assert seen["lazy"].collect().sort("id").equals(rows)


def test_two_runs_at_once_lose_no_row(tmp_path: Path) -> None:
    table = counting(tmp_path)
    runs = [subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path), first], cwd=tmp_path) for first in ("0", "30")]
    assert [done.wait() for done in runs] == [0, 0]
    assert dict(table.to_polars().rows()) == {i: 2 if 30 <= i < 60 else 1 for i in range(90)}


def test_a_retried_step_counts_once_and_a_new_run_again(
    tmp_path: Path, instance: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, upsert, done = counting(tmp_path), mor.Table.upsert, list[bool]()

    def failing(self: mor.Table, rows: Any, **given: Any) -> mor.Commit:
        commit = upsert(self, rows, **given)
        done.append(commit.repeated)
        if len(done) in (1, 2):
            raise OSError("the worker died here")
        return commit

    monkeypatch.setattr(mor.Table, "upsert", failing)
    stock = stock_of(pl.DataFrame({"id": [1], "n": [5]}))
    first = run(tmp_path, stock, instance=instance, raise_on_error=False)
    assert not first.success
    resumed = {
        "dagster/parent_run_id": first.run_id, "dagster/root_run_id": first.run_id, "dagster/is_resume_retry": "true",
    }  # fmt: skip
    assert not run(tmp_path, stock, instance=instance, raise_on_error=False, tags=resumed).success
    assert (done, table.to_polars().rows()) == ([False, True], [(1, 5)])
    assert run(tmp_path, stock, instance=instance).success
    assert (done[-1], table.to_polars().rows()) == (False, [(1, 10)])


def test_partitions_are_read_by_their_column(tmp_path: Path, instance: Any) -> None:
    days, seen = dagster.DailyPartitionsDefinition("2026-01-01"), dict[str, list[int]]()

    @dagster.asset(partitions_def=days, metadata={"key": ["id", "day"], "partition_column": "day"})
    def events(context) -> pl.DataFrame:  # type: ignore[no-untyped-def]
        day = pl.Series("day", [context.partition_key]).str.to_date()
        return pl.DataFrame({"id": [day[0].day], "day": day})

    @dagster.asset(partitions_def=days)
    def read(context, events: pl.DataFrame) -> None:  # type: ignore[no-untyped-def]
        seen[context.partition_key] = events["id"].to_list()

    for day in ("2026-01-01", "2026-01-02"):
        assert run(tmp_path, events, read, partition_key=day, instance=instance).success
    assert seen == {"2026-01-01": [1], "2026-01-02": [2]}

    @dagster.asset(name="events", partitions_def=days, metadata={"operation": "overwrite"})
    def replaced() -> pl.DataFrame:
        return pl.DataFrame({"id": [3], "day": [date(2026, 1, 3)]})

    with pytest.raises(mor.InvalidInputError, match="would replace all partitions"):
        run(tmp_path, replaced, partition_key="2026-01-03", instance=instance)


def test_a_new_table_without_a_key_and_an_unknown_operation_are_refused(tmp_path: Path, instance: Any) -> None:
    rows = pl.DataFrame({"id": [1]})
    with pytest.raises(mor.InvalidInputError, match="needs a key"):
        run(tmp_path, stock_of(rows, key=""), instance=instance)
    with pytest.raises(mor.InvalidInputError, match="operation"):
        run(tmp_path, stock_of(rows, operation="delete"), instance=instance)

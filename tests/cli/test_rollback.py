"""`crdt-mor rollback`: says what it is about to give up, asks, and says what it did."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import crdt_mor as mor
from crdt_mor.cli.main import app


@pytest.fixture
def table(fast_path: Path) -> mor.Table:
    return mor.Table.create(fast_path / "t", pa.schema([("id", pa.string())]), key="id", buckets=1)


def run(*args: str, typed: str = "") -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["rollback", *args], input=typed)
    return result.exit_code, result.stdout, result.stderr


def test_a_pending_write_is_named_asked_about_and_given_up(table: mor.Table) -> None:
    write = table.transaction(commit_info={"message": "all of it"})
    write.__enter__()
    (instant,) = table.inspect.pending()["requested_at"].to_pylist()
    code, _, said = run(table.uri, instant, typed="n\n")
    assert code == 1
    assert f"({instant})" in said
    assert "all of it" in said
    assert table.inspect.pending().num_rows == 1
    code, _, said = run(table.uri, instant, typed="y\n")
    assert code == 0
    assert f"rolled back the write {instant}" in said
    assert table.inspect.pending().num_rows == 0
    with pytest.raises(mor.errors.WriterExpiredError):
        write.__exit__(None, None, None)


def test_an_open_plan_is_cancelled_without_a_question(table: mor.Table) -> None:
    table.upsert(pa.table({"id": ["a"]}))
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    assert f"an open plan: compaction {plan.barrier}" in run(table.uri, plan.barrier, typed="n\n")[2]
    code, told, _ = run(table.uri, plan.barrier, "--yes", "--output", "json")
    assert code == 0
    found = json.loads(told)
    assert (found["instant"], found["kind"], found["repeated"]) == (plan.barrier, "compaction", False)
    assert table.maintenance.plans.open() == []


def test_where_there_is_nothing_to_give_up_nothing_is_asked(table: mor.Table) -> None:
    commit = table.upsert(pa.table({"id": ["a"]}))
    code, _, said = run(table.uri, commit.requested_at)
    assert code == 1
    assert "this instant is committed" in said
    assert run(table.uri, "20200101000000000")[0] == 1

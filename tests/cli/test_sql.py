"""`crdt-mor sql`: queries on a snapshot, which read no more than they need."""

from __future__ import annotations

import io
import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pytest
from typer.testing import CliRunner, Result

import crdt_mor as mor
from crdt_mor.cli.main import app

ROWS = pl.DataFrame({"id": [1, 2, 3], "day": ["mon", "tue", "tue"], "views": [5, 10, 20]})


def sql(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["sql", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def rows(*arguments: object) -> list[dict[str, object]]:
    return [json.loads(line) for line in sql(*arguments, "--output", "json").stdout.splitlines()]


@pytest.fixture
def table(fast_path: Path) -> mor.Table:
    made = mor.Table.create(fast_path / "my-events", ROWS, key=["id", "day"], partition_by="day", buckets=1)
    made.upsert(ROWS)
    made.maintenance.compact()
    return made


def test_a_query_is_answered_in_each_format(table: mor.Table) -> None:
    query = "select day, sum(views) as views from my_events group by day order by day"
    want = [{"day": "mon", "views": 5}, {"day": "tue", "views": 30}]
    assert rows(table.uri, query) == want
    lines = sql(table.uri, query).stdout.splitlines()
    assert [line.split() for line in (lines[0], *lines[2:])] == [["day", "views"], ["mon", "5"], ["tue", "30"]]
    assert sql(table.uri, query, "--format", "csv").stdout.splitlines()[1:] == ['"mon",5', '"tue",30']
    arrow = CliRunner().invoke(app, ["sql", table.uri, query, "--format", "arrow"]).stdout_bytes
    assert pa.ipc.open_stream(io.BytesIO(arrow)).read_all().to_pylist() == want
    inner = f"/* by day */ with w as ({query}) -- all\nselect views from w where day = 'mon'"
    assert rows(table.uri, inner) == [{"views": 5}]
    assert rows(table.uri, "select count(*) as n from my_events") == [{"n": 3}]


def test_a_query_reads_a_moment_and_a_limit(table: mor.Table) -> None:
    version = table.version
    table.upsert(ROWS.with_columns(views=pl.lit(0, pl.Int64)))
    query = "select max(views) as top from my_events"
    assert rows(table.uri, query) == [{"top": 0}]
    assert rows(table.uri, query, "--as-of", version) == [{"top": 20}]
    assert len(rows(table.uri, "select * from my_events", "--limit", 2)) == 2
    shown = sql(table.uri, "select * from my_events", "--limit", 1)
    assert "the first 1 rows" in shown.stderr


def test_partitions_that_a_query_leaves_out_are_not_read(table: mor.Table) -> None:
    (base,) = Path(table.uri, "day=tue").glob("*.parquet")
    base.write_bytes(b"no Parquet")
    assert rows(table.uri, "select sum(views) as n from my_events where day = 'mon'") == [{"n": 5}]
    assert sql(table.uri, "select * from my_events where day = 'tue'", code=1).stderr.startswith("error: ")


@pytest.mark.parametrize("query", ["delete from my_events", "drop table my_events", "truncate my_events", ""])
def test_a_statement_that_writes_is_refused(table: mor.Table, query: str) -> None:
    assert "sql only reads" in sql(table.uri, query, code=1).stderr
    assert table.count() == 3


@pytest.mark.parametrize("query", ["select * from events", "select nothing from my_events", "select * frm my_events"])
def test_a_mistake_names_the_table(table: mor.Table, query: str) -> None:
    said = sql(table.uri, query, code=1).stderr
    assert said.startswith("error: polars cannot run this query: ")
    assert "The name of the table is my_events" in said
    assert said.count("\n") == 1

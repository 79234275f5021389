"""`overwrite`, `delete-partitions`, `truncate`: what they say, and that they ask."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import crdt_mor as mor
from crdt_mor.cli.main import app

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("views", pa.int64())])


def run(*arguments: object, code: int = 0, stdin: bytes | None = None) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == code, result.output
    return result


def said(result: Result) -> str:
    """What was told, without the frame around it."""
    return " ".join(result.stderr.replace("│", " ").split())


@pytest.fixture
def table(fast_path: Path) -> Path:
    """Two partitions, of two rows each."""
    path = fast_path / "events"
    table = mor.Table.create(path, SCHEMA, key="id", partition_by="day", buckets=1)
    table.append(pl.DataFrame({"id": ["a", "b"] * 2, "day": ["mon", "mon", "tue", "tue"], "views": [1] * 4}))
    return path


@pytest.fixture
def files(fast_path: Path) -> list[Path]:
    """A CSV and JSON lines of new rows."""
    (fast_path / "new.csv").write_text("id,day,views\nz,mon,9\n")
    (fast_path / "more.jsonl").write_text('{"id": "y", "day": "wed", "views": 8}\n')
    return [fast_path / "new.csv", fast_path / "more.jsonl"]


def rows(table: Path) -> list[tuple[object, ...]]:
    return sorted(mor.Table(table).scan().to_polars().rows())


def test_files_replace_rows(table: Path, files: list[Path]) -> None:
    done = run("overwrite", table, *files, "--partition", "dynamic", "--message", "again")
    assert rows(table) == [("a", "tue", 1), ("b", "tue", 1), ("y", "wed", 8), ("z", "mon", 9)]
    text = "2 rows written, in place of all rows of the partitions day=mon, day=wed, 2 files in one commit"
    assert text in said(done)
    run("overwrite", table, files[0], "--partition", "mon", "--partition", "day=wed")
    assert rows(table) == [("a", "tue", 1), ("b", "tue", 1), ("z", "mon", 9)]
    assert "in place of all rows of the table" in said(run("overwrite", table, files[1]))
    assert rows(table) == [("y", "wed", 8)]


def test_it_is_told_to_programs(table: Path, files: list[Path]) -> None:
    done = json.loads(run("overwrite", table, *files, "--token", "job:1", "--output", "json").stdout)
    assert (done["rows"], done["covered"], done["repeated"]) == (2, ["*"], False)
    again = json.loads(run("overwrite", table, *files, "--token", "job:1", "--output", "json").stdout)
    assert (again["version"], again["repeated"]) == (done["version"], True)


def test_what_takes_rows_away_asks_first(table: Path) -> None:
    refused = run("truncate", table, code=1, stdin=b"n\n")
    assert "all 4 rows will be deleted" in said(refused)
    assert "nothing was deleted" in said(refused)
    assert len(rows(table)) == 4
    assert "all rows of 1 partitions" in said(run("delete-partitions", table, "mon", stdin=b"y\n"))
    assert rows(table) == [("a", "tue", 1), ("b", "tue", 1)]
    run("delete-partitions", table, "day=tue", "wed", "--yes")
    assert rows(table) == []
    run("truncate", table, "--yes")


def test_wrong_uses_are_named(table: Path, files: list[Path]) -> None:
    assert "add --yes" in said(run("truncate", table, "--output", "json", code=2))
    both = ["--partition", "dynamic", "--partition", "mon"]
    assert "must be alone" in said(run("overwrite", table, *files, *both, code=2))
    assert "not_named" in said(run("overwrite", table, *files, "--partition", "tue", code=1))
    assert len(rows(table)) == 4

"""`--log-level`, `--log-format` and `--json`, which every command takes."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

import crdt_mor as mor
from crdt_mor.cli.main import app

ROWS = pl.DataFrame({"id": [1, 2]})


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def table(fast_path: Path) -> mor.Table:
    ROWS.write_csv(fast_path / "rows.csv")
    return mor.Table.create(fast_path / "t", ROWS, key="id", buckets=1)


def test_logs_are_silent_text_or_lines_of_json(table: mor.Table, fast_path: Path) -> None:
    write = ("upsert", table.uri, fast_path / "rows.csv")
    assert "crdt_mor.write" not in run(*write).stderr
    assert " INFO crdt_mor.write: " in run(*write, "--log-level", "info").stderr
    assert "crdt_mor.write" not in run(*write, "--log-level", "warning").stderr
    said = run(*write, "--log-format", "json", "--json")
    (line,) = [json.loads(line) for line in said.stderr.splitlines()]
    assert datetime.fromisoformat(line.pop("time")).tzinfo is not None
    assert (line["level"], line["logger"], line["event"], line["rows"]) == ("info", "crdt_mor.write", "commit", 2)
    assert json.loads(said.stdout)["version"] == line["version"]
    logger = logging.getLogger("crdt_mor")
    assert [type(handler) for handler in logger.handlers] == [logging.NullHandler], "a later command is silent again"
    assert logger.level == logging.NOTSET


def test_json_is_output_json_in_every_command(table: mor.Table) -> None:
    table.upsert(ROWS)
    for command in (("show",), ("cat",), ("history",), ("maintain",), ("sql", "select * from t")):
        name, *rest = command
        assert run(name, table.uri, *rest, "--json").stdout == run(name, table.uri, *rest, "--output", "json").stdout
    error = json.loads(run("show", "nothing", "--json", code=1).stderr)["error"]
    assert error["type"] == "TableNotFoundError"
    error = json.loads(run("cat", table.uri, "--limit", "many", "--json", code=2).stderr)["error"]
    assert error["type"] == "UsageError"

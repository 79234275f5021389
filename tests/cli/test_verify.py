"""`crdt-mor verify` says what is wrong, and ends with 3 then."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

import crdt_mor as mor
from crdt_mor.cli.main import app


def run(*arguments: object, code: int) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def people(tmp_path: Path) -> Path:
    columns = {"id": pl.Int64, "day": pl.String}
    table = mor.Table.create(tmp_path / "people", columns, key="id", partition_by="day", buckets=1)
    table.upsert(pl.DataFrame({"id": [1, 1, 2], "day": ["mon", "tue", "mon"]}))
    return tmp_path / "people"


def test_a_sound_table(people: Path) -> None:
    said = run("verify", people, code=0)
    assert "3" in said.stdout.split()
    assert "keys in several partitions: 1" in said.stderr
    assert "every row that the table shows was read" in said.stderr
    found = json.loads(run("verify", people, "--output", "json", code=0).stdout)
    assert (found["sound"], found["rows"], found["some_keys"]) == (True, 3, ["1"])


def test_a_damaged_table(people: Path) -> None:
    (log,) = (people / "day=tue").glob(".*.log.*")
    log.unlink()
    said = run("verify", people, code=3).stderr
    assert f"read: day=tue/{log.name[1:39]}" in said
    assert "every row" not in said
    found = json.loads(run("verify", people, "--output", "json", code=3).stdout)
    assert (found["sound"], found["rows"], found["findings"][0]["check"]) == (False, 2, "read")

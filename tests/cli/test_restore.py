"""`crdt-mor savepoint`, `savepoints`, `drop-savepoint`, `restore`: what they print, and what is asked."""

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
    table = mor.Table.create(fast_path / "t", pa.schema([("id", pa.string())]), key="id", buckets=1)
    table.upsert(pa.table({"id": ["a"]}))
    return table


def run(*args: str, typed: str = "") -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [*args], input=typed)
    return result.exit_code, result.stdout, result.stderr


def test_savepoints_are_made_listed_read_and_dropped(table: mor.Table) -> None:
    code, _, said = run("savepoint", table.uri, "one", "--comment", "of May")
    assert (code, said) == (0, f"one: all commits by {table.maintenance.savepoints()[0].at}\n")
    table.upsert(pa.table({"id": ["b"]}))
    _, told, _ = run("savepoints", table.uri)
    assert told.splitlines()[0].split() == ["name", "as", "of", "created", "by", "comment"]
    assert "of May" in told
    assert json.loads(run("savepoints", table.uri, "--output", "json")[1])[0]["name"] == "one"
    assert run("count", table.uri, "--as-of", "one")[1].strip() == "1"
    assert run("savepoint", table.uri, "one")[0] == 1
    assert run("drop-savepoint", table.uri, "one")[0] == 0
    assert table.maintenance.savepoints() == []
    assert run("count", table.uri, "--as-of", "one")[0] == 1


def test_a_restore_says_what_it_drops_and_asks(table: mor.Table) -> None:
    table.maintenance.savepoint("one")
    table.upsert(pa.table({"id": ["b"]}), commit_info={"message": "it went wrong"})
    code, _, said = run("restore", table.uri, "--to", "one", "--dry-run")
    assert code == 0
    assert "would be restored to one" in said
    assert "1 commit dropped" in said
    assert f"in version {table.version}: it went wrong" in said
    code, _, said = run("restore", table.uri, "--to", "one", typed="n\n")
    assert code == 1
    assert "it went wrong" in said
    assert table.count() == 2
    code, _, said = run("restore", table.uri, "--to", "one", typed="y\n")
    assert code == 0
    assert "was restored" in said
    assert table.count() == 1


def test_with_nothing_to_drop_nobody_is_asked(table: mor.Table) -> None:
    table.maintenance.savepoint("one")
    version = table.version
    code, _, said = run("restore", table.uri, "--to", "one")
    assert (code, "there is nothing to drop" in said, "Restore?" in said) == (0, True, False)
    assert table.version == version


def test_programs_say_yes(table: mor.Table) -> None:
    version = str(table.version)
    table.upsert(pa.table({"id": ["b"]}))
    assert run("restore", table.uri, "--to", version, "--output", "json")[0] == 2
    assert json.loads(run("restore", table.uri, "--to", version, "--dry-run", "--output", "json")[1])["commits"] == 1
    code, told, _ = run("restore", table.uri, "--to", version, "--yes", "--output", "json")
    assert (code, json.loads(told)["commits"], table.count()) == (0, 1, 1)
    assert run("restore", table.uri, "--to", "no-such-name", "--yes")[0] == 1

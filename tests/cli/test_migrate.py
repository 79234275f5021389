"""`migrate`, `cancel-migration`: what they say, and what other commands say of the old table."""

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


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def said(result: Result) -> str:
    return " ".join(result.stderr.replace("│", " ").split())


@pytest.fixture
def table(fast_path: Path) -> Path:
    path = fast_path / "events"
    table = mor.Table.create(path, SCHEMA, key="id", buckets=1)
    table.append(pl.DataFrame({"id": ["a", "b"], "day": ["mon", "tue"], "views": [1, 2]}))
    return path


@pytest.fixture
def new(fast_path: Path) -> Path:
    return fast_path / "new"


def rows(table: Path) -> list[tuple[object, ...]]:
    return sorted(mor.Table(table).scan().to_polars().rows())


@pytest.mark.filterwarnings("always::crdt_mor.errors.TableMovedWarning")
def test_a_table_moves_and_whoever_comes_is_told(table: Path, new: Path, fast_path: Path) -> None:
    settings = ["--buckets", 3, "--partition-by", "day", "--merge", "views=counter", "--cluster-by", "views"]
    done = said(run("migrate", table, new, *settings))
    assert "copying" in done
    assert "the table is closed" in done
    assert f"moved to {new}: 2 rows, in 1 commits; writers were turned away for" in done
    moved = mor.Table(new)
    assert (moved.config.buckets, moved.config.partition_by) == (3, ("day",))
    assert moved.properties == {"crdt_mor.cluster_by": "views"}
    (fast_path / "more.csv").write_text("id,day,views\na,mon,10\n")
    refused = run("upsert", table, fast_path / "more.csv", code=1)
    assert "open the table at its new address and write there, with the same token" in said(refused)
    assert f"moved_to={new}" in said(refused)
    warned, told = map(json.loads, run("maintain", table, "--output", "json", code=1).stderr.splitlines())
    assert (warned["warning"]["type"], warned["warning"]["facts"]["moved_to"]) == ("TableMovedWarning", str(new))
    assert (told["error"]["type"], told["error"]["facts"]["moved_to"]) == ("TableMovedError", str(new))
    assert "2" in run("count", table).stdout
    for command in ("show", "history", "timeline", "doctor", "verify", "count", "cat", "files", "schema", "changes"):
        assert "this table has moved and shows only rows from before the move" in said(run(command, table))
    assert f"moved to {new}; closed since" in run("show", table).stdout
    status = json.loads(run("show", table, "--output", "json").stdout)["migration"]
    assert (status["role"], status["phase"], status["uri"]) == ("source", "closed", str(new))
    assert json.loads(run("show", new, "--output", "json").stdout)["migration"] is None
    run("upsert", new, fast_path / "more.csv")
    assert rows(new) == [("a", "mon", 11), ("b", "tue", 2)]
    assert "takes writes" in said(run("cancel-migration", table, code=1))


def test_programs_get_documents(table: Path, new: Path) -> None:
    result = run("migrate", table, new, "--output", "json", "--pending", "roll-back", "--merge", "latest")
    done = json.loads(result.stdout)
    assert (done["uri"], done["rows"], done["copied_rows"], done["commits"]) == (str(new), 2, 2, 1)
    assert 0 <= done["turned_away"] < 60
    told = [json.loads(line)["progress"] for line in result.stderr.splitlines()]
    assert [one["phase"] for one in told] == ["copy", "settle", "opened"]


def test_a_migration_is_given_up(table: Path, new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no migration is running" in said(run("cancel-migration", table))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("crdt_mor.services.migration.Migration._close", killed)
        run("migrate", table, new, code=130)
    assert "another buckets" in said(run("migrate", table, new, "--buckets", 9, code=1))
    assert json.loads(run("cancel-migration", table, "--output", "json").stdout) == {"cancelled": True}
    assert "cancelled" in said(run("truncate", new, "--yes", code=1))
    run("truncate", table, "--yes")

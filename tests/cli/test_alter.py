"""`crdt-mor alter`: columns of any name, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from crdt_mor.cli.main import app

ROWS = pl.DataFrame({"Nr.": [1, 2], "Total Sales": [1.5, 2.5], "note": ["a", "b"]})


def crdt_mor(*arguments: object, code: int = 0) -> Result:
    """Run a command; its exit code is part of the claim."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def table(tmp_path: Path) -> Path:
    ROWS.write_parquet(tmp_path / "rows.parquet")
    ROWS.write_csv(tmp_path / "rows.csv")
    crdt_mor("create", tmp_path / "table", "--like", tmp_path / "rows.parquet", "--key", "Nr.")
    crdt_mor("upsert", tmp_path / "table", tmp_path / "rows.csv")
    return tmp_path / "table"


def shown(table: Path, *options: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in crdt_mor("cat", table, "--output", "json", *options).stdout.splitlines()]
    return sorted(found, key=str)


def test_columns_are_renamed_dropped_and_commented(table: Path) -> None:
    said = crdt_mor(
        "alter", table, "--rename", "Total Sales=Größe", "--drop", "note", "--comment", "Nr.=of the order",
        "--message", "why",
    ).stderr  # fmt: skip
    assert "the columns are Nr., Größe: version" in said
    assert shown(table, "--where", '"Größe" > 2') == [{"Nr.": 2, "Größe": 2.5}]
    crdt_mor("update", table, "--set", 'Größe="Größe" * 2', "--where", '"Nr." = 1')
    crdt_mor("delete", table, "--keys", "2")
    assert shown(table) == [{"Nr.": 1, "Größe": 3.0}]
    assert "of the order" in crdt_mor("schema", table).stdout
    assert json.loads(crdt_mor("schema", table, "--output", "json").stdout)["comments"] == {"Nr.": "of the order"}
    assert "why" in crdt_mor("history", table, "--output", "json").stdout
    document = json.loads(crdt_mor("alter", table, "--comment", "Nr.=", "--output", "json").stdout)
    assert (document["columns"], document["comments"]) == ({"Nr.": "int64", "Größe": "double"}, {})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "say what to alter"),
        (["--comment", "Nr."], "what is said of it"),
        (["--rename", "Nr."], "its new one"),
    ],
)
def test_half_of_an_alteration_is_a_wrong_usage(table: Path, options: list[str], said: str) -> None:
    assert said in " ".join(crdt_mor("alter", table, *options, code=2).stderr.replace("│", " ").split())


def test_the_key_is_not_dropped(table: Path) -> None:
    assert "the key needs these columns" in crdt_mor("alter", table, "--drop", "Nr.", code=1).stderr

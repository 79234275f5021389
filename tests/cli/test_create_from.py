"""`create-from`: what it says, in text, in JSON and beside its bar, and what it refuses."""

from __future__ import annotations

import io
import json
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import crdt_mor as mor
from crdt_mor.cli import render
from crdt_mor.cli.main import app

ROWS = pl.DataFrame({"id": ["a", "b", "c"], "day": ["mon", "tue", "tue"], "views": [1, 2, 3]})


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def files(fast_path: Path) -> Path:
    """A folder with two files of Parquet."""
    for name, part in (("a", ROWS.head(1)), ("b", ROWS.slice(1))):
        part.write_parquet(fast_path / "landing" / f"{name}.parquet", mkdir=True)
    return fast_path / "landing"


def test_a_table_is_made_of_a_folder_a_pattern_or_several_files(fast_path: Path, files: Path) -> None:
    sources = [[files], [files / "*.parquet"], [files / "a.parquet", files / "b.parquet"]]
    for number, source in enumerate(sources):
        uri = fast_path / f"t{number}"
        options = ["--key", "id", "--partition-by", "day", "--buckets", 1, "--message", "all"]
        said = run("create-from", uri, *source, *options)
        assert said.stdout == ""
        assert "3 rows in 2 files" in said.stderr
        table = mor.Table(uri)
        assert sorted(table.to_polars().rows()) == sorted(ROWS.rows())
        assert table.history()["message"].to_pylist() == ["all"]


def test_programs_are_told_in_json(fast_path: Path, files: Path) -> None:
    done = run("create-from", fast_path / "t", files, "--key", "id", "--merge", "views=counter", "--output", "json")
    told = json.loads(done.stdout)
    assert (told["rows"], told["merge"], done.stderr) == (3, "latest (views: counter/1)", "")
    assert told["files"] == mor.Table(fast_path / "t").inspect.files().num_rows
    again = run("create-from", fast_path / "t", files, "--key", "id", "--output", "json", code=1)
    assert json.loads(again.stderr)["error"]["type"] == "TableExistsError"


def test_texts_have_the_types_that_are_given(fast_path: Path) -> None:
    (fast_path / "rows.csv").write_text("id,views\n007,1\n")
    (fast_path / "types.json").write_text('{"id": "string", "views": "int32"}')
    run("create-from", fast_path / "t", fast_path / "rows.csv", "--key", "id", "--schema", fast_path / "types.json")
    assert mor.Table(fast_path / "t").to_polars().rows() == [("007", 1)]


def test_a_terminal_shows_a_bar(fast_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(render, "stderr", lambda: Console(file=screen, force_terminal=True, width=100))
    run("create-from", fast_path / "t", files, "--key", "id")
    assert "of 3 rows" in screen.getvalue()
    assert "created" in screen.getvalue()


def test_what_is_wrong_with_the_rows_is_one_line(fast_path: Path) -> None:
    ROWS.vstack(ROWS.head(1)).write_parquet(fast_path / "twice.parquet")
    done = run("create-from", fast_path / "t", fast_path / "twice.parquet", "--key", "id", code=1)
    assert done.stderr.startswith("error: a key occurs twice")
    assert done.stderr.count("\n") == 1
    with pytest.raises(mor.errors.TableNotFoundError):
        mor.Table(fast_path / "t")

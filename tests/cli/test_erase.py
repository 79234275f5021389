"""`crdt-mor erase` asks before, and says what is gone."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

import crdt_mor as mor
from crdt_mor.cli.main import app


def run(*arguments: object, code: int = 0, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def people(tmp_path: Path) -> Path:
    table = mor.Table.create(
        tmp_path / "people", {"id": pl.Int64, "day": pl.String, "name": pl.String}, key="id", partition_by="day"
    )
    table.upsert(pl.DataFrame({"id": [1, 1, 2], "day": ["mon", "tue", "mon"], "name": ["ada", "ada", "bob"]}))
    return tmp_path / "people"


def names(people: Path) -> list[str]:
    return sorted(mor.Table(people).to_polars()["name"].to_list())


def test_it_asks_before(people: Path) -> None:
    asked = run("erase", people, "--keys", 1, stdin="n\n", code=1).stderr
    assert "1 keys will be erased" in asked
    assert "cannot be undone" in asked
    assert names(people) == ["ada", "ada", "bob"]
    assert "erased 2 rows" in run("erase", people, "--keys", 1, stdin="y\n").stderr
    assert names(people) == ["bob"]


def test_a_filter_says_how_many_rows_it_means(people: Path) -> None:
    assert "2 rows, with" in run("erase", people, "--where", "name = 'ada'", stdin="y\n").stderr
    assert names(people) == ["bob"]


def test_columns_of_rows_that_stay(people: Path) -> None:
    asked = run("erase", people, "--keys", 1, "--columns", "name", stdin="n\n", code=1).stderr
    assert "name of 1 keys will be erased" in asked
    said = json.loads(run("erase", people, "--keys", 1, "--columns", "name", "--yes", "--output", "json").stdout)
    assert (said["rows"], said["columns"]) == (2, ["name"])
    assert mor.Table(people).to_polars().sort("id", "day").rows() == [
        (1, "mon", None),
        (1, "tue", None),
        (2, "mon", "bob"),
    ]
    assert "it identifies rows" in run("erase", people, "--keys", 1, "--columns", "id", "--yes", code=1).stderr


def test_keys_come_from_a_file_and_what_is_gone_goes_out_as_json(people: Path, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("1\n2\n")
    said = run("erase", people, "--keys", f"@{tmp_path / 'keys'}", "--yes", "--output", "json").stdout
    assert json.loads(said)["rows"] == 3
    assert names(people) == []


@pytest.mark.parametrize("columns", [(), ("--columns", "name")])
@pytest.mark.parametrize("which", [("--keys", 1), ("--where", "name = 'ada'"), ("--keys", 3)])
def test_a_dry_run_says_what_would_go_and_changes_nothing(
    people: Path, which: tuple[object, ...], columns: tuple[object, ...]
) -> None:
    mor.Table(people).upsert(pl.DataFrame({"id": [1, 2], "day": ["tue", "wed"], "name": ["ada", "eve"]}))
    mor.Table(people).delete(where="id = 2")

    def objects() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in people.rglob("*") if path.is_file()}

    before = objects()
    command = ("erase", people, *which, *columns)
    would = json.loads(run(*command, "--dry-run", "--json").stdout)
    told = run(*command, "--dry-run").stderr
    assert objects() == before
    done = json.loads(run(*command, "--yes", "--json").stdout)
    assert [would[name] for name in ("rows", "groups", "columns")] == [
        done[name] for name in ("rows", "groups", "columns")
    ]
    assert (would["files"] > 0) == bool(done["files"])
    assert (would["versions"], would["dry_run"], done["dry_run"]) == ([], True, False)
    what = "would erase " + "name of " * bool(columns) + "2 rows: rewrite" if would["rows"] else "nothing to erase"
    assert what in told


@pytest.mark.parametrize(
    "wrong", [[], ["--keys", 1, "--where", "id = 1"], ["--keys", 1, "--wait", "soon"], ["--keys", "-"],
              ["--keys", 1, "--output", "json"]]
)  # fmt: skip
def test_wrong_usage_is_told(people: Path, wrong: list[object]) -> None:
    run("erase", people, *wrong, code=2)
    assert names(people) == ["ada", "ada", "bob"]


def test_writes_that_are_under_way_are_named(people: Path) -> None:
    block = mor.Table(people).transaction()
    with ThreadPoolExecutor(1) as other:  # a block of this thread would be refused
        other.submit(block.__enter__).result()
        assert "erase again" in run("erase", people, "--keys", 1, "--yes", code=1).stderr
        other.submit(block.__exit__, None, None, None).result()
    assert "erased 0 rows" in run("erase", people, "--keys", 1, "--yes", "--wait", "10s").stderr

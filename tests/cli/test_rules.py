"""`crdt-mor rules`, rules where a table is made on the command line, and `crdt-mor move`."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import polars as pl
from typer.testing import CliRunner

import crdt_mor as mor
from crdt_mor.cli.main import app


def run(*args: object, code: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == code, (result.stdout, result.stderr)
    return result.stdout, " ".join(result.stderr.split())


def test_rules_are_made_printed_added_and_dropped(fast_path: Path) -> None:
    rows, bad, table = fast_path / "rows.parquet", fast_path / "bad.parquet", fast_path / "t"
    frame = pl.DataFrame({"id": [1, 2], "price": [1.0, 2.0], "day": ["a", "b"]})
    frame.write_parquet(rows)
    frame.with_columns(-pl.col("price")).write_parquet(bad)
    asked = ("--key", "id", "--not-null", "id,price", "--check", "positive=price > 0", "--default", "day=x=1")
    run("create", table, "--like", rows, *asked)
    run("upsert", table, rows)
    assert "constraint='check positive: price > 0' key={'id': 1}" in run("upsert", table, bad, code=1)[1]
    frame.select("id", "price").write_parquet(fast_path / "some.parquet")
    run("upsert", table, fast_path / "some.parquet")
    assert mor.Table(table).scan().to_polars()["day"].to_list() == ["x=1", "x=1"]

    found = {"not_null": ["id", "price"], "check": {"positive": "price > 0"}, "default": {"day": "x=1"}, "unproven": []}
    assert json.loads(run("rules", table, "--output", "json")[0]) == found
    assert json.loads(run("schema", table, "--output", "json")[0])["rules"] == found
    assert "check positive: price > 0" in json.loads(run("show", table, "--output", "json")[0])["rules"]
    assert "not null" in run("schema", table)[0]
    assert "string default x=1" in " ".join(run("schema", table)[0].split())

    assert "not added" in run("rules", table, "--check", "small=price < 2", code=1)[1]
    both = run("rules", table, "--check", "small=price < 2", "--no-validate", "--drop", "check:positive", code=2)[1]
    assert "cannot drop and add in one command" in both
    printed = run("rules", table, "--check", "small=price < 2", "--no-validate")[0]
    assert "price < 2, unproven" in printed
    assert "check positive" in printed
    assert "positive" not in run("rules", table, "--drop", "check:positive")[0]
    run("upsert", table, bad)
    assert "no such rules" in run("rules", table, "--drop", "check:positive", code=1)[1]
    for wrong in (["--drop", "positive"], ["--check", "price > 0"], ["--check", "a=x", "--check", "a=y"]):
        run("rules", table, *wrong, code=2)
    drops = ["check:small", "not_null:price", "not_null:id", "default:day"]
    assert run("rules", table, *(part for drop in drops for part in ("--drop", drop)))[1] == "no rules"


def test_a_load_is_held_to_rules(fast_path: Path) -> None:
    pl.DataFrame({"id": [1, 2], "price": [1.0, -2.0]}).write_parquet(fast_path / "rows.parquet")
    asked = ("create-from", fast_path / "t", fast_path / "rows.parquet", "--key", "id", "--check", "positive=price > 0")
    assert "key={'id': 2}" in run(*asked, code=1)[1]
    assert not (fast_path / "t" / ".hoodie" / "hoodie.properties").exists()


def test_rows_are_moved(fast_path: Path) -> None:
    table = fast_path / "t"
    made = mor.Table.create(table, {"id": pl.Int64, "day": pl.String}, key="id", partition_by="day")
    made.upsert(pl.DataFrame({"id": [1, 2, 3], "day": ["mon", "mon", "tue"]}))
    assert "moved 2 rows" in run("move", table, "--keys", "1,2", "--partition", "day=tue")[1]
    assert made.scan().to_polars()["day"].to_list() == ["tue"] * 3
    assert json.loads(run("move", table, "--keys", "3", "--partition", "day=wed", "--output", "json")[0])["moved"] == 1
    run("move", table, "--keys", "3", "--partition", "day", code=2)


def test_a_table_in_which_a_key_may_live_twice_is_warned_of_on_one_line(fast_path: Path) -> None:
    pl.DataFrame({"id": [1], "day": ["mon"]}).write_parquet(fast_path / "rows.parquet")
    made = ("create", fast_path / "t", "--like", fast_path / "rows.parquet", "--key", "id", "--partition-by", "day")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        result = CliRunner().invoke(app, [str(arg) for arg in made])
    assert result.exit_code == 0
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("warning:"))
    assert "columns=['day']" in line

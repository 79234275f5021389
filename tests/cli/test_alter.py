"""`crdt-mor alter`: columns of any name, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import crdt_mor as mor
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
        ([], "pass --rename, --drop, --comment or --widen"),
        (["--comment", "Nr."], "a column and its comment"),
        (["--rename", "Nr."], "its new name"),
        (["--widen", "Nr.=decimals"], "a column and a type"),
    ],
)
def test_half_of_an_alteration_is_a_wrong_usage(table: Path, options: list[str], said: str) -> None:
    assert said in " ".join(crdt_mor("alter", table, *options, code=2).stderr.replace("│", " ").split())


def test_widen_takes_a_type_as_the_schema_prints_it(tmp_path: Path) -> None:
    table = tmp_path / "table"
    mor.Table.create(table, pl.DataFrame({"id": [1], "n": [1]}), key="id")
    crdt_mor("alter", table, "--widen", "n=decimal(21, 2)")
    assert mor.Table(table).schema.field("n").type == pa.decimal128(21, 2)
    assert "floats round decimals" in crdt_mor("alter", table, "--widen", "n=double", code=1).stderr


def test_the_key_is_not_dropped(table: Path) -> None:
    assert "cannot drop columns used by the key" in crdt_mor("alter", table, "--drop", "Nr.", code=1).stderr


QUOTED = pl.DataFrame({"id": ["k"], "a=b": [1], "c,d": [2], 'e"f': [3], "land": ["DE"]})


def test_names_with_signs_stand_in_double_quotes_in_each_option(tmp_path: Path) -> None:
    QUOTED.write_parquet(tmp_path / "rows.parquet")
    table = tmp_path / "table"
    crdt_mor(
        "create", table, "--like", tmp_path / "rows.parquet", "--key", "id", "--not-null", '"c,d",id',
        "--default", '"a=b"=7', "--merge", '"e""f"=counter', "--merge", '"a=b"=max',
    )  # fmt: skip
    crdt_mor("upsert", table, tmp_path / "rows.parquet")
    crdt_mor("update", table, "--set", '"a=b"="a=b" + 10', "--set", '"e""f" = "e""f" * 2', "--set", '"c,d"=5')
    crdt_mor("alter", table, "--comment", '"a=b"=x=y', "--rename", 'e"f="f=g"', "--rename", '"c,d"=c, d')
    assert shown(table, "--columns", '"a=b", "f=g"') == [{"a=b": 11, "f=g": 6}]
    document = json.loads(crdt_mor("schema", table, "--output", "json").stdout)
    assert (document["comments"], document["payloads"]) == ({"a=b": "x=y"}, {"a=b": "max/1", "f=g": "counter/1"})
    crdt_mor("upsert", table, tmp_path / "rows.parquet", "--rename", '"c,d"=c, d', "--rename", 'e"f="f=g"')
    assert shown(table, "--columns", '"c, d","f=g"') == [{"c, d": 2, "f=g": 9}]


def test_a_moment_is_shown_under_its_own_names(table: Path) -> None:
    before = json.loads(crdt_mor("schema", table, "--output", "json").stdout)["columns"]
    version = json.loads(crdt_mor("show", table, "--output", "json").stdout)["version"]
    crdt_mor("alter", table, "--rename", "Total Sales=net", "--drop", "note")
    then = ("--as-of", version, "--names", "then", "--where", '"Total Sales" > 2')
    assert [[*row] for row in shown(table, *map(str, then))] == [[*before]]
    assert crdt_mor("count", table, *then).stdout == "1\n"
    assert shown(table, "--as-of", str(version), "--where", "net > 2") == [{"Nr.": 2, "net": 2.5}]
    crdt_mor("cat", table, "--names", "later", code=2)


def test_rows_move_to_null_and_to_an_empty_text_with_a_token(tmp_path: Path) -> None:
    with pytest.warns(mor.errors.PartitionNotInKeyWarning):
        table = mor.Table.create(
            tmp_path / "table", {"id": pl.String, "land": pl.String}, key="id", partition_by="land"
        )
    table.upsert(pl.DataFrame({"id": ["k"], "land": ["DE"]}))
    for said, found, moved in (("", None, 1), ('""', "", 1), ('""', "", 0)):
        done = crdt_mor(
            "move", table.uri, "--keys", "k", "--partition", f"land={said}", "--token", f"job:{len(said) + 1}",
            "--message", "for the move", "--output", "json",
        ).stdout  # fmt: skip
        assert json.loads(done) == {"version": json.loads(done)["version"], "moved": moved, "repeated": not moved}
        assert table.to_polars()["land"].to_list() == [found]
    assert "for the move" in table.history()["message"].to_pylist()


def test_columns_are_added_with_defaults_and_comments(table: Path) -> None:
    said = crdt_mor(
        "add-columns", table, "net price=decimal(12, 2)", "tags=list<item: string>", "--default", "net price=1.50",
        "--comment", "tags=of the shop", "--message", "why",
    ).stderr  # fmt: skip
    assert "the columns are Nr., Total Sales, note, net price, tags: version" in said
    assert {row["net price"] for row in shown(table)} == {"1.50"}
    assert "of the shop" in crdt_mor("schema", table).stdout
    assert "existing=['tags']" in crdt_mor("add-columns", table, "tags=string", code=1).stderr
    for options in (["x"], ["x=nope"], ["x=int64", "--default", "y"]):
        crdt_mor("add-columns", table, *options, code=2)
    assert json.loads(crdt_mor("add-columns", table, "x=int64", "--output", "json").stdout)["columns"]["x"] == "int64"

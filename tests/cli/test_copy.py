"""`crdt-mor copy` copies a table, moves the copy on, and says in words or in JSON what it did."""

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
def people(fast_path: Path) -> mor.Table:
    table = mor.Table.create(fast_path / "people", {"id": pl.Int64}, key="id", buckets=1)
    table.upsert(pl.DataFrame({"id": [1, 2]}))
    return table


def test_a_copy_and_its_update(people: mor.Table, fast_path: Path) -> None:
    copy = fast_path / "copy"
    said = run("copy", people.uri, copy, code=0)
    assert "is the table at version" in said.stderr
    assert not said.stdout
    refused = json.loads(run("copy", people.uri, copy, "--output", "json", code=1).stderr)
    assert refused["error"]["type"] == "TableExistsError"
    assert "--update" in refused["error"]["message"]
    people.upsert(pl.DataFrame({"id": [3]}))
    done = json.loads(run("copy", people.uri, copy, "--update", "--no-verify", "--output", "json", code=0).stdout)
    assert (done["version"], done["pending"], done["uri"]) == (people.version, 0, str(copy))
    assert mor.Table(copy).count() == 3


def test_options_of_each_store_go_to_the_store_that_knows_them(people: mor.Table) -> None:
    """Both addresses are asked with the options of theirs alone: what the other one has would be refused."""
    options = ["--storage", "aws_region=eu-west-1", "--storage", "azure_storage_account_name=a"]
    more = [
        "--storage",
        "retry_timeout=1ms",
        "--storage",
        "aws_endpoint_url=http://127.0.0.1:1",
        "--storage",
        "allow_http=true",
    ]
    said = run("copy", "s3://lake/people", "az://lake/people", *options, *more, code=1)
    assert "aws_region" not in said.stderr
    assert "azure_storage_account_name" not in said.stderr


def test_two_tables_that_differ_end_with_3_and_the_first_keys_are_named(people: mor.Table, fast_path: Path) -> None:
    copy = fast_path / "copy"
    run("copy", people.uri, copy, code=0)
    assert "equal" in run("diff", people.uri, copy, code=0).stderr
    version = people.version
    people.upsert(pl.DataFrame({"id": [3]}))
    said = run("diff", people.uri, copy, code=3)
    assert "1 row only here, 0 only there, 0 changed" in said.stderr
    assert said.stdout.split()[-2:] == ["here", "3"]
    found = json.loads(run("diff", people.uri, copy, "--output", "json", code=3).stdout)
    assert (found["equal"], found["here"], found["keys_here"]) == (False, 1, [[3]])
    assert json.loads(run("diff", people.uri, copy, "--as-of", version, "--output", "json", code=0).stdout)["equal"]
    assert "--as-of" in run("diff", people.uri, 0, version, "--as-of", version, code=2).stderr


def test_all_keys_that_differ_are_listed_in_each_format_and_a_table_says_when_there_are_more(
    people: mor.Table, fast_path: Path
) -> None:
    copy = fast_path / "copy"
    run("copy", people.uri, copy, code=0)
    people.delete(keys=[1])
    people.upsert(pl.DataFrame({"id": range(100, 130)}))
    lines = run("diff", people.uri, copy, "--format", "jsonl", code=3).stdout.splitlines()
    keys = [(row["_difference"], row["id"]) for row in map(json.loads, lines)]
    assert keys == [*(("here", key) for key in range(100, 130)), ("there", 1)]
    csv = run("diff", people.uri, copy, "--format", "csv", "--limit", 3, code=3).stdout
    assert len(csv.splitlines()) == 4
    said = run("diff", people.uri, copy, code=3)
    assert said.stdout.count("here") == 20
    assert "the first 20 rows; for more use --limit N" in said.stderr
    assert "there" in run("diff", people.uri, copy, "--limit", 31, code=3).stdout
    assert "at most 10 keys" in run("diff", people.uri, copy, "--json", "--limit", 3, code=2).stderr


@pytest.mark.parametrize("moment", ["1", "2026-11-01", "monday"])
def test_one_moment_where_another_table_is_asked_for_is_answered_with_the_way_to_compare_two(
    moment: str, people: mor.Table
) -> None:
    said = run("diff", people.uri, moment, code=1).stderr
    command = f"crdt-mor diff {people.uri} {moment} now"
    assert command in said.replace("\n", " ")
    assert f"path={moment}" in said


def test_what_is_no_moment_is_a_table_that_is_not_there(people: mor.Table, fast_path: Path) -> None:
    said = run("diff", people.uri, fast_path / "absent", code=1).stderr
    assert "there is no table here" in said
    assert "moment" not in said

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
    assert "no damage was found" in said.stderr
    assert "not checked: " in said.stderr
    assert "plain fold of the commits: use --deep" in said.stderr
    found = json.loads(run("verify", people, "--output", "json", code=0).stdout)
    assert (found["sound"], found["rows"], found["some_keys"]) == (True, 3, ["1"])


def test_a_damaged_table(people: Path) -> None:
    (log,) = (people / "day=tue").glob(".*.log.*")
    log.unlink()
    said = run("verify", people, code=3).stderr
    assert f"missing: day=tue/{log.name}: the file is missing." in said
    assert "means: reads of this file group fail" in said
    assert "do:    replace the object from a copy of the table: crdt-mor repair" in said
    assert "no damage was found" not in said
    found = json.loads(run("verify", people, "--output", "json", code=3).stdout)
    assert (found["sound"], found["rows"], found["findings"][0]["check"]) == (False, 2, "missing")


def test_a_table_that_cannot_be_opened(people: Path) -> None:
    newest = max((people / ".hoodie/.crdt_mor/timeline").iterdir())
    newest.write_bytes(b"{")
    said = run("verify", people, "--output", "json", code=3)
    assert said.stdout == ""
    assert json.loads(said.stderr)["error"]["type"] == "FormatError"


def test_the_plain_fold(people: Path) -> None:
    found = json.loads(run("verify", people, "--deep", "--output", "json", code=0).stdout)
    assert not any("plain fold" in what for what in found["not_looked_at"])


def test_some_partitions(people: Path) -> None:
    (log,) = (people / "day=tue").glob(".*.log.*")
    log.unlink()
    found = json.loads(run("verify", people, "--partition", "mon", "--output", "json", code=0).stdout)
    assert (found["sound"], found["rows"], found["file_groups"]) == (True, 2, 1)
    said = run("verify", people, "--partition", "day=mon", "--partition", "tue", code=3).stderr
    assert f"missing: day=tue/{log.name}" in said
    assert "not checked: all other partitions" in said
    refused = run("verify", people, "--partition", "thu", code=1).stderr
    assert "crdt-mor files URI lists them. unknown=['day=thu']" in refused


def test_what_looks_at_no_file_says_so(people: Path) -> None:
    """A base file is gone: `cat` fails, and what goes by the timeline says that it has not looked; `maintain` fails as
    soon as it needs the file."""
    table = mor.Table(people)
    table.maintenance.compact()
    for base in people.glob("day=*/*.parquet"):
        base.unlink()
    run("cat", people, code=1)
    counted = run("count", people, code=0)
    assert counted.stdout == "3\n"
    assert (
        "2 file groups counted from commits or hints, without opening files: crdt-mor verify reads them"
        in counted.stderr
    )
    assert json.loads(run("count", people, "--output", "json", code=0).stdout) == {"rows": 3, "unopened": 2}
    assert "without opening files" in run("show", people, code=0).stdout
    assert json.loads(run("show", people, "--output", "json", code=0).stdout)["unopened"] == 2
    assert run("count", people, "--where", "id > 0", code=1).stdout == ""
    run("verify", people, code=3)
    table.set_properties({"crdt_mor.compaction.log_files": "1"})
    table.upsert(pl.DataFrame({"id": [1], "day": ["mon"]}))
    said = run("maintain", people, code=1).stdout
    assert "compaction failed" in said
    assert ".parquet" in said


def test_a_count_that_has_read_its_file_groups_says_nothing_of_them(people: Path) -> None:
    assert run("count", people, code=0).stderr == ""


# --- repair -----------------------------------------------------------------------------------------------------------


def test_repair_puts_a_missing_file_back_and_show_counts_again(people: Path, tmp_path: Path) -> None:
    run("copy", people, tmp_path / "copy", code=0)
    (log,) = (people / "day=tue").glob(".*.log.*")
    log.unlink()
    shown = json.loads(run("show", people, "--output", "json", code=0).stdout)
    assert (shown["rows"], shown["log_files"]) == (None, 2)
    assert "crdt-mor repair" in shown["damage"]
    assert log.name in run("show", people, code=0).stdout
    assert f"put: day=tue/{log.name}" in run("repair", people, "--from", tmp_path / "copy", code=0).stderr
    shown = json.loads(run("show", people, "--output", "json", code=0).stdout)
    assert (shown["rows"], shown["damage"]) == (3, None)
    assert "damage" not in run("show", people, code=0).stdout


def test_repair_ends_with_code_3_where_the_copy_lacks_the_file(people: Path, tmp_path: Path) -> None:
    run("copy", people, tmp_path / "copy", code=0)
    (log,) = (people / "day=tue").glob(".*.log.*")
    for folder in (people, tmp_path / "copy"):
        (folder / "day=tue" / log.name).unlink()
    document = json.loads(run("repair", people, "--from", tmp_path / "copy", "--output", "json", code=3).stdout)
    assert (document["files"], document["sound"]) == ([], False)
    assert document["verification"]["findings"][0]["check"] == "missing"

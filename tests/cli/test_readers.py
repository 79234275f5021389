"""`crdt-mor changes --reader`, `readers` and `forget-reader`, and what `doctor` says of readers."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

import crdt_mor as mor
from crdt_mor.cli.main import app
from crdt_mor.testing import SimulatedEnvironment

CHANGES = ("--reader", "billing", "--format", "jsonl", "--columns", "id")


@pytest.fixture
def table(fast_path: Path) -> mor.Table:
    """A table of old commits: none of them is in the moment of a clean."""
    opening = mor.Opening(environment=SimulatedEnvironment())
    made = mor.Table.create(fast_path / "events", {"id": pl.String}, key="id", buckets=1, opening=opening)
    made.append(pl.DataFrame({"id": ["a"]}))
    return made


def run(table: mor.Table, command: str, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [command, table.uri, *arguments])
    assert result.exit_code == code, result.output
    return result


def ids(table: mor.Table) -> list[str]:
    return [json.loads(line)["id"] for line in run(table, "changes", *CHANGES).stdout.splitlines()]


def test_each_call_prints_what_came_since_the_last_one_and_others_see_how_far_it_is(table: mor.Table) -> None:
    assert ids(table) == ["a"]
    assert ids(table) == []
    table.append(pl.DataFrame({"id": ["b"]}))
    (line,) = run(table, "readers", "--output", "json").stdout.splitlines()
    found = json.loads(line)
    assert found.pop("lag") >= 0
    assert found.pop("checkpoint").startswith("completed:")
    assert found == {"reader": "billing", "commits": 1, "lost": False}
    assert "billing" in run(table, "readers").stdout
    assert "reader billing: 1 commits behind" in run(table, "doctor").stdout
    assert ids(table) == ["b"]
    assert "continue with --since" not in run(table, "changes", *CHANGES).stderr


@pytest.mark.parametrize("kept", [("--reader", "billing"), ("--checkpoint", "FILE")])
def test_whoever_goes_on_later_is_shown_all_rows(table: mor.Table, kept: tuple[str, str], fast_path: Path) -> None:
    kept = kept[0], kept[1].replace("FILE", str(fast_path / "file"))
    table.append(pl.DataFrame({"id": [f"row{n}" for n in range(40)]}))
    said = run(table, "changes", *kept)
    assert said.stdout.count("row") == 40
    assert not said.stderr
    assert "row" not in run(table, "changes", *kept).stdout
    assert "--limit: --reader" in run(table, "changes", *kept, "--limit", "3", code=2).output


def test_a_limit_of_changes_says_that_the_checkpoint_lies_behind_rows_that_are_not_shown(table: mor.Table) -> None:
    table.append(pl.DataFrame({"id": [f"row{n}" for n in range(40)]}))
    for shown, options in ((20, ()), (2, ("--limit", "2")), (2, ("--limit", "2", "--format", "jsonl"))):
        said = run(table, "changes", "--since", "3", *options)
        assert said.stdout.count("row") == shown
        assert "after all rows, shown or not, continue with --since" in said.stderr
    said = run(table, "changes", "--since", "3", "--limit", "40")
    assert said.stderr.startswith("continue with --since")
    said = run(table, "diff", "3", "now", "--limit", "2")
    assert (said.stdout.count("row"), said.stderr[:16]) == (2, "the first 2 rows")


def test_a_window_that_could_not_be_printed_comes_again(table: mor.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise BrokenPipeError

    with monkeypatch.context() as patch:
        patch.setattr("crdt_mor.cli.changes.send", fail)
        run(table, "changes", *CHANGES, code=141)
    assert ids(table) == ["a"]


def test_a_file_and_a_name_exclude_each_other(table: mor.Table) -> None:
    assert "exclude each other" in run(table, "changes", *CHANGES, "--checkpoint", "file", code=2).output


def test_a_reader_whose_changes_are_gone_is_told_what_to_do_and_can_be_forgotten(table: mor.Table) -> None:
    ids(table)
    table.append(pl.DataFrame({"id": ["b"]}))
    table.set_properties({"crdt_mor.retention.readers": "0s"})
    table.maintenance.compact()
    table.maintenance.clean(timedelta(0), readers=timedelta(0))
    said = run(table, "changes", *CHANGES, code=1).stderr
    assert "the reader 'billing' lost changes" in said
    assert "scan the table and continue from the scan's checkpoint" in said
    assert "lost" in run(table, "readers").stdout
    assert "crdt-mor forget-reader" in run(table, "doctor").stdout
    run(table, "forget-reader", "billing")
    assert "no reader of this name: crdt-mor readers URI" in run(table, "forget-reader", "billing", code=1).stderr
    assert ids(table) == ["a", "b"]

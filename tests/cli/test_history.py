"""`crdt-mor history`, what a commit says of itself, and the writers that `show` names."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import crdt_mor as mor
from crdt_mor.cli.main import app
from crdt_mor.write.open_write import OpenWrite

SCHEMA = pa.schema([("id", pa.string())])
ME = f"({os.getpid()} on {socket.gethostname()})"


def crdt_mor(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def table(fast_path: Path) -> mor.Table:
    return mor.Table.create(fast_path / "t", SCHEMA, key="id", buckets=1)


@pytest.fixture
def data(fast_path: Path) -> Path:
    (fast_path / "rows.csv").write_text("id\na\nb\n")
    return fast_path / "rows.csv"


def rows(*ids: str) -> pa.Table:
    return pa.table({"id": ids})


def words_of(text: str) -> list[str]:
    """The words of each line, but for the times."""
    return [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC +[\d.]+ s|\d{17}| +", " ", line) for line in text.splitlines()]


def test_the_history_says_who_what_for_and_beside_whom(table: mor.Table) -> None:
    with table.transaction(token=("long", 1), commit_info={"message": "encrypt"}) as slow:
        for name in ("a", "b", "c"):
            table.upsert(rows(name), token=(name, 1))
        slow.upsert(rows("d"))
    table.maintenance.compact()
    lines = [" ".join(line.split()) for line in words_of(crdt_mor("history", table.uri).stdout)]
    versions = table.history()["version"].to_pylist()
    assert lines[0] == "ordinal version completed took what rows deletes by overlaps message"
    assert lines[3] == f"4 {versions[1]} upsert 1 0 long {ME} 1-3 encrypt"
    assert lines[4] == f"3 {versions[2]} upsert 1 0 c {ME} 4"
    assert lines[2].startswith(f"5 {versions[0]} compact 4 0")
    assert len(lines) == 7
    assert [int(crdt_mor("count", table.uri, "--as-of", version).stdout) for version in versions] == [4, 4, 3, 2, 1]
    for command in (("count", table.uri, "--as-of", "99"), ("changes", table.uri, "--since", "99")):
        said = " ".join(crdt_mor(*command, code=1).stderr.split())
        assert "A whole number is a version" in said
        assert "has as `ordinal` counts commits" in said


def test_the_history_for_programs_is_a_line_each(table: mor.Table) -> None:
    table.upsert(rows("a"), commit_info={"message": "first", "ticket": "OPS-17"})
    table.upsert(rows("b"))
    lines = [json.loads(line) for line in crdt_mor("history", table.uri, "--output", "json").stdout.splitlines()]
    assert [line["ordinal"] for line in lines] == [2, 1]
    assert lines[1]["commit_info"] == {"message": "first", "ticket": "OPS-17"}
    assert lines[1]["overlaps"] == []
    assert isinstance(lines[1]["duration_s"], float)
    (one,) = crdt_mor("history", table.uri, "--limit", 1, "--output", "json").stdout.splitlines()
    assert json.loads(one) == lines[0]


def test_a_long_history_says_that_there_is_more(table: mor.Table) -> None:
    for n in range(3):
        table.upsert(rows(str(n)))
    shown = crdt_mor("history", table.uri, "--limit", 2)
    assert "the newest 2 commits" in shown.stderr
    assert "the newest" not in crdt_mor("history", table.uri).stderr


def test_a_commit_says_what_it_is_for(table: mor.Table, data: Path) -> None:
    says = ("--message", "from a file", "--info", "a=b=c", "--info", "d=")
    for command in ("append", "upsert", "delete", "overwrite"):
        crdt_mor(command, table.uri, data, *says)
    crdt_mor("delete", table.uri, "--keys", "a", *says)
    found = table.history().to_pylist(maps_as_pydicts="strict")
    assert [row["commit_info"] for row in found] == [{"message": "from a file", "a": "b=c", "d": ""}] * 5
    assert found[0]["message"] == "from a file"


@pytest.mark.parametrize("info", ["ticket", "=x"])
def test_info_that_is_no_pair_is_a_wrong_use(table: mor.Table, data: Path, info: str) -> None:
    assert "ticket=OPS-17" in crdt_mor("upsert", table.uri, data, "--info", info, code=2).stderr
    assert table.version == 0


def test_show_names_the_writers_under_way_and_what_to_do_about_a_stuck_one(table: mor.Table) -> None:
    assert json.loads(crdt_mor("show", table.uri, "--output", "json").stdout)["writers"] == []
    write = table.transaction(token=("encrypt", 1), commit_info={"message": "all of it"})
    write.__enter__()
    text = crdt_mor("show", table.uri).stdout
    assert f"encrypt {ME}, since" in text
    assert "all of it" in text
    assert "stuck?" not in text
    assert isinstance(write._write, OpenWrite)
    write._write._alive.close()
    (beat,) = Path(table.uri, ".hoodie/.heartbeat").iterdir()
    silent_since = beat.stat().st_mtime - 400
    os.utime(beat, (silent_since, silent_since))
    text = " ".join(crdt_mor("show", table.uri).stdout.split())
    assert f"stuck? Look at process {os.getpid()} on {socket.gethostname()}: if it hangs, end it." in text
    assert "gives it up" in text
    (writer,) = json.loads(crdt_mor("show", table.uri, "--output", "json").stdout)["writers"]
    assert (writer["stuck"], writer["host"], writer["pid"]) == (True, socket.gethostname(), os.getpid())
    assert writer["silent_s"] >= 400
    (line,) = crdt_mor("timeline", table.uri, "--pending", "--output", "json").stdout.splitlines()
    assert json.loads(line)["silent_s"] >= 400

"""`crdt-mor history`, what a commit says of itself, and the writers that `show` names."""

from __future__ import annotations

import json
import os
import re
import socket
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import crdt_mor as mor
from crdt_mor.cli import inputs
from crdt_mor.cli.history import recent_commits_text, writer_text
from crdt_mor.cli.main import app
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.write.open_write import OpenWrite
from tests.posting import in_a_crowd, post
from tests.simulated import Simulated

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
        assert "Use the `version` column of crdt-mor history URI" in said
        assert "not `ordinal`" in said


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> mor.Table:
    """A table with a commit of one writer, and one of three."""
    table = Simulated().create(SCHEMA, key="id", buckets=1)
    table.upsert(rows("a"), commit_info={"message": "alone"})
    for _ in range(2):
        post(table, rows("b"), info={"message": "theirs"})
    in_a_crowd(table).upsert(rows("c"), commit_info={"message": "ours"})
    monkeypatch.setattr(inputs, "opened", lambda uri: table)
    return table


def test_the_history_names_the_publisher_of_a_group_and_says_how_many_others_wrote(groups: mor.Table) -> None:
    lines = [" ".join(line.split()) for line in words_of(crdt_mor("history", groups.uri).stdout)]
    assert lines[2].split(" ", 2)[2] in {
        f"upsert 2 0 simulated (1 on simulated) and 2 more {said}" for said in ("ours; theirs", "theirs; ours")
    }
    assert lines[3].endswith("upsert 1 0 simulated (1 on simulated) alone")
    found = [json.loads(line) for line in crdt_mor("history", groups.uri, "--output", "json").stdout.splitlines()]
    assert [sorted(str(writer["message"]) for writer in row["writers"]) for row in found] == [
        ["ours", "theirs", "theirs"], ["alone"],
    ]  # fmt: skip
    assert found[0]["writers"][0]["commit_info"] in ({"message": "ours"}, {"message": "theirs"})


def test_a_restore_says_how_many_wrote_the_groups_that_it_would_drop(groups: mor.Table) -> None:
    before = groups.history()["version"][1].as_py()
    said = " ".join(crdt_mor("restore", groups.uri, "--to", before, "--dry-run").stderr.split())
    assert "by simulated and 2 more, in version" in said


def test_show_says_how_many_writes_a_commit_holds(groups: mor.Table) -> None:
    assert json.loads(crdt_mor("show", groups.uri, "--output", "json").stdout)["recent_commits"] == {
        "commits": 2, "writes": 4, "groups": 1,
    }  # fmt: skip
    assert "4 writes in 2 commits, 2.0 each; 1 of them holds several" in " ".join(
        crdt_mor("show", groups.uri).stdout.split()
    )
    assert recent_commits_text({"commits": 1, "writes": 1, "groups": 0}) == "1 write in 1 commit"
    assert (
        recent_commits_text({"commits": 9, "writes": 29, "groups": 5})
        == "29 writes in 9 commits, 3.2 each; 5 of them hold several"
    )
    assert recent_commits_text({"commits": 0, "writes": 0, "groups": 0}) == "-"


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


def test_the_command_takes_a_part_of_the_history(table: mor.Table) -> None:
    for application in ("a", "b", "a"):
        table.upsert(rows("x"), token=(application, table.version))

    def ordinals(*options: object) -> list[int]:
        lines = crdt_mor("history", table.uri, *options, "--output", "json").stdout.splitlines()
        return [json.loads(line)["ordinal"] for line in lines]

    version = table.history()["version"][1].as_py()
    assert ordinals("--since", version) == [3]
    assert ordinals("--until", version) == [2, 1]
    assert ordinals("--by", "a") == [3, 1]
    assert ordinals("--by", "a", "--until", version) == [1]
    assert "--until must be" in " ".join(crdt_mor("history", table.uri, "--until", "1.x", code=2).stderr.split())


def json_lines(*arguments: object) -> list[dict[str, object]]:
    return [json.loads(line) for line in crdt_mor(*arguments, "--json").stdout.splitlines()]


def test_a_moment_may_be_an_age(table: mor.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        table.upsert(rows(name))
    first = table.history().to_pylist()[-1]["completed"]
    later_ms = round(first.timestamp() * 1000) + 3_600_000  # an hour after the first commit
    monkeypatch.setattr(SystemEnvironment, "now_ms", lambda _: later_ms)
    assert len(json_lines("history", table.uri, "--since", "1h")) == 1
    assert len(json_lines("history", table.uri, "--since", "61m", "--until", "60m")) == 1
    assert len(json_lines("timeline", table.uri, "--since", "1h")) == 1
    assert [row["id"] for row in json_lines("changes", table.uri, "--since", "3600s")] == ["b"]
    assert [json_lines("cat", table.uri, "--as-of", age) for age in ("1h", "1d", "5000w")] == [[{"id": "a"}], [], []]
    assert len(json_lines("diff", table.uri, "2h", "1h")) == 1
    assert "crdt-mor diff" in crdt_mor("diff", table.uri, "1h", code=1).stderr
    assert "an age like 12h" in " ".join(crdt_mor("cat", table.uri, "--as-of", "1.5h", code=2).stderr.split())


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


def test_show_says_what_a_writer_has_declared(tmp_path: Path) -> None:
    schema = pa.schema([(name, pa.string()) for name in ("id", "day", "note")])
    table = mor.Table.create(tmp_path / "t", schema, key="id", partition_by="day", merge=mor.PartialUpdate())
    days = [f"d{n}" for n in range(5)]
    with table.transaction(partitions=days, columns=["note", "id"]):
        text = " ".join(crdt_mor("show", table.uri).stdout.split())
        (writer,) = json.loads(crdt_mor("show", table.uri, "--output", "json").stdout)["writers"]
    assert "only partitions day=d0, day=d1, day=d2 and 2 more, only columns note" in text
    assert (writer["partitions"], writer["columns"]) == ([f"day={day}" for day in days], ["note"])


def test_show_says_how_many_keys_an_update_touches() -> None:
    writer = {
        "application": "job", "host": "h", "pid": 1, "since": datetime(2026, 1, 1, tzinfo=UTC), "requested_at": "1",
        "silent_s": None, "message": "", "partitions": None, "columns": ["note"], "keys": 2,
    }  # fmt: skip
    assert ", only columns note, only rows of 2 keys" in writer_text(writer)


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
    assert "rolls it back" in text
    (writer,) = json.loads(crdt_mor("show", table.uri, "--output", "json").stdout)["writers"]
    assert (writer["stuck"], writer["host"], writer["pid"]) == (True, socket.gethostname(), os.getpid())
    assert writer["silent_s"] >= 400
    (line,) = crdt_mor("timeline", table.uri, "--pending", "--output", "json").stdout.splitlines()
    assert json.loads(line)["silent_s"] >= 400

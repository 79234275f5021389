"""`crdt-mor maintain`: what is due is done and told, once or again and again, until somebody asks it to end."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import crdt_mor as mor
from crdt_mor.cli import maintain
from crdt_mor.cli.main import app
from crdt_mor.services import listing
from crdt_mor.testing import SimulatedEnvironment


@pytest.fixture
def table(fast_path: Path) -> Path:
    """A table of one file group that is compacted when it has two logs, and has two."""
    made = mor.Table.create(fast_path / "events", {"id": pl.String, "views": pl.Int64}, key="id", buckets=1)
    made.set_properties({"crdt_mor.compaction.log_files": "2"})
    for i in range(2):
        made.upsert(pl.DataFrame({"id": ["a"], "views": [i]}))
    return fast_path / "events"


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["maintain", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


WHY = "file group 00000000 has 2 logs; the policy is 2"


def test_it_does_what_is_due_and_says_why_and_then_nothing_is(table: Path) -> None:
    assert run(table, "--dry-run").stdout == f"{table}: compaction due, since {WHY}\n"
    assert f"{table}: compaction done, since {WHY}: 1 file group, wrote 1 file, " in run(table).stdout
    assert run(table).stdout.startswith(f"{table}: nothing is due; no compaction is due: there are no log files; ")


def test_for_programs_it_says_so_in_json_a_line_a_table(table: Path) -> None:
    for form in ("--output", "--format"):
        lines = run(table, table, form, "json").stdout.splitlines()
        first, second = map(json.loads, lines)
        assert first["table"] == str(table)
        assert second["actions"] == []
        if form == "--output":
            assert first["actions"][0]["why"] == WHY
            assert first["bytes_written"] == first["actions"][0]["bytes_written"] > 0
            assert (first["ok"], first["dry_run"]) == (True, False)


def test_a_key_that_cannot_be_merged_is_named_and_what_the_error_says_to_do_is_enough(fast_path: Path) -> None:
    uri = fast_path / "totals"
    table = mor.Table.create(uri, {"id": pl.String, "n": pl.Int64}, key="id", buckets=1, merge={"n": "counter"})
    for number in (2**63 - 1, 1):
        table.upsert(pl.DataFrame({"id": ["big"], "n": [number]}))
    table.set_properties({"crdt_mor.compaction.log_files": "2"})
    assert "too large" in run(uri, code=1).stdout
    assert "crdt-mor compact to try again and see the reason" in run(uri, code=1).stdout
    refused = CliRunner().invoke(app, ["compact", str(uri)])
    assert refused.exit_code == 1
    assert "file group 00000000 cannot be compacted" in refused.stderr
    assert "key='big'" in refused.stderr
    table.delete(keys=["big"])
    assert f"{uri}: compaction done, since file group 00000000 has 3 logs; the policy is 2" in run(uri).stdout


def test_a_table_that_is_not_there_is_named_and_the_others_are_maintained(table: Path) -> None:
    done = run(table.parent / "nothing", table, code=1)
    assert "there is no table here" in done.stderr
    assert f"{table}: compaction done" in done.stdout


def test_a_table_that_takes_no_upkeep_is_refused(table: Path) -> None:
    mor.Table(table).maintenance.handover()
    for dry_run in ([], ["--dry-run"]):
        assert f"{table}: maintain refused: this table is handed over" in run(table, *dry_run, code=1).stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--every", "soon"], "a duration must be like 7d"),
        (["--every", "0s"], "at least 1s"),
        (["--keep", "7"], "a duration must be like 7d"),
        (["--keep-commits", "0"], "--keep-commits"),
    ],
)
def test_what_cannot_be_meant_is_a_wrong_use(table: Path, options: list[str], message: str) -> None:
    assert message in " ".join(run(table, *options, code=2).stderr.replace("│", " ").split())


class Nights(SimulatedEnvironment):
    """Time in which something happens at each sleep; the last one asks this process to end."""

    def __init__(self, *nights: Callable[[], object]) -> None:
        super().__init__()
        self.nights = iter(nights)
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.slept.append(seconds)
        next(self.nights)()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_goes_on_until_it_is_asked_to_end_whatever_happens_to_a_table(
    table: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write() -> None:
        for i in range(2):
            mor.Table(table).upsert(pl.DataFrame({"id": ["b"], "views": [i]}))

    def rests() -> None:
        pass

    moved = table.with_name("moved")
    time = Nights(
        write, lambda: table.rename(moved), lambda: moved.rename(table), rests, lambda: os.kill(os.getpid(), number)
    )
    monkeypatch.setattr(maintain, "SystemEnvironment", lambda: time)
    handlers = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    done = run(table, "--every", "5m")
    assert time.slept == [300.0] * 5, "the pause after the failure is two of them"
    assert [line.split(",")[0].split("; ")[0].split(": ")[1] for line in done.stdout.splitlines()] == [
        "compaction done", "compaction done", "nothing is due"
    ]  # fmt: skip
    assert "timeline is missing" in done.stderr
    assert "stopped; the next run, or another process, finishes the interrupted work" in done.stderr
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == handlers


def ends() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_watch_finds_the_tables_below_a_place_and_new_ones(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> None:
        mor.Table.create(table.parent / "shop/new", {"id": pl.String}, key="id")
        mor.drop_table(table.parent / "gone")

    mor.Table.create(table.parent / "gone", {"id": pl.String}, key="id")
    mor.Table.create(table.parent / "handed", {"id": pl.String}, key="id").maintenance.handover()
    time = Nights(make, ends)
    monkeypatch.setattr(maintain, "SystemEnvironment", lambda: time)
    done = run(table.parent, "--watch", "--json")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(Path(one["table"]).name, one["ok"]) for one in told] == [
        ("events", True), ("gone", True), ("events", True), ("new", True)
    ]  # fmt: skip
    assert time.slept == [300.0, 300.0]
    assert "stopped" in done.stderr


def test_a_table_that_fails_waits_longer_and_stops_no_other(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = table.parent / "broken"
    mor.Table.create(broken, {"id": pl.String}, key="id")
    found = broken / ".hoodie/hoodie.properties"
    was = found.read_text()
    found.write_text("")
    time = Nights(*[lambda: None] * 20, lambda: found.write_text(was), *[lambda: None] * 15, ends)
    monkeypatch.setattr(maintain, "SystemEnvironment", lambda: time)
    tried = dict[str, list[int]](broken=[], events=[])
    told = maintain._Upkeep.table

    def watched(upkeep: maintain._Upkeep, uri: str) -> bool:
        tried[Path(uri).name].append(time.now_ms() // 60_000)
        if not told(upkeep, uri):
            raise RuntimeError("an error that nobody foresaw")
        return True

    monkeypatch.setattr(maintain._Upkeep, "table", watched)
    run(table.parent, "--watch", "--every", "5m")
    first = tried["events"][0]
    assert [at - first for at in tried["events"]] == list(range(0, 185, 5))
    assert [at - first for at in tried["broken"]] == [
        0,
        10,
        30,
        70,
        130,
        135,
        140,
        145,
        150,
        155,
        160,
        165,
        170,
        175,
        180,
    ]


def test_a_watch_of_a_folder_that_does_not_exist_is_refused(table: Path) -> None:
    assert "there is no folder here" in run(table.parent, table.with_name("typo"), "--watch", code=1).stderr
    (table.parent / "file").write_text("")
    assert "not a file" in run(table.parent / "file", "--watch", code=1).stderr


def test_a_watch_waits_for_a_store_that_is_down(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*_: object, **__: object) -> mor.results.TableList:
        raise mor.StorageUnavailableError("the network is down")

    there = mor.list_tables
    time = Nights(lambda: monkeypatch.setattr(mor, "list_tables", there), ends)
    monkeypatch.setattr(maintain, "SystemEnvironment", lambda: time)
    monkeypatch.setattr(mor, "list_tables", down)
    done = run(table.parent, "--watch")
    assert done.stdout.count(f"{table}: ") == 1
    assert done.stderr.count("the network is down") == 1


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_watch_says_once_what_it_found(table: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def drops() -> None:
        mor.drop_table(table)
        table.parent.mkdir(exist_ok=True)

    empty = table.parent / "empty"
    empty.mkdir()
    time = Nights(lambda: None, drops, lambda: None, empty.rmdir, ends)
    monkeypatch.setattr(maintain, "SystemEnvironment", lambda: time)
    done = run(table.parent, empty, "--watch", "--output", form)
    warned = [
        line.partition("path=")[2].split('"')[0] for line in done.stderr.splitlines() if "no table to main" in line
    ]
    assert warned == [str(empty), str(table.parent)]
    assert done.stderr.count(f"{table.parent}: maintaining {table}\n") == (form == "text")
    assert done.stderr.count("there is no folder here") == 1, "later it may come back"


def test_a_place_that_cannot_be_listed_keeps_its_tables(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*_: object, **__: object) -> mor.results.TableList:
        raise mor.StorageUnavailableError("the network is down")

    time = Nights(lambda: monkeypatch.setattr(mor, "list_tables", down), ends)
    monkeypatch.setattr(maintain, "SystemEnvironment", lambda: time)
    done = run(table.parent, "--watch")
    assert done.stdout.count(f"{table}: ") == 2
    assert "the network is down" in done.stderr


def test_a_watch_looks_into_new_and_failed_tables_alone(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mor.Table.create(table.parent / "shop/orders", {"id": pl.String}, key="id")
    looked: list[str] = []
    described = listing._described

    def noted(uri: str, *rest: Any) -> mor.results.ListedTable | None:
        looked.append(Path(uri).name)
        return described(uri, *rest)

    def hands_over() -> None:
        assert sorted(looked) == ["events", "orders"]
        looked.clear()
        mor.Table(table).maintenance.handover()

    time = Nights(lambda: None, hands_over, lambda: None, lambda: None, ends)
    monkeypatch.setattr(listing, "_described", noted)
    monkeypatch.setattr(maintain, "SystemEnvironment", lambda: time)
    done = run(table.parent, "--watch")
    assert set(looked) == {"events"}
    assert done.stdout.count(f"{table}: ") == 3, "and not when it is found to be handed over"


def test_tables_of_a_round_are_due_together(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mor.Table.create(table.parent / "more", {"id": pl.String}, key="id")
    time = Nights(lambda: None, ends)
    monkeypatch.setattr(maintain, "SystemEnvironment", lambda: time)

    def slow(*_: object) -> bool:
        SimulatedEnvironment.sleep(time, 7)
        return True

    monkeypatch.setattr(maintain._Upkeep, "table", slow)
    run(table.parent, "--watch")
    assert time.slept == [300.0, 300.0], "not once for each table"


def test_a_watch_says_once_that_tables_may_be_left_off(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mor.Table.create(table.parent / "more", {"id": pl.String}, key="id")
    monkeypatch.setattr(listing, "FOLDERS_MAX", 2)
    time = Nights(lambda: None, ends)
    monkeypatch.setattr(maintain, "SystemEnvironment", lambda: time)
    done = run(table.parent, "--watch")
    assert done.stderr.count("more than 2 folders, so tables may be left off: pass places further down.") == 1


def test_a_terminal_sees_a_bar_for_each_plan_and_a_pipe_sees_none(table: Path) -> None:
    seen = {}
    for terminal in (True, False):
        stream = io.StringIO()
        with maintain.progress(Console(file=stream, force_terminal=terminal, width=100)):
            mor.Table(table).maintenance.compact()
        mor.Table(table).upsert(pl.DataFrame({"id": ["c"], "views": [1]}))
        seen[terminal] = stream.getvalue()
    assert "compaction" in seen[True]
    assert "1/1" in seen[True]
    assert seen[False] == ""

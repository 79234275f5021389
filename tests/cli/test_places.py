"""`crdt-mor list` and `drop`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import crdt_mor as mor
from crdt_mor.cli.main import app
from crdt_mor.services import listing

ROWS = pa.table({"id": ["a", "b"]})


def crdt_mor(*arguments: object, code: int = 0, answer: str = "") -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=answer)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def lake(fast_path: Path) -> Path:
    for name in ("events", "shop/orders"):
        mor.Table.create(fast_path / name, ROWS.schema, key="id", buckets=1).upsert(ROWS)
    return fast_path


def test_list_names_tables_with_state_and_size(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (lake / "shop/orders/.hoodie/hoodie.properties").unlink()
    shown = crdt_mor("list", lake)
    first, second = shown.stdout.splitlines()[2:]
    assert first.split()[:2] == [f"{lake}/events", "ready"]
    assert second.split()[:2] == [f"{lake}/shop/orders", "incomplete"]
    assert f"{lake}/shop/orders: the table's properties are missing" in shown.stderr
    found = [json.loads(line) for line in crdt_mor("list", lake, "--output", "json").stdout.splitlines()]
    assert [(one["state"], one["files"], one["log_files"]) for one in found] == [("ready", 1, 1), ("incomplete", 0, 0)]
    monkeypatch.setattr(listing, "FOLDERS_MAX", 1)
    assert "more than 1 folder, so tables may be left off" in crdt_mor("list", lake).stderr


def test_list_names_commands(lake: Path) -> None:
    (lake / "begun/.hoodie/.crdt_mor/loads/1").mkdir(parents=True)
    (lake / "begun/.hoodie/.crdt_mor/loads/1/0").write_text("")
    said = crdt_mor("list", lake).stderr
    assert (
        f"{lake}/begun: there is no table here; create it with crdt-mor create, or find tables with crdt-mor list."
        in said
    )


def test_list_says_that_nothing_is_there(lake: Path) -> None:
    (lake / "empty").mkdir()
    assert f"no tables at or below this place. path={lake}/empty" in crdt_mor("list", lake / "empty").stderr
    assert "there is no folder here" in crdt_mor("list", lake / "nothing", code=1).stderr


def test_drop_asks_first(lake: Path) -> None:
    uri = lake / "events"
    said = crdt_mor("drop", uri, answer="n\n", code=1)
    assert f"{uri}: would remove" in said.stderr
    assert "nothing was removed" in said.stderr
    assert mor.Table(uri).count() == 2
    assert "add --yes" in crdt_mor("drop", uri, "--output", "json", code=2).stderr
    would = json.loads(crdt_mor("drop", uri, "--dry-run", "--output", "json").stdout)
    assert (would["dry_run"], uri.exists()) == (True, True)
    assert f"{uri}: removed {would['objects']} objects" in crdt_mor("drop", uri, answer="y\n").stderr
    assert not uri.exists()
    assert "there is no table here, so nothing was removed" in crdt_mor("drop", uri, "--yes", code=1).stderr
    assert mor.Table(lake / "shop/orders").count() == 2
    done = crdt_mor("drop", lake / "shop/orders", "--yes", "--output", "json")
    assert json.loads(done.stdout)["objects"] == would["objects"]


def test_a_running_writer_learns_of_the_drop(lake: Path) -> None:
    writer = mor.Table(lake / "events")
    crdt_mor("drop", lake / "events", "--yes")
    with pytest.raises(mor.errors.TableNotFoundError, match="the table was dropped, or its timeline was removed"):
        writer.upsert(ROWS)
    assert not (lake / "events").exists()

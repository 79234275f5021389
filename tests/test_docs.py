"""The documents say what is true: their examples run, their links lead somewhere, their commands exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import duckdb
import polars as pl
import pytest

import crdt_mor

REPO = Path(__file__).parents[1]
FOLDERS = ("*.md", "docs/**/*.md", "benches/*.md", "tests/**/*.md")
DOCUMENTS = sorted(page for folder in FOLDERS for page in REPO.glob(folder))
README = (REPO / "README.md").read_text()


def test_the_example_of_the_readme_runs_and_means_what_it_says(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fast_path)
    blocks = [b for b in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "crdt_mor.readers.spark" not in b]
    assert blocks  # the one for Spark runs in tests/spark
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    table, commit = names["table"], names["commit"]
    assert isinstance(table, crdt_mor.Table)
    assert isinstance(commit, crdt_mor.Commit)
    assert sorted(table.scan(columns=["id", "views"], filter="views > 1").to_polars().rows()) == [("b", 3), ("c", 3)]
    assert table.scan(as_of=commit).to_polars().height == 2
    scan = table.scan()
    assert isinstance(scan, crdt_mor.Scan)
    query = re.search(r'duckdb\.sql\("(.*?)"\)', README)
    assert query is not None
    answer = duckdb.sql(query[1])
    assert answer is not None
    assert answer.fetchall() == [(6,)]
    again = [table.upsert(pl.DataFrame({"id": ["d"], "views": [1], "day": ["x"]}), token=("nightly-load", 17))] * 2
    assert again[0].requested_at == again[1].requested_at


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(REPO)))
def test_links_to_files_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text())
    broken = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert not broken


def _is_there(file: Path, test: str) -> bool:
    """Whether a file is there, and has this test if one is named."""
    return file.exists() and (not test or f"def {test}(" in file.read_text())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(REPO)))
def test_tests_that_a_document_names_exist(document: Path) -> None:
    named = re.findall(r"`(tests/[a-z_/]+\.py)(?:::(test_\w+))?`", document.read_text())
    missing = [(file, name) for file, name in named if not _is_there(REPO / file, name)]
    assert not missing


def test_each_page_of_the_docs_has_a_place_in_the_nav_of_the_site() -> None:
    nav = (REPO / "mkdocs.yml").read_text()
    pages = [page.relative_to(REPO).as_posix() for page in (REPO / "docs").rglob("*.md")]
    assert not [page for page in pages if f": {page}\n" not in nav], "add it to mkdocs.yml, where a reader looks for it"


def test_every_command_of_make_that_the_readme_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPO / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^make ([a-z-]+)", README, re.MULTILINE))
    assert named
    assert named <= targets


def test_while_pip_installs_for_minutes_make_shows_what_it_does() -> None:
    recipe = (REPO / "Makefile").read_text().partition("$(READY): ")[2].partition("\n\n")[0].splitlines()[1:]
    assert "two minutes" in recipe[0]
    assert not [line for line in recipe if "-r requirements.lock" in line and "--quiet" in line]


def test_the_changelog_knows_this_version() -> None:
    version = re.search(r'^version = "(.*)"', (REPO / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    changelog = (REPO / "CHANGELOG.md").read_text()
    assert version[1] in changelog or "Unreleased" in changelog


def test_the_lowest_versions_that_are_tested_are_those_that_are_promised() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needs = [need for extra in ("sketches", "testing", "otel", "metrics", "mirror") for need in extras.get(extra, ())]
    promised = dict(need.split(">=") for need in [*project["dependencies"], *needs])
    pins = re.findall(r"^([a-z0-9-]+)==(\S+)", (REPO / "requirements-lowest.txt").read_text(), re.MULTILINE)
    tested = {name: version for name, version in pins if name in promised}
    assert {name: re.sub(r"(\.0)+$", "", version) for name, version in promised.items()} == {
        name: re.sub(r"(\.0)+$", "", version) for name, version in tested.items()
    }
    table = dict(re.findall(r"^\| ([a-z]+) \| ([\d.]+) \|", (REPO / "CONTRIBUTING.md").read_text(), re.MULTILINE))
    assert table == {need.split(">=")[0]: need.split(">=")[1] for need in project["dependencies"]}


def releases_of_the_changelog() -> list[list[str]]:
    """The lines of each release, of which the first is its heading."""
    lines = (REPO / "CHANGELOG.md").read_text().splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("## ")]
    return [lines[start:end] for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)]


def test_the_changelog_keeps_the_form_that_it_names() -> None:
    assert "https://keepachangelog.com" in (REPO / "CHANGELOG.md").read_text()
    assert releases_of_the_changelog()[0][0] == "## [Unreleased]"
    for heading, *body in releases_of_the_changelog():
        assert re.fullmatch(r"## \[(Unreleased\]|\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d)", heading)
        kinds = [line for line in body if line.startswith("#")]
        assert kinds, heading
        assert {kind.removeprefix("### ") for kind in kinds} <= {
            *("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
        }, heading
        assert len(kinds) == len(set(kinds)), f"one kind of change has two headings: {heading}"


def test_each_change_in_the_changelog_is_a_bullet_below_its_kind_and_is_told_once() -> None:
    for heading, *body in releases_of_the_changelog():
        changes = body[next(number for number, line in enumerate(body) if line.startswith("### ")) :]
        assert not [line for line in changes if line and not line.startswith(("### ", "- ", "  "))], heading
        bullets = [line for line in changes if line.startswith("- ")]
        assert len(bullets) == len(set(bullets)), f"a change is told twice: {heading}"

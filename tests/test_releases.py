"""docs/releases.md says what is so: numbers, versions, licences, targets of make. And a bill of materials is judged."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import crdt_mor
from crdt_mor import payloads
from crdt_mor.model.timeline_json import FORMAT
from tests import release, sbom
from tests.interop.readers import HUDI_VERSION

REPO = Path(__file__).parents[1]
PAGE = (REPO / "docs/releases.md").read_text()
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def prose(text: str) -> str:
    return " ".join(text.split())


def test_the_format_and_the_number_of_kept_tables_are_those_of_the_code() -> None:
    assert f"What is written has a number, FORMAT, now {FORMAT} " in prose(PAGE)
    kept = len(list((REPO / "tests/tables").glob("release-*.tar.xz")))
    assert f"keeps tables of {WORDS[kept]} states of the format" in prose(PAGE)


def test_versions_of_python_spark_and_hudi_are_those_that_are_tested() -> None:
    cells = dict(re.findall(r"^\| (Python|Spark|Hudi's readers and writers) \| (.*?) \|", PAGE, re.MULTILINE))
    pythons = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert cells["Python"] == ", ".join(pythons)
    tested = re.findall(r"tests (4\.\d), (4\.\d) and (4\.\d),", (REPO / "docs/spark.md").read_text())
    assert cells["Spark"].startswith(", ".join(tested[0]))
    hudi_rs = next(need for need in PROJECT["optional-dependencies"]["dev"] if need.startswith("hudi=="))
    assert f"bundle {HUDI_VERSION} " in cells["Hudi's readers and writers"]
    assert cells["Hudi's readers and writers"].endswith(f"hudi-rs {hudi_rs.removeprefix('hudi==')}")


def test_a_name_that_is_deprecated_is_said_to_be() -> None:
    """The page says so in its own words where the first one comes, and this test then holds it to each."""
    code = [path.read_text() for room in ("crdt_mor", "payloads", "readers") for path in (REPO / room).rglob("*.py")]
    assert len(code) > 100
    deprecated = any("DeprecationWarning" in text for text in code)
    assert deprecated != ("**Deprecated today: nothing.**" in PAGE)


def test_what_the_page_calls_public_is_there() -> None:
    pytest.importorskip("pyspark")
    rooms = [import_module(f"crdt_mor.{room}") for room in re.findall(r"`crdt_mor\.((?:readers\.)?[a-z]+)`", PAGE)]
    assert all(room.__doc__ for room in rooms)
    assert "Table" in crdt_mor.__all__
    assert "Counter" in payloads.__all__


def test_the_licences_of_the_page_are_those_that_are_allowed() -> None:
    assert tuple(re.findall(r"^\| ([\w.-]+) \|$", PAGE.partition("| licence |")[2], re.MULTILINE)) == sbom.ALLOWED


def test_targets_of_make_that_the_page_names_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPO / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"make ((?:check|release|sbom|setup|test)[a-z-]*)", PAGE))
    assert len(named) > 6
    assert named <= targets


def test_a_release_runs_every_tier_that_ci_samples() -> None:
    """CI runs a part of these, so `.ci/run` alone would leave tests out of a release."""
    step = PAGE.partition("## How a release is made")[2].partition("\n3. ")[2].partition("\n4. ")[0]
    makefile = (REPO / "Makefile").read_text()
    checks = set(re.findall(r"^(check-[a-z-]+):", makefile, re.MULTILINE)) - {"check-packages"}
    assert set(re.findall(r"make (check-[a-z-]+)", step)) == checks


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True),
        ("BSD-3-Clause AND 0BSD AND MIT", True),
        ("MIT AND GPL-3.0-only", False),
        ("Apache-2.0 OR GPL-3.0-only", True),
        ("(GPL-2.0-only OR MIT) AND BSD-2-Clause", True),
        ("AGPL-3.0-only", False),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("License :: Other/Proprietary License", False),
        ("", False),
    ],
)
def test_an_expression_is_allowed_where_it_can_be_fulfilled(licence: str, allowed: bool) -> None:
    assert sbom.is_allowed(licence) is allowed


INSTALLED = {"crdt-mor": "0.1.0", "typing_extensions": "4.1"}


def bill(*components: dict[str, Any]) -> dict[str, Any]:
    own = {"name": "crdt-mor", "version": "0.1.0", "licenses": [{"license": {"id": "Apache-2.0"}}]}
    return {"metadata": {"component": own}, "components": list(components)}


def component(*given: dict[str, Any], version: str = "4.1") -> dict[str, Any]:
    return {"name": "typing-extensions", "version": version, "licenses": list(given)}


@pytest.mark.parametrize(
    ("components", "says"),
    [
        ([component({"license": {"id": "PSF-2.0"}})], []),
        ([component({"expression": "PSF-2.0 OR GPL-2.0-only"})], []),
        ([component()], ["typing-extensions names no licence"]),
        ([component({"license": {"name": "my own"}})], ["typing-extensions has the licence my own"]),
        (
            [component({"license": {"id": "MIT"}}, {"license": {"id": "GPL-3.0-only"}})],
            ["typing-extensions has the licence GPL-3.0-only"],
        ),
        ([], ["the bill and what is installed differ in typing-extensions 4.1"]),
        (
            [component({"license": {"id": "MIT"}}, version="4.2")],
            [f"the bill and what is installed differ in typing-extensions {version}" for version in ("4.1", "4.2")],
        ),
    ],
)
def test_a_bill_lacks_nothing_and_allows_all(components: list[dict[str, Any]], says: list[str]) -> None:
    assert sbom.wrong(bill(*components), INSTALLED) == says


CHANGES = "# Changelog\n\n## [Unreleased]\n\nNew.\n\n## [0.1.0] - 2026-12-01\n\nThe first.\n"


def test_notes_of_a_release_are_its_section() -> None:
    assert release.notes_of(CHANGES, "0.1.0") == "The first."
    assert release.notes_of(CHANGES, "0.2.0") == "New."
    with pytest.raises(SystemExit, match="no section"):
        release.notes_of("# Changelog\n", "0.1.0")


def test_open_steps_of_a_release_name_the_files_that_lack_it(tmp_path: Path) -> None:
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    (tmp_path / "SECURITY.md").write_text("0.2.0 is to be the first release")
    assert [step[:12] for step in release.open_steps(tmp_path, "0.2.0", [])] == [
        "CHANGELOG.md", "SECURITY.md:", "sign the tag"
    ]  # fmt: skip
    assert [step[:14] for step in release.open_steps(tmp_path, "0.1.0", [])] == ["sign the tag: "]
    assert "tags never move" in release.open_steps(tmp_path, "0.1.0", ["v0.1.0"])[0]


def test_sums_of_a_release_are_those_of_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "SHA256SUMS").write_text("old")
    (tmp_path / "a").write_bytes(b"")
    assert release.sums(tmp_path) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a\n"

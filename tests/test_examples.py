"""Each script in examples/ runs, and its claims hold; README and recipes show the scripts as they are."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
EXAMPLES = REPO / "examples"
ALONE = [
    "copy_and_move", "debezium_cdc", "duckdb_only", "functions", "increments_to_duckdb", "own_payload", "pandas_only",
    "time_travel",
]  # fmt: skip
WITH_PROCESSES = ["add_column", "backfill", "counters", "delete_keys", "load_files"]
PARTS = ["film_payloads"]
"""What is no task by itself."""


@pytest.mark.costly
@pytest.mark.parametrize("name", ALONE)
def test_an_example_of_one_process_does_what_it_says(
    name: str, fast_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="example")["main"](str(fast_path))
    assert capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_PROCESSES)
def test_an_example_of_several_processes_does_what_it_says(name: str, fast_path: Path) -> None:
    command = [sys.executable, "-B", "-Werror", str(EXAMPLES / f"{name}.py"), str(fast_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_every_example_is_run_and_linked_in_the_readme() -> None:
    scripts = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    assert scripts == sorted([*ALONE, *WITH_PROCESSES, *PARTS])
    linked = re.findall(r"\]\(examples/(\w+)\.py\)", (REPO / "README.md").read_text())
    assert sorted(set(linked)) == sorted([*ALONE, *WITH_PROCESSES])


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_enough_to_be_copied(path: Path) -> None:
    assert 20 <= len(path.read_text().splitlines()) <= 80


@pytest.mark.parametrize(("name", "own"), [("pandas_only", "pandas"), ("duckdb_only", "duckdb")])
def test_an_example_for_one_library_imports_no_other(name: str, own: str) -> None:
    imported = set(re.findall(r"^(?:import|from) (\w+)", (EXAMPLES / f"{name}.py").read_text(), re.MULTILINE))
    assert imported == {"sys", "pathlib", own, "crdt_mor"}


RECIPES = (REPO / "docs/recipes.md").read_text()


def test_the_recipes_show_the_scripts_as_they_are() -> None:
    sections = RECIPES.split("\n## ")[1:]
    assert len(sections) == 5
    for section in sections:
        linked = re.search(r"\]\(\.\./examples/(\w+\.py)\)", section)
        assert linked is not None, section.splitlines()[0]
        script = (EXAMPLES / linked[1]).read_text()
        blocks = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
        assert blocks, section.splitlines()[0]
        for block in blocks:
            assert block in script, f"{linked[1]} has no such lines:\n{block}"

"""docs/use-from.md: each library's section runs on a table of its own, and prints the text shown below it."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.guides import blocks, interpreter, words

PAGE = Path(__file__).parents[1] / "docs" / "use-from.md"
START, *SECTIONS = re.split(r"^(?=## )", PAGE.read_text(), flags=re.MULTILINE)
PACKAGES = {section.split("\n")[0].removeprefix("## "): section for section in SECTIONS}
READY = """
import warnings

import duckdb
from crdt_mor.readers.polars import scan_table

duckdb.sql("SET enable_progress_bar = false")
warnings.simplefilter("ignore")  # of the libraries about themselves
"""


def imports(section: str) -> set[str]:
    return set(re.findall(r"^(?:import|from) (\w+)", section, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKAGES)
def test_a_section_prints_what_it_shows(name: str, fast_path: Path) -> None:
    missing = sorted(package for package in imports(PACKAGES[name]) if find_spec(package) is None)
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; `python -m tests.readers.installed` installs it elsewhere")
    with interpreter(fast_path) as python:
        for block in blocks(START):
            assert python.run(READY + block.code) == ""
        for block in blocks(PACKAGES[name]):
            assert words(python.run(block.code)) == words(block.shown), f"docs/use-from.md, {name}"


def test_the_table_names_each_section() -> None:
    named = re.findall(r"^\| \[(\w+)\]\(#", START, re.MULTILINE)
    assert named == list(PACKAGES)

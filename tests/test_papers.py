"""ARCHITECTURE.md, CONTRIBUTING.md and the pages of the design name what is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
DESIGN = [*sorted(path.relative_to(REPO) for path in REPO.glob("docs/design/*.md")), Path("tests/simulation/README.md")]
TO_COME = {"store/hdfs.py"}
"""What ARCHITECTURE.md answers with to the question where somebody would add it."""


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", *map(str, DESIGN)])
def test_every_file_that_a_page_names_exists(page: str) -> None:
    names = set(re.findall(r"`((?:[\w.-]+/)*[\w-]+(?:\.py|/))`", (REPO / page).read_text())) - TO_COME
    assert names
    assert not sorted(name for name in names if not any((base / name).exists() for base in (REPO, REPO / "crdt_mor")))


@pytest.mark.parametrize("page", DESIGN, ids=str)
def test_every_name_that_a_page_of_the_design_names_is_in_the_code(page: Path) -> None:
    names = set(re.findall(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(.*?\))?`", (REPO / page).read_text()))
    assert not sorted(name for name in names if not set(name.split(".")) <= words_of_the_code())


@cache
def words_of_the_code() -> frozenset[str]:
    searches = {test for page in DESIGN for test in re.findall(r"`(tests/\S+\.py)`", (REPO / page).read_text())}
    files = [*REPO.glob("crdt_mor/**/*.py"), *REPO.glob("tests/simulation/*.py"), *(REPO / test for test in searches)]
    return frozenset(word for file in files for word in re.findall(r"\w+", file.read_text()))


def test_every_planted_bug_that_a_page_of_the_design_names_is_in_the_test_that_it_names() -> None:
    rows = [
        (test, bug)
        for page in DESIGN
        for bug, test in re.findall(r"^\| `([\w ]+)` in `(tests/\S+\.py)` \|", (REPO / page).read_text(), re.MULTILINE)
    ]
    assert len(rows) > 80
    assert not [(test, bug) for test, bug in rows if bug not in (REPO / test).read_text()]


def test_the_figures_of_the_first_screen_are_those_that_the_benches_record() -> None:
    rows = [line for line in (REPO / "README.md").read_text().splitlines() if re.search(r"\| \S*\d+ of 30", line)]
    recorded = (REPO / "benches" / "README.md").read_text().splitlines()
    assert len(rows) == 5
    assert not [row for row in rows if row not in recorded]


def test_no_word_of_the_code_points_to_a_page_that_is_not_here() -> None:
    """Designs and reviews that were never in the repository explain nothing to who reads it."""
    files = [*REPO.glob("crdt_mor/**/*.py"), *REPO.glob("payloads/*.py"), *REPO.glob("readers/**/*.py")]
    files += [*REPO.glob("tests/**/*.py"), *REPO.glob("benches/**/*.py"), *REPO.glob("*.md")]
    files += [*REPO.glob("docs/**/*.md"), *REPO.glob("tests/**/*.md")]
    absent = re.compile(r"\(design[ ,]|design section|[Dd]esign\.md|hudi-format\.md|shared/")
    here = Path(__file__)
    assert not [str(file.relative_to(REPO)) for file in files if file != here and absent.search(file.read_text())]

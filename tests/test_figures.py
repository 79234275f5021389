"""Figures that pages give beside peers are those of benches/README.md, so that no page goes stale alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
PAGES = ("README.md", "docs/comparison.md")
Rows = list[list[str]]


def tables(text: str) -> list[tuple[str, Rows]]:
    """The tables of a page: the first cell of the head, and the cells of each row."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
        found.append((head[0], rows))
    return found


def sections(page: str) -> dict[str, str]:
    """The sections of the page of the benches, by the command that each begins with."""
    return dict(re.findall(r"^## `(.*?)`(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))


SECTIONS = sections((REPO / "benches/README.md").read_text())
MEASURED = {
    page: [(head.strip("`"), rows) for head, rows in tables((REPO / page).read_text()) if head.startswith("`python")]
    for page in PAGES
}


def stands(row: list[str], section: str) -> bool:
    """Whether one row of the section has all these cells: columns may be left out, and come in another order."""
    return any(set(row) <= set(measured) for _, rows in tables(section) for measured in rows)


@pytest.mark.parametrize("page", PAGES)
def test_each_row_of_figures_is_one_of_the_bench_that_its_table_names(page: str) -> None:
    assert MEASURED[page]
    for command, rows in MEASURED[page]:
        assert [row for row in rows if not stands(row, SECTIONS[command])] == [], command


def test_the_page_that_compares_has_figures_only_in_tables_that_name_their_bench() -> None:
    text = (REPO / "docs/comparison.md").read_text()
    rest = re.sub(r"(?:^\| `python.*\n)(?:^\|.*\n)+|```.*?```|\]\(.*?\)", "", text, flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"\d[\d.,]*\s?(?:×|%|m?s\b|[KMG]i?B\b|/s|commits|times)", rest) == []


@pytest.mark.parametrize("change", [("62.7", "63.7"), ("| 30 of 30 | 9.4 |", "| 30 of 30 | 7.1 |")])
def test_a_figure_of_another_run_or_of_another_engine_is_found(change: tuple[str, str]) -> None:
    command, rows = MEASURED["docs/comparison.md"][0]
    text = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    assert change[0] in text
    _, wrong = tables(f"| x |\n|---|\n{text.replace(*change)}\n")[0]
    assert not all(stands(row, SECTIONS[command]) for row in wrong)

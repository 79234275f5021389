"""Figures that pages give beside peers are those of benches/README.md, headings included: no page goes stale alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
PAGES = ("README.md", "docs/comparison.md")
Rows = list[list[str]]


def tables(text: str) -> list[Rows]:
    """The tables of a page: the cells of the head and of each row."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.splitlines())
        found.append([head, *rows])
    return found


def sections(page: str) -> dict[str, str]:
    """The sections of the page of the benches, by the command that each begins with."""
    return dict(re.findall(r"^## `(.*?)`(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))


SECTIONS = sections((REPO / "benches/README.md").read_text())
MEASURED = {
    page: [table for table in tables((REPO / page).read_text()) if table[0][0].startswith("`python")] for page in PAGES
}


def stand(table: Rows, section: str) -> bool:
    """Whether a table of the section has these columns, and one row of it each row's cells below the same heads.

    Columns and rows may be left out.
    """
    return any(_stand_in(table, measured) for measured in tables(section))


def _stand_in(table: Rows, measured: Rows) -> bool:
    (_, *heads), *rows = table  # whose first head is the command
    if not set(heads) <= set(measured[0]):
        return False
    places = [measured[0].index(head) for head in heads]
    of_name = {name: [[row[place] for place in places] for row in measured[1:] if name in row] for name, *_ in rows}
    return all(cells in of_name[name] for name, *cells in rows)


@pytest.mark.parametrize("page", PAGES)
def test_each_row_of_figures_is_one_of_the_bench_that_its_table_names_below_the_same_heads(page: str) -> None:
    assert MEASURED[page]
    for table in MEASURED[page]:
        command = table[0][0].strip("`")
        assert stand(table, SECTIONS[command]), command


def test_the_page_that_compares_has_figures_only_in_tables_that_name_their_bench() -> None:
    text = (REPO / "docs/comparison.md").read_text()
    rest = re.sub(r"(?:^\| `python.*\n)(?:^\|.*\n)+|```.*?```|\]\(.*?\)", "", text, flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"\d[\d.,]*\s?(?:×|%|m?s\b|[KMG]i?B\b|/s|commits|times)", rest) == []


CHANGES = [
    ("62.7", "63.7"),
    ("| 30 of 30 | 9.4 |", "| 30 of 30 | 7.1 |"),
    ("| second snapshot read", "| snapshot read"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_figure_of_another_run_or_of_another_engine_or_column_is_found(change: tuple[str, str]) -> None:
    head, *rows = MEASURED["docs/comparison.md"][0]
    text = "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"], *rows])
    assert change[0] in text
    (wrong,) = tables(text.replace(*change) + "\n")
    assert not stand(wrong, SECTIONS[head[0].strip("`")])

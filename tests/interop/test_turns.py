"""Each statement of Hudi's Spark writer between ours: all readers show the same, as `docs/interop.md` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.readers import HudiSpark
from tests.interop.turn_tables import KINDS
from tests.interop.turns import HUDIS, Turns
from tests.tiers import long

PAGE = (Path(__file__).parents[2] / "docs" / "interop.md").read_text()
COLUMNS = ("ours, partitions", "ours, ordering", "hudis, partitions")
"""The kinds of tables that the page has as columns."""


def said() -> dict[str, dict[str, str]]:
    """What the page says of each statement, by the kind of the table."""
    lines = PAGE.split("<!-- turns -->")[1].strip().splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name.strip("`"): dict(zip(COLUMNS, verdicts, strict=True)) for name, _, *verdicts in cells}


def test_the_page_lists_each_statement_of_hudis() -> None:
    assert [*said()] == [*HUDIS]


@pytest.mark.spark
@pytest.mark.parametrize("kind", [*map(long, COLUMNS[:2]), COLUMNS[2]])
def test_each_statement_of_hudis_between_ours(spark: HudiSpark, tmp_path: Path, kind: str) -> None:
    shown = Turns(spark, tmp_path / f"each_{[*KINDS].index(kind)}", 1, kind).run_each()
    assert shown == {name: verdicts[kind] for name, verdicts in said().items()}

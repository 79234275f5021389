"""The page for those who come from Hudi, taken to pieces: what it says to call here, and what it says of Hudi."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs/from-hudi.md").read_text()


def rows(title: str) -> list[list[str]]:
    """The cells of all tables below a title, without their heads."""
    lines = PAGE.partition(f"# {title}\n")[2].partition("\n#")[0].splitlines()
    heads = {number - 1 for number, line in enumerate(lines) if line.startswith("|---")}
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for number, line in enumerate(lines)
        if line.startswith("| ") and number not in heads
    ]


def codes(cell: str) -> list[str]:
    """What stands between back quotes."""
    return re.findall(r"`(.+?)`", cell)

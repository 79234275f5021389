"""Guides in docs/: reading, changes, history, upkeep, savepoints, … Every block runs and prints what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crdt_mor.format import bloom
from crdt_mor.model.policies import POLICIES
from crdt_mor.services.verify_findings import CHECKS
from tests.guides import run_page
from tests.tiers import slow

DOCS = Path(__file__).parents[1] / "docs"

LOOKUPS = pytest.mark.skipif(not bloom.are_written(), reason="this release of pyarrow writes no Bloom filters")
GUIDES = [
    "reading.md", "writing.md", "changes.md", "verifying.md", "sql.md", "mirrors.md", "memory.md", "cdc.md",
    slow("start.md"),
    slow("observing.md"), pytest.param("maintenance.md", marks=[LOOKUPS, pytest.mark.slow]),
    slow("testing.md"),
]  # fmt: skip


@pytest.mark.costly
@pytest.mark.parametrize("guide", GUIDES)
def test_every_block_of_the_guide_runs_and_shows_what_it_prints(guide: str, fast_path: Path) -> None:
    run_page(DOCS / guide, fast_path, r"[\d,]+ bytes|[\d.]+ [KM]iB|\"bytes\": \d+")


def test_the_table_of_findings_is_what_verify_says() -> None:
    row = re.compile(r"^\| ([^|`-]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
    _, *rows = row.findall((DOCS / "verifying.md").read_text())
    assert [(check, means, advice) for check, _, means, advice in rows] == [
        (check, means, advice) for check, (means, advice) in CHECKS.items()
    ]


def test_the_table_of_policies_is_what_the_engine_goes_by() -> None:
    row = re.compile(r"^\| `(crdt_mor\.[\w.]+)` \| `(\S+)` \| (.*) \|$", re.MULTILINE)
    rows = row.findall((DOCS / "maintenance.md").read_text())
    assert rows == [(policy.name, policy.default, policy.meaning) for policy in POLICIES]

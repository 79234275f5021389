"""Random histories of real tables: whatever happened in whatever order, every answer is the plain fold of the commits.

A failure prints the whole history; the test's name holds its rule and seed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.random_history import RULES, run
from tests.simulation.upkeep_history import UpkeepHistory
from tests.tiers import seeds


@pytest.mark.parametrize("seed", seeds(range(1), range(1, 6)))
@pytest.mark.parametrize("rule", RULES)
def test_snapshot_and_every_as_of_equal_the_plain_fold(rule: str, seed: int, fast_path: Path) -> None:
    run(seed, rule, fast_path / "t", steps=25)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1003))
@pytest.mark.parametrize("rule", RULES)
def test_long_histories_too(rule: str, seed: int, fast_path: Path) -> None:
    run(seed, rule, fast_path / "t", steps=80)


@pytest.mark.parametrize("rule", ["latest", "ordering"])
def test_services_change_no_answer_that_is_kept(rule: str, tmp_path: Path) -> None:
    run(0, rule, tmp_path, steps=15, kind=UpkeepHistory)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("rule", RULES)
def test_nor_do_they_in_long_histories(rule: str, seed: int, tmp_path: Path) -> None:
    run(seed, rule, tmp_path, steps=30, kind=UpkeepHistory)

"""Random histories with all that a table can go through, migrations among it: every answer is that of the commits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.moving_history import run_moving
from tests.simulation.random_history import RULES
from tests.tiers import slow

SEEDS = {"latest": 0, "ordering": 1, "partial": 2, "partial, keep": 3, "payloads": 4, "partial, payloads": 5}


@pytest.mark.parametrize("rule", ["partial", *(slow(rule) for rule in RULES if rule != "partial")])
def test_every_answer_of_tables_that_move_between_all_else(rule: str, tmp_path: Path) -> None:
    history = run_moving(SEEDS[rule], rule, tmp_path, steps=2)
    assert history.moves
    assert history.restores


@pytest.mark.slow
@pytest.mark.parametrize("seed", [10])
@pytest.mark.parametrize("rule", RULES)
def test_longer_histories_too(rule: str, seed: int, tmp_path: Path) -> None:
    run_moving(seed, rule, tmp_path, steps=8)

"""Random histories with all that a table can go through, migrations among it: every answer is that of the commits."""

from __future__ import annotations

from pathlib import Path

import pytest

from crdt_mor.services.migration_cargo import Loader
from tests.simulation.migrating_history import run_moving
from tests.simulation.random_history import MOVABLE
from tests.tiers import slow

SEEDS = {"latest": 7, "ordering": 1, "partial": 2, "partial, keep": 3, "payloads": 4, "partial, payloads": 5}


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["latest", *(slow(rule) for rule in MOVABLE if rule != "latest")])
def test_every_answer_of_tables_that_move_between_all_else(rule: str, tmp_path: Path) -> None:
    history = run_moving(SEEDS[rule], rule, tmp_path, steps=2)
    assert history.moves
    assert history.restores


@pytest.mark.slow
@pytest.mark.parametrize("seed", [10])
@pytest.mark.parametrize("rule", MOVABLE)
def test_longer_histories_too(rule: str, seed: int, tmp_path: Path) -> None:
    run_moving(seed, rule, tmp_path, steps=8)


@pytest.mark.slow
def test_histories_find_rows_that_were_deleted_while_they_were_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Loader, "_not_replaced", lambda loader, *_: loader._none_keyed)

    def some_histories() -> None:
        for seed in (19, 25, 26):
            run_moving(seed, "latest", tmp_path, steps=2)

    with pytest.raises(AssertionError):
        some_histories()

"""Random histories over all merges whose table moves: every answer is the plain fold of all commits, wherever it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.migrated_history import MigratedHistory
from tests.simulation.random_history import MOVABLE, run
from tests.tiers import seeds, slow


def moved(seed: int, rule: str, path: Path, patch: pytest.MonkeyPatch, steps: int = 30) -> None:
    if seed % 2:  # a few files a commit
        patch.setattr("crdt_mor.services.migration.BATCH_BYTES", 1 << 20)
    run(seed, rule, path / "t", steps=steps, kind=MigratedHistory)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(range(1, 2), range(2, 4), range(4, 6)))
@pytest.mark.parametrize("rule", [rule if rule == "partial" else slow(rule) for rule in MOVABLE])
def test_a_table_that_moves_keeps_every_answer(
    rule: str, seed: int, fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved(seed, rule, fast_path, monkeypatch)

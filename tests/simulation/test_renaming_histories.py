"""Random histories in which columns are renamed and dropped, and rules come and go, beside everything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crdt_mor import CrdtMorError
from crdt_mor.model.alteration import names_of
from crdt_mor.write import named
from tests.simulation.random_history import RULES, run
from tests.simulation.renaming_history import RenamingHistory, RenamingRestoringHistory, RenamingUpkeepHistory
from tests.simulation.restore_history import run_restoring
from tests.simulation.upkeep_history import run_upkeep
from tests.tiers import long, seeds, slow

FAST = ("partial, payloads",)
"""The rule that has a history before every commit."""


def history(rule: str, seed: int, path: Path) -> RenamingHistory:
    found = run(seed, rule, path, steps=12 if seed == 0 else 25, kind=RenamingHistory)
    assert isinstance(found, RenamingHistory)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(range(1), (), range(1, 30)))
@pytest.mark.parametrize("rule", [rule if rule in FAST else slow(rule) for rule in RULES])
def test_whatever_columns_are_called_every_answer_is_the_fold(rule: str, seed: int, fast_path: Path) -> None:
    counts = history(rule, seed, fast_path / "t").counts
    assert any(counts.values()) or seed > 0  # one history among many may alter nothing


@pytest.mark.parametrize("seed", seeds((), [30], range(31, 40)))
def test_so_it_is_beside_services(seed: int, tmp_path: Path) -> None:
    for rule in RULES if seed > 30 else ["payloads"]:
        found = run_upkeep(seed, rule, tmp_path / rule, 20, RenamingUpkeepHistory)
        assert isinstance(found, RenamingHistory)
        assert any(found.counts.values())


@pytest.mark.parametrize("seed", seeds((), [30], range(31, 40)))
def test_so_it_is_beside_restores(seed: int, tmp_path: Path) -> None:
    for rule in RULES if seed > 30 else ["partial, payloads"]:
        found = run_restoring(seed, rule, tmp_path / rule, 20, RenamingRestoringHistory)
        assert isinstance(found, RenamingHistory)
        assert any(found.counts.values())


def rules_keep_the_names_of_before(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(named, "rules_under", lambda rules, names: rules)


def only_the_last_alteration_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("crdt_mor.model.timeline_value.names_of", lambda alterations: names_of(alterations[-1:]))


@pytest.mark.parametrize(
    "plant",
    [long(rules_keep_the_names_of_before), slow(only_the_last_alteration_counts)],
    ids=lambda plant: plant.__name__,
)
def test_such_histories_find(plant: Any, fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)

    def some_histories() -> None:
        for seed in range(8):
            history("latest", seed, fast_path / str(seed))

    with pytest.raises((AssertionError, CrdtMorError)):
        some_histories()

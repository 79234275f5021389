"""Random histories in which columns are renamed, dropped and added again beside writers of every age."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from crdt_mor.columns import names
from crdt_mor.events import write
from crdt_mor.model import alteration
from tests.simulation.altering_history import AlteringHistory
from tests.tiers import seeds, slow


def history(seed: int, steps: int = 60) -> AlteringHistory:
    found = AlteringHistory(Random(seed))
    found.run(steps)
    return found


@pytest.mark.costly
@pytest.mark.parametrize("seed", seeds(range(3), range(3, 20), range(20, 200)))
def test_every_column_shows_what_was_written_to_it_under_the_name_that_it_has(seed: int) -> None:
    assert history(seed).altered


def growth_is_not_asked_what_it_means(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(write, "require_meant", lambda value, new: None)


def names_of_dropped_columns_are_used_again(patch: pytest.MonkeyPatch) -> None:
    real = names.stored_name
    patch.setattr(names, "stored_name", lambda shown, taken: real(shown, []))


def the_names_of_then_are_those_of_now(patch: pytest.MonkeyPatch) -> None:
    from crdt_mor.api import table_reads

    patch.setattr(table_reads, "names_at", lambda alterations, moment: alteration.names_of(alterations))


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [
        slow(growth_is_not_asked_what_it_means),
        names_of_dropped_columns_are_used_again,
        the_names_of_then_are_those_of_now,
    ],
    ids=lambda p: p.__name__,
)
def test_such_histories_find(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)

    def some_histories() -> None:
        for seed in range(20):
            history(seed)

    with pytest.raises((AssertionError, KeyError)):
        some_histories()

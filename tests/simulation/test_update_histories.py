"""Random histories in which rows are updated in place beside everything else that can happen to a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from crdt_mor.events import update as updates
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion
from crdt_mor.read import snapshot
from tests.simulation.random_history import RULES, run
from tests.simulation.update_history import UpdateHistory
from tests.tiers import seeds, slow

FAST = ("latest", "partial, payloads")
"""The rules that have a history before every commit."""


def history(rule: str, seed: int, path: Path) -> UpdateHistory:
    found = run(seed, rule, path, steps=12 if seed == 0 else 25, kind=UpdateHistory)
    assert isinstance(found, UpdateHistory)
    return found


@pytest.mark.parametrize("seed", seeds(range(1), range(1, 4), range(4, 30)))
@pytest.mark.parametrize("rule", [rule if rule in FAST else slow(rule) for rule in RULES])
def test_updates_are_computed_from_what_comes_before_them(rule: str, seed: int, fast_path: Path) -> None:
    assert history(rule, seed, fast_path / "t").updates


def nobody_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(updates, "earlier", lambda value, requested: [])


def what_ended_meanwhile_is_not_read(patch: pytest.MonkeyPatch) -> None:
    def careless(begun: Timeline, shown: Sequence[Completion], *_: Any) -> list[Completion]:
        return list(shown)

    patch.setattr(snapshot, "commits_before", careless)


def the_newest_snapshot_is_read(patch: pytest.MonkeyPatch) -> None:
    def careless(begun: Timeline, shown: object, settled: Sequence[Completion], requested: object) -> list[Completion]:
        return list(settled)

    patch.setattr(snapshot, "commits_before", careless)


@pytest.mark.parametrize(
    "plant",
    [nobody_is_waited_for, what_ended_meanwhile_is_not_read, the_newest_snapshot_is_read],
    ids=lambda p: p.__name__,
)
def test_such_histories_find(plant: Any, fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)

    def some_histories() -> None:
        for seed in (1, 6, *range(20)):  # the first two find them
            history("latest", seed, fast_path / str(seed))

    with pytest.raises(AssertionError, match=r"wanted|rows=\d+|computed without"):
        some_histories()

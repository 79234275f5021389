"""A table that Hudi's writers write to as well: no row of theirs is lost in silence, and none skips a follower.

`foreign_commits` plays random histories; the planted bugs show that they would find a missing rule.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crdt_mor.events.views import Views
from crdt_mor.hudi import adoption
from crdt_mor.log.steps import Steps
from crdt_mor.model.cut import Cut
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, OpenPlan
from tests.simulation.foreign_commits import run
from tests.tiers import seeds, slow

BEHIND = (-1_000, -20_000)


@pytest.fixture
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handle of ours looks as in a bucket, once a minute: not before each write, as on a disk."""
    monkeypatch.setattr(Views, "_pause_ms", 1 << 62)


@pytest.fixture(params=["seldom", slow("before each write")])
def looking(request: pytest.FixtureRequest) -> None:
    """How often a handle of ours looks."""
    if request.param == "seldom":
        request.getfixturevalue("seldom")


@pytest.mark.costly
@pytest.mark.usefixtures("looking")
@pytest.mark.parametrize("seed", seeds(range(1), range(1, 3)))
@pytest.mark.parametrize("ahead_ms", [0, 15_000, *BEHIND])
def test_each_commit_of_hudi_is_shown_or_refused_by_name(seed: int, ahead_ms: int, fast_path: Path) -> None:
    run(seed, fast_path / "t", ahead_ms)


@pytest.mark.usefixtures("looking")
@pytest.mark.parametrize("seed", seeds((), range(100, 105), range(105, 125)))
@pytest.mark.parametrize("ahead_ms", [0, 15_000, *BEHIND])
def test_long_histories_too(seed: int, ahead_ms: int, fast_path: Path) -> None:
    run(seed, fast_path / "t", ahead_ms, steps=120)


# --- planted bugs -----------------------------------------------------------------------------------------------------


def a_commit_below_a_base_is_taken_as_it_is(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(adoption, "refuse_below", lambda bases, found: None)


def a_plan_goes_on_that_buries_a_commit(patch: pytest.MonkeyPatch) -> None:
    def careless(tail: Timeline, found: list[Completion]) -> Steps[list[OpenPlan]]:
        return []
        yield

    patch.setattr("crdt_mor.hudi.adoption.plans_missing", careless)


def what_a_scan_hands_out_is_not_looked_after(patch: pytest.MonkeyPatch) -> None:
    def careless(views: Views, value: Timeline, cut: Cut) -> list[Completion]:
        return []

    patch.setattr(Views, "unadopted", careless)


@pytest.mark.costly
@pytest.mark.usefixtures("seldom")
@pytest.mark.parametrize(
    ("plant", "first_seed", "ahead_ms"),
    [
        (a_commit_below_a_base_is_taken_as_it_is, 0, -20_000),
        (a_plan_goes_on_that_buries_a_commit, 0, -20_000),
        (what_a_scan_hands_out_is_not_looked_after, 10, 0),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_histories_find(
    plant: Callable[[pytest.MonkeyPatch], None],
    first_seed: int,
    ahead_ms: int,
    fast_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def until_found() -> None:
        for seed in range(first_seed, first_seed + 30):
            run(seed, fast_path / f"t{seed}", ahead_ms)

    plant(monkeypatch)
    with pytest.raises(AssertionError, match="hudi_ahead_ms"):
        until_found()

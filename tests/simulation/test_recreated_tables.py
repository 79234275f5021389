"""Tables that are removed and made again under the hands of those who have them open.

A failure prints the whole history; the test's name holds its seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crdt_mor.errors import CrdtMorError
from crdt_mor.events import handle
from crdt_mor.events.session import Session
from crdt_mor.log import projection
from crdt_mor.log.projection import EventProjector
from crdt_mor.log.publish import Publisher
from crdt_mor.log.steps import Steps
from crdt_mor.log.tail import find_tail
from crdt_mor.model.cut import Cut
from crdt_mor.model.timeline import Timeline
from tests.simulation.recreated_tables import run
from tests.tiers import seeds, slow


@pytest.mark.costly
@pytest.mark.parametrize("seed", seeds([0, 1, 51, 235], range(2, 5)))
def test_no_table_has_anything_of_the_one_before_it(seed: int, fast_path: Path) -> None:
    run(seed, fast_path / "t", steps=60)


@pytest.mark.parametrize("seed", seeds((), range(1000, 1008), range(1008, 1030)))
def test_many_histories(seed: int, fast_path: Path) -> None:
    run(seed, fast_path / "t", steps=80)


# --- planted bugs: every part of it is needed -------------------------------------------------------------------------

SEEDS_MAX = 60
"""A planted bug is found within as many seeds, counted from one that is known to find it soon."""

Plant = Callable[[pytest.MonkeyPatch], None]


def values_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("crdt_mor.log.tail._is_foreign", lambda found, known: False)
    patch.setattr("crdt_mor.log.tail.is_kept", lambda known, tail: False)
    patch.setattr(handle, "_require_same", lambda opened, found: None)


def every_first_version_has_one_nonce(patch: pytest.MonkeyPatch) -> None:
    def alike(value: Timeline, **changes: Any) -> Timeline:
        return replace(value, **{**changes, "nonce": "genesis"} if "nonce" in changes else changes)

    patch.setattr(handle, "replace", alike)


def checkpoints_have_no_id(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cut, "checkpoint", lambda cut, table_id: str(cut))


def jobs_and_plans_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Session, "require_table", lambda self, table_id: None)


def a_put_into_the_next_table_stays(patch: pytest.MonkeyPatch) -> None:
    def careless(self: Publisher, tail: Timeline, lost: Timeline) -> Steps[Timeline]:
        return (yield from find_tail(tail))

    patch.setattr(Publisher, "next_tail", careless)


def what_was_projected_into_the_next_table_stays(patch: pytest.MonkeyPatch) -> None:
    def careless(projector: EventProjector, value: Timeline, placed: Sequence[str]) -> Steps[None]:
        return
        yield

    patch.setattr(projection, "_withdraw_late", careless)


def run_all(seeds: range, path: Path) -> None:
    for seed in seeds:
        run(seed, path / str(seed), steps=60)


@pytest.mark.parametrize(
    ("plant", "seed", "found"),
    [
        (values_are_not_compared, 0, "is gone, and answered"),
        (every_first_version_has_one_nonce, 0, "is gone, and answered"),
        slow(checkpoints_have_no_id, 49, "a follower has"),
        (jobs_and_plans_are_not_compared, 3, "is gone, and answered"),
        slow(a_put_into_the_next_table_stays, 8, "is there, and was refused|timeline belong to different"),
        slow(what_was_projected_into_the_next_table_stays, 26, "timeline is missing"),
    ],
)
def test_the_histories_find(
    plant: Plant, seed: int, found: str, fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, CrdtMorError), match=found):
        run_all(range(seed, seed + SEEDS_MAX), fast_path)

"""Random histories in which rows are updated in place beside everything else that can happen to a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from crdt_mor.api import early_read
from crdt_mor.events import update as updates
from crdt_mor.model.declared import Declared
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion
from crdt_mor.read import snapshot
from crdt_mor.read.reads import Reads
from crdt_mor.write.open_write import OpenWrite
from tests.simulation.random_history import RULES, run
from tests.simulation.update_history import UpdateHistory
from tests.tiers import seeds, slow

FAST = ("partial, payloads",)
"""The rule that has a history before every commit."""


def history(rule: str, seed: int, path: Path) -> UpdateHistory:
    found = run(seed, rule, path, steps=12 if seed == 0 else 25, kind=UpdateHistory)
    assert isinstance(found, UpdateHistory)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(range(1), range(1, 2), range(2, 30)))
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


def a_block_does_not_see_its_own_statements(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OpenWrite, "shown", lambda write, view: view)


def what_is_declared_is_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    may_meet = Reads.may_meet

    def careless(reads: Reads, declared: Declared, *rest: Any, **more: Any) -> bool:
        return declared.partitions is None and may_meet(reads, declared, *rest, **more)

    patch.setattr(Reads, "may_meet", careless)


def an_overlapping_key_is_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Declared, "may_share_keys", lambda declared, keys: declared.keys is None)


def keys_of_ended_writes_are_not_read_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(early_read, "ended_keys", lambda early, final: [])


@pytest.mark.parametrize(
    ("plant", "seed"),
    [
        slow(nobody_is_waited_for, 3),
        slow(what_ended_meanwhile_is_not_read, 6),
        (the_newest_snapshot_is_read, 6),
        (a_block_does_not_see_its_own_statements, 4),
        slow(what_is_declared_is_not_waited_for, 6),
        slow(an_overlapping_key_is_not_waited_for, 1),
        (keys_of_ended_writes_are_not_read_again, 10),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_such_histories_find(plant: Any, seed: int, fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed is one of those that find it."""
    plant(monkeypatch)

    def some_histories() -> None:
        for number, chosen in enumerate((seed, *range(20))):
            history("latest", chosen, fast_path / str(number))

    with pytest.raises(AssertionError, match=r"wanted|rows=\d+|computed without"):
        some_histories()

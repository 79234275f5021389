"""Plans that fail in random histories: they change no answer, hold no file group, and are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crdt_mor.services import compaction_failures, compaction_finish, service
from crdt_mor.services.compaction import compaction
from tests.simulation.failing_history import run_failing
from tests.simulation.random_history import RULES
from tests.tiers import long, slow


@pytest.mark.slow
@pytest.mark.parametrize("rules", [["latest"], slow(list(RULES))])
def test_file_groups_that_cannot_be_compacted_change_no_answer_and_hold_no_other(
    rules: list[str], tmp_path: Path
) -> None:
    histories = [run_failing(seed, rule, tmp_path, steps=5) for seed, rule in enumerate(rules, 3)]
    assert all(history.failed for history in histories), "else they showed nothing"


@pytest.mark.parametrize(
    ("seed", "rules", "steps"),
    [slow(10, ["latest"], 12), *(long(seed, list(RULES), 30) for seed in range(10, 20))],
)
def test_nor_do_they_in_long_histories(seed: int, rules: list[str], steps: int, tmp_path: Path) -> None:
    for rule in rules:
        assert run_failing(seed, rule, tmp_path, steps).failed


def leaves_it_open(*_: Any) -> bool:
    return False


def forgets_the_others(*_: Any) -> None:
    return None


def by_its_name_alone(group: Any) -> list[str | None]:
    return [group.partition, group.file_id]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "name", "planted"),
    [
        (service, "cancel", leaves_it_open),
        slow(compaction_finish, "compaction_again", lambda _: compaction(choose=lambda *_: ())),
        slow(compaction_failures, "_paths", by_its_name_alone),
    ],
    ids=["the plan stays open", "the others are forgotten", "a note outlives what is written"],
)
def test_histories_find_what_is_planted(
    place: Any, name: str, planted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, planted)

    def some_histories() -> None:
        for seed in (3, 8, 4, 5, 6, 7):  # the first two find them
            run_failing(seed, "latest", tmp_path, steps=8)

    with pytest.raises(AssertionError):
        some_histories()

"""The kinds of random histories, for tests that look at a table while one happens to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.simulation.failing_history import run_failing
from tests.simulation.migrating_history import run_moving
from tests.simulation.random_history import History, run
from tests.simulation.renaming_history import RenamingHistory
from tests.simulation.restore_history import run_restoring
from tests.simulation.update_history import UpdateHistory
from tests.simulation.upkeep_history import run_upkeep


def plain(seed: int, rule: str, path: Path, steps: int) -> History:
    return run(seed, rule, path / "t", steps)


def updating(seed: int, rule: str, path: Path, steps: int) -> History:
    return run(seed, rule, path / "t", steps, UpdateHistory)


def renaming(seed: int, rule: str, path: Path, steps: int) -> History:
    return run(seed, rule, path / "t", steps, RenamingHistory)


KINDS: Final[dict[str, Callable[..., History]]] = {
    "plain": plain, "updates": updating, "renames": renaming, "services": run_upkeep, "restores": run_restoring,
    "migrations": run_moving, "failures": run_failing,
}  # fmt: skip


def after_each_step(monkeypatch: pytest.MonkeyPatch, look: Callable[[History], None]) -> None:
    """Let each step of each history be followed by a look."""
    go_on = History.go_on

    def watched(history: History) -> None:
        go_on(history)
        look(history)

    monkeypatch.setattr(History, "go_on", watched)

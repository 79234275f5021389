"""Hudi's writer and ours take turns at random: nothing is lost, and nobody is locked out."""

from __future__ import annotations

from pathlib import Path

import pytest

from crdt_mor.events import views
from crdt_mor.model.file_ids import FileIds
from tests.interop.turn_histories import run
from tests.tiers import seeds


@pytest.fixture(autouse=True)
def _writes_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write looks before it, however long a look takes on this machine."""
    monkeypatch.setattr(views, "LOOK_NAMES_MAX", 1 << 30)
    monkeypatch.setattr(views, "LOOK_AT_END_MS", 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(range(1), range(1, 6), range(6, 46)))
def test_each_row_is_shown_by_each_reader_after_each_turn(seed: int, fast_path: Path) -> None:
    run(seed, fast_path / "t")


@pytest.mark.slow
def test_file_ids_that_are_not_asked_again_are_found(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileIds, "misplaced", lambda self, files: [])

    def until_found() -> None:
        for seed in range(40):
            run(seed, fast_path / f"t{seed}")

    with pytest.raises(AssertionError):
        until_found()

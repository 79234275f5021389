"""Overwrites and restores beside writers, as processes that are killed at random: a short run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.overwrites import FEWER, run


@pytest.mark.slow
def test_every_commit_is_there_or_overwritten_or_dropped_whoever_is_killed(tmp_path: Path) -> None:
    """The whole of it: `python -m tests.crash.overwrites --minutes 2 --seed 1`."""
    assert "0 wrong, 0 lost, no orphan" in run(tmp_path, seconds=4, seed=1, processes=FEWER)

"""Every service as a process that is killed at random, beside writers, readers and followers: a short run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.services import FEWER, run


@pytest.mark.slow
def test_nothing_is_wrong_or_lost_and_nothing_is_left_whoever_is_killed(tmp_path: Path) -> None:
    """The whole of it: `python -m tests.crash.services --minutes 2 --seed 1`."""
    ended = run(tmp_path / "scene", seconds=4, seed=1, processes=FEWER)
    assert ended.commits >= 2
    assert ended.did["cleaned"] > 0

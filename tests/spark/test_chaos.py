"""Three minutes of `python -m tests.spark.chaos`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark import chaos

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_three_streams_and_everything_killed_now_and_then_count_exactly_once(tmp_path: Path) -> None:
    found = chaos.run(tmp_path, seconds=180, seed=7)
    assert found["drivers killed"] >= 4
    assert found["executors killed"] > 0

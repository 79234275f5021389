"""Some nights of `python -m tests.spark.day`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark import day

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_two_applications_on_a_cluster_count_exactly_once_whatever_is_killed(tmp_path: Path) -> None:
    found = day.run(tmp_path / "day", nights=2, seed=7)
    assert min(found[f"{what} killed"] for what in day.KILLS) > 0

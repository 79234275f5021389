"""Half a minute of `python -m tests.spark.chaos`.

python -m pytest -m "spark and long" tests/spark/test_chaos.py
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark import chaos

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_three_streams_and_everything_killed_now_and_then_count_exactly_once(tmp_path: Path) -> None:
    found = chaos.run(tmp_path, seconds=30, seed=7)
    assert found["drivers killed"] > 0

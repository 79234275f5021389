"""Real processes beside a table that moves on and on, killed at moments drawn by lot: see `tests.crash.migrations`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash import migrations


@pytest.mark.long
def test_no_commit_is_lost_or_counts_twice(tmp_path: Path) -> None:
    assert "0 lost, 0 twice" in migrations.run(tmp_path, seconds=40, seed=7)

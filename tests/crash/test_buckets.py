"""Writers to a bucket that are killed at random, behind a connection that fails: a short run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import servers
from tests.crash.buckets import run
from tests.tiers import long, slow


@pytest.mark.parametrize(("kind", "processes", "commits"), [slow("s3", 3, 5), long("s3", 8, 50), long("azure", 8, 50)])
def test_every_acknowledged_commit_is_there_once_whoever_is_killed(
    tmp_path: Path, kind: str, processes: int, commits: int
) -> None:
    """The whole of it: `python -m tests.crash.buckets --minutes 5 --seed 1`."""
    assert "0 lost, 0 twice, no orphan" in run(tmp_path, servers.SERVERS[kind](), 1, processes, commits)

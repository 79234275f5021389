"""One Spark session at a time: local, or a cluster of processes on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from tests.spark.sessions import CLUSTER, LOCAL, Sessions

if find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def sessions() -> Iterator[Sessions]:
    found = Sessions()
    yield found
    found.stop()


@pytest.fixture
def spark(sessions: Sessions) -> Any:
    """Two threads of this machine."""
    return sessions.on(LOCAL)


@pytest.fixture
def cluster(sessions: Sessions) -> Any:
    """Two workers of a core each, in processes of their own."""
    return sessions.on(CLUSTER)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What pyspark 4.3 says of pandas 3, and leaves open, is no failure of ours."""
    for item in items:
        if item.path.parent.name == "spark":
            for kind in ("FutureWarning", "ResourceWarning", "DeprecationWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{kind}"))
            item.add_marker(pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"))

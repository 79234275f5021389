"""One Spark session at a time: local, or a cluster of processes on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from tests.spark.sessions import CLUSTER, LOCAL, Sessions
from tests.spark.standalone import SETTINGS, Cluster

if find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]


MANY_TASKS = {"spark.sql.adaptive.advisoryPartitionSizeInBytes": "256kb", "spark.sql.shuffle.partitions": 40}
"""Some thousand rows a task, where Spark would put all rows of a test into one."""


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


@pytest.fixture(scope="session")
def standalone(sessions: Sessions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers, processes of their own."""
    cluster = Cluster(tmp_path_factory.mktemp("standalone") / "home", {})
    yield cluster
    sessions.stop()
    cluster.stop()


@pytest.fixture
def on_standalone(sessions: Sessions, standalone: Cluster) -> Any:
    """A session of an application of that cluster."""
    return sessions.on(standalone.master, **SETTINGS, **MANY_TASKS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What pyspark 4.3 says of pandas 3, and leaves open, is no failure of ours."""
    for item in items:
        if item.path.parent.name == "spark":
            for kind in ("FutureWarning", "ResourceWarning", "DeprecationWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{kind}"))
            item.add_marker(pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"))

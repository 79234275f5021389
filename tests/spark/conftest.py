"""One Spark session at a time: local, or a cluster of processes on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPO = Path(__file__).parents[2]

if find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]


class Sessions:
    """Starts the session that is asked for, and stops the one before it: a process has one at a time."""

    def __init__(self) -> None:
        self._master = ""
        self._session: SparkSession | None = None

    def on(self, master: str) -> SparkSession:
        if self._session is None or self._master != master:
            self.stop()
            self._session, self._master = _started(master), master
        return self._session

    def stop(self) -> None:
        if self._session is not None:
            self._session.stop()
            self._session = None


def _started(master: str) -> SparkSession:
    from pyspark.sql import SparkSession

    from readers.spark import CrdtMorSource

    # Workers are other processes: they find this Python and this tree by the environment alone.
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(REPO)}
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.warehouse.dir": mkdtemp(prefix="crdt-mor-warehouse-"),
    }
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    session.dataSource.register(CrdtMorSource)
    return session


@pytest.fixture(scope="session")
def sessions() -> Iterator[Sessions]:
    found = Sessions()
    yield found
    found.stop()


@pytest.fixture
def spark(sessions: Sessions) -> SparkSession:
    """Two threads of this machine."""
    return sessions.on("local[2]")


@pytest.fixture
def cluster(sessions: Sessions) -> SparkSession:
    """Two workers of a core each, in processes of their own."""
    return sessions.on("local-cluster[2,1,1024]")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What pyspark 4.3 says of pandas 3 is no failure of ours."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))

"""Starts Spark for tests and benches: threads of this process, or a cluster of real processes on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent

LOCAL = "local[2]"
CLUSTER = "local-cluster[2,1,1024]"
"""Two executors, each a process of its own with one core."""


def start(master: str = LOCAL, **settings: Any) -> Any:
    """A session on `master` with the source registered; `settings`: Spark's, with `__` for a dot in their names."""
    # Workers are started by the JVM: they find the interpreter and the packages by the environment alone.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))

    from pyspark.sql import SparkSession

    from crdt_mor.readers.spark import register

    builder = SparkSession.builder.master(master).appName("crdt_mor")
    known = {
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.sql.warehouse.dir": mkdtemp(prefix="crdt-mor-warehouse-"),
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.session.timeZone": "America/New_York",
        "spark.driver.host": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        **{name.replace("__", "."): value for name, value in settings.items()},
    }
    for name, value in known.items():
        builder = builder.config(name, str(value).lower() if isinstance(value, bool) else value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


class Sessions:
    """Starts the session that is asked for, and stops the one before it: a process has one at a time."""

    def __init__(self) -> None:
        self._asked: object = None
        self._spark: Any = None

    def on(self, master: str, **settings: Any) -> Any:
        """A session on `master` with these settings."""
        if self._asked != (master, settings):
            self.stop()
            self._spark, self._asked = start(master, **settings), (master, settings)
        return self._spark

    def stop(self) -> None:
        """Stop the session, if there is one."""
        if self._spark is not None:
            self._spark.stop()
        self._spark = self._asked = None


def fixture(master: str = LOCAL, **settings: Any) -> Any:
    """A fixture: one session for the tests of a module."""

    @pytest.fixture(scope="module", name="spark")
    def session(sessions: Sessions) -> Any:
        return sessions.on(master, **settings)

    return session

"""Which session answers for a format: the one that is active in the thread.

Spark looks for a format of Python's in the active session of the thread, and a thread that has not made the session
has none. Reads and SQL make theirs the active one for as long as they are planned; `df.write` does not. With Spark
Connect none of this is the client's: the server makes the session of a request the active one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession


def make_active(spark: SparkSession) -> None:
    """Make the session the active one of this thread, as `spark.createDataFrame` does."""
    if isinstance(spark, SparkSession):  # that of Spark Connect is a class of its own
        _sessions(spark).setActiveSession(spark._jsparkSession)  # noqa: SLF001  Python has no other way


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """A block in which the session is the active one of this thread; afterwards it is the one that was before."""
    if not isinstance(spark, SparkSession):
        yield
        return
    sessions = _sessions(spark)
    before = sessions.getActiveSession()
    make_active(spark)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def _sessions(spark: SparkSession) -> Any:
    """Spark's own class of sessions, in the JVM."""
    return spark._get_j_spark_session_class(spark._jvm)  # noqa: SLF001

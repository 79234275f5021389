"""Which session answers for a format: the one that is active in the thread.

Spark looks for a format of Python's in the active session of the thread, and a thread that has not made the session
has none. Reads and SQL make theirs the active one for as long as they are planned; `df.write` does not. With Spark
Connect none of this is the client's: the server makes the session of a request the active one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

_REGISTERING: Final = threading.Lock()
"""Spark looks for a name and then takes it: of two threads, the second finds the name taken between the two."""


def know(spark: SparkSession, *sources: type[DataSource]) -> None:
    """Register sources in a session, as often as you like and in any thread. The last one of a name counts."""
    with _REGISTERING:
        for source in sources:
            try:
                spark.dataSource.register(source)
            except AnalysisException as error:
                if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                    raise
                spark.dataSource.register(source)  # a name that another process took just now may be taken over


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

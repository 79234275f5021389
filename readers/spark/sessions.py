"""Choose the Spark session that resolves a format: the active session of the thread.

Spark looks up Python formats in the thread's active session, and only the thread that made the session has one. Reads
and SQL activate theirs during planning; `df.write` does not. With Spark Connect, the server activates the session of
each request.
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
"""Spark checks a name and then takes it. Without the lock, a second thread could find the name taken in between."""


def know(spark: SparkSession, *sources: type[DataSource]) -> None:
    """Register sources in a session, any number of times, in any thread. The last source of a name counts."""
    with _REGISTERING:
        for source in sources:
            try:
                spark.dataSource.register(source)
            except AnalysisException as error:
                if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                    raise
                spark.dataSource.register(source)  # a name that another process took just now may be taken over


def make_active(spark: SparkSession) -> None:
    """Activate the session in this thread, as `spark.createDataFrame` does."""
    if isinstance(spark, SparkSession):  # that of Spark Connect is a class of its own
        _sessions(spark).setActiveSession(spark._jsparkSession)  # noqa: SLF001  Python has no other way


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
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
    return spark._get_j_spark_session_class(spark._jvm)  # noqa: SLF001

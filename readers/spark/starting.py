"""Start a stream into a table, with a checkpoint that belongs to this table.

    stream(clicks, "/lake/events", "/checkpoints/clicks", trigger={"availableNow": True})

Without a batch left, Spark calls no data source and ends without an error. So the checkpoint is checked here
(`sinking` gives the reason).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import Row

import crdt_mor as mor
from crdt_mor.readers.spark.options import STORAGE
from crdt_mor.readers.spark.sessions import active
from crdt_mor.readers.spark.versions import WRITES_STREAMS, require_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def stream(
    rows: DataFrame,
    path: str,
    checkpoint: str,
    *,
    name: str | None = None,
    trigger: Mapping[str, Any] | None = None,
    options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Start a query that writes a streaming frame to a table, each batch as one commit.

    Args:
        trigger: arguments of Spark's `trigger`, such as {"availableNow": True}; None runs batch after batch.
        options: options of the write, such as {"operation": "append"}.
        storage_options: options of the object store, as for `Table`.

    Raises:
        InvalidInputError: the checkpoint contains batches of another table, which Spark would silently skip.
    """
    require_spark(WRITES_STREAMS, "writing a stream to a table")
    spark = rows.sparkSession
    table = mor.Table(path, storage_options=storage_options)
    query, batches = _noted(spark, checkpoint)
    if query is not None and batches:
        require_known(table, query, batches)
    stored = {STORAGE + option: str(value) for option, value in (storage_options or {}).items()}
    writer = rows.writeStream.format("crdt_mor").options(**stored, **(options or {}))
    writer = writer.option("checkpointLocation", checkpoint)
    writer = writer if name is None else writer.queryName(name)
    writer = writer if trigger is None else writer.trigger(**trigger)
    with active(spark):
        return writer.start(table.uri)


def application_of(query: str) -> str:
    return f"spark-stream/{query}"


def require_known(table: mor.Table, query: str, batches: int) -> None:
    application = application_of(query)
    if application in table.inspect.tokens()["application"].to_pylist():
        return
    raise mor.InvalidInputError(
        "the checkpoint of this query has batches that this table lacks: they went to another table, or a restore "
        "dropped them. Spark does not write them again. Start the query with a new checkpointLocation. If the rows of "
        f"those batches are in the table by another way, say so once: crdt_mor.Table({table.uri!r})."
        f"delete(keys=[], token=({application!r}, {batches - 1})). query={query} batches={batches} table={table.uri}"
    )


def _noted(spark: SparkSession, checkpoint: str) -> tuple[str | None, int]:
    metadata = _read(spark, "text", f"{checkpoint}/metadata")
    if not metadata:
        return None, 0
    commits = _read(spark, "binaryFile", f"{checkpoint}/commits")
    numbers = [int(name) for row in commits if (name := row["path"].rpartition("/")[2]).isdecimal()]
    query: str = json.loads(metadata[0]["value"])["id"]
    return query, max(numbers, default=-1) + 1


def _read(spark: SparkSession, kind: str, path: str) -> list[Row]:
    try:
        frame = spark.read.format(kind).load(path)
        return frame.drop("content").collect()
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return []
        raise

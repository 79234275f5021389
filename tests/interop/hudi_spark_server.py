"""Hudi's own Spark reader and SQL behind a pipe: a line of JSON in, a line of JSON out.

Runs in a virtual environment of its own (Hudi's bundle wants Spark 3.5) as a script, so it imports nothing of ours; the
tests import `plain` from it, so that both sides of a comparison are spelled alike.

    {"read": path, "options": {...}}     -> {"rows": [{column: plain value}]}     | {"error": text}
    {"sql": statement}                   -> the same
    {"upsert": path, "rows": path of a Parquet file, "options": {...}}   -> {"rows": []}
    {"begin": gate, "upsert": …}         -> the same at once; the write has its rows only when the file `gate` is there
    {"end": gate}                        -> {"rows": []} when that write has ended
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

ANSWER = "answer "
"""Begins the lines that are answers; Spark prints others."""


def plain(value: object) -> object:
    """A value as JSON, exactly: no two values of a type look alike, and equal ones do in every reader."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (bytes, bytearray)):
        return "0x" + value.hex()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        return (value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value).isoformat()
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def main() -> None:
    """Serve until stdin ends."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": os.environ["HUDI_JAR"],
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.warehouse.dir": os.environ["SPARK_WAREHOUSE"],
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master(f"local[{os.environ.get('SPARK_CORES', '2')}]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    writes = Writes(spark)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            found = writes.answer(asked) if asked.keys() & {"begin", "end"} else _answer(spark, asked)
            answer: dict[str, object] = {"rows": found}
        except Exception as error:  # noqa: BLE001  whatever Spark says is the answer
            answer = {"error": str(error)[:12000]}
        sys.stdout.write(f"{ANSWER}{json.dumps(answer)}\n")
        sys.stdout.flush()


class Writes:
    """Writes that are under way at once, each in a thread; they wait for their rows, and have their instant by then."""

    def __init__(self, spark: Any) -> None:
        self.spark, self.pool = spark, ThreadPoolExecutor()
        self.open: dict[str, Future[list[object]]] = {}

    def answer(self, asked: dict[str, Any]) -> list[object]:
        """Begin or end a write."""
        if (gate := asked.get("begin")) is not None:
            self.open[gate] = self.pool.submit(_answer, self.spark, {**asked, "gate": gate})
            return []
        Path(asked["end"]).touch()
        return self.open.pop(asked["end"]).result()


def _behind(gate: str, rows: Any) -> Any:
    """The rows, of which none is there before the file `gate` is."""
    from threading import Event

    from pyspark.sql.functions import udf

    def waited(value: object) -> object:
        while not os.path.exists(gate):
            Event().wait(0.02)
        return value

    first = rows.columns[0]
    return rows.withColumn(first, udf(waited, rows.schema[first].dataType).asNondeterministic()(rows[first]))


def _answer(spark: Any, asked: dict[str, Any]) -> list[object]:
    options = asked.get("options") or {}
    if "sql" in asked:
        found = spark.sql(asked["sql"])
    elif "upsert" in asked:
        rows = spark.read.parquet(asked["rows"])
        rows = _behind(asked["gate"], rows) if "gate" in asked else rows
        rows.write.format("hudi").options(**options).mode("append").save(asked["upsert"])
        return []
    else:
        found = spark.read.format("hudi").options(**options).load(asked["read"])
    return [plain(row.asDict(recursive=True)) for row in found.collect()]


if __name__ == "__main__":
    main()

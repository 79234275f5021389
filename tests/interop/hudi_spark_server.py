"""Hudi's own Spark reader and SQL behind a pipe: a line of JSON in, a line of JSON out.

Runs in a virtual environment of its own (Hudi's bundle wants Spark 3.5) as a script, so it imports nothing of ours; the
tests import `plain` from it, so that both sides of a comparison are spelled alike.

    {"read": path, "options": {...}}     -> {"rows": [{column: plain value}]}     | {"error": text}
    {"sql": statement}                   -> the same
    {"upsert": path, "rows": path of a Parquet file, "options": {...}}   -> {"rows": []}
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
from decimal import Decimal
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
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer: dict[str, object] = {"rows": _answer(spark, asked)}
        except Exception as error:  # noqa: BLE001  whatever Spark says is the answer
            answer = {"error": str(error)[:12000]}
        sys.stdout.write(f"{ANSWER}{json.dumps(answer)}\n")
        sys.stdout.flush()


def _answer(spark: Any, asked: dict[str, Any]) -> list[object]:
    options = asked.get("options") or {}
    if "sql" in asked:
        found = spark.sql(asked["sql"])
    elif "upsert" in asked:
        rows = spark.read.parquet(asked["rows"])
        rows.write.format("hudi").options(**options).mode("append").save(asked["upsert"])
        return []
    else:
        found = spark.read.format("hudi").options(**options).load(asked["read"])
    return [plain(row.asDict(recursive=True)) for row in found.collect()]


if __name__ == "__main__":
    main()

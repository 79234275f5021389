"""Spark reads mirrors through Iceberg's and Delta's jars, which Maven fetches."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import pyarrow as pa

from tests.engines.engine import DELTA, ICEBERG, Engine, Mirrored
from tests.engines.machine import artifact

JARS = (
    "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1",
    "io.delta:delta-spark_2.13:4.0.0",
    "io.delta:delta-storage:4.0.0",
)


@cache
def session() -> Any:
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.jars": ",".join(str(artifact(each)) for each in JARS),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.sql.catalog.rest": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.rest.type": "rest",
        "spark.sql.catalog.rest.uri": os.environ.get("ENGINES_REST", ""),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def read(name: str, address: str, where: str | None) -> pa.Table:
    frame = session().read.format(name).load(address)
    rows: pa.Table = (frame.where(where) if where else frame).toArrow()
    return rows


def spark_iceberg(mirrored: Mirrored, where: str | None) -> pa.Table:
    return read("iceberg", f"file://{mirrored.root}", where)


def spark_delta(mirrored: Mirrored, where: str | None) -> pa.Table:
    return read("delta", str(mirrored.root), where)


SPARK = (
    Engine("spark-iceberg", ICEBERG, "pyspark", spark_iceberg),
    Engine("spark-delta", DELTA, "pyspark", spark_delta),
)

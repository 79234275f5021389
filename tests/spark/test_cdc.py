"""A stream of Kafka records in Spark is applied by `foreachBatch`, each record once over restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor.cdc import apply

pytestmark = pytest.mark.spark
SCHEMA = "topic string, partition int, offset bigint, key binary, value binary"


def records(partition: int, first: int, *rows: dict[str, Any]) -> pl.DataFrame:
    source = {"schema": "public", "table": "orders"}
    values = [json.dumps({"op": "u", "before": None, "after": row, "source": source}).encode() for row in rows]
    offsets = range(first, first + len(rows))
    frame = {"topic": "orders", "partition": partition, "offset": offsets, "key": None, "value": values}
    return pl.DataFrame(
        frame,
        schema={"topic": pl.String, "partition": pl.Int32, "offset": pl.Int64, "key": pl.Binary, "value": pl.Binary},
    )


def test_a_stream_of_records_is_applied_once(spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "orders")
    table = mor.Table.create(uri, pa.schema([("id", pa.int64()), ("name", pa.string())]), key="id")
    topic = tmp_path / "topic"
    topic.mkdir()

    def write(batch: Any, _: int) -> None:
        apply(mor.Table(uri), batch.select("topic", "partition", "offset", "key", "value").toArrow())

    def run(checkpoint: str) -> None:
        stream = spark.readStream.schema(SCHEMA).parquet(str(topic)).writeStream.foreachBatch(write)
        options = {"checkpointLocation": str(tmp_path / checkpoint)}
        stream.options(**options).trigger(availableNow=True).start().awaitTermination()

    records(0, 0, {"id": 1, "name": "a"}, {"id": 1, "name": "b"}).write_parquet(topic / "1.parquet")
    records(1, 0, {"id": 2, "name": "c"}).write_parquet(topic / "2.parquet")
    run("first")
    assert sorted(table.to_polars().rows()) == [(1, "b"), (2, "c")]
    version = table.version
    run("again")
    assert table.version == version
    records(0, 2, {"id": 2, "name": "d"}).write_parquet(topic / "3.parquet")
    run("again")
    assert sorted(table.to_polars().rows()) == [(1, "b"), (2, "d")]

"""Spark writes to a table that has moved: its driver is told the new address, and its readers go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import Table
from crdt_mor.errors import TableMovedError
from tests.spark.sessions import fixture
from tests.spark.tables import leftovers, pending

pytestmark = pytest.mark.spark
spark = fixture()

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])


def test_a_driver_is_told_the_new_address_and_readers_go_on(spark: Any, tmp_path: Path) -> None:
    from crdt_mor.readers.spark import upsert

    table = Table.create(tmp_path / "old", SCHEMA, key="id", buckets=2)
    frame = spark.createDataFrame(pa.table({"id": [1, 2], "n": [1, 1]}, SCHEMA))
    frame.write.format("crdt_mor").mode("append").save(table.uri)
    new = str(tmp_path / "new")
    table.maintenance.migrate(new, buckets=3)
    with pytest.raises(Exception, match="open the table at its new address") as refused:
        frame.write.format("crdt_mor").mode("append").save(table.uri)
    assert f"moved_to={new}" in str(refused.value)
    with pytest.raises(TableMovedError) as moved:
        upsert(frame, table.uri)
    assert moved.value.uri == new
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])
    assert spark.read.format("crdt_mor").load(table.uri).count() == 2
    upsert(spark.createDataFrame(pa.table({"id": [2, 3], "n": [5, 5]}, SCHEMA)), new)
    shown = spark.read.format("crdt_mor").load(new).collect()
    assert sorted((row["id"], row["n"]) for row in shown) == [(1, 1), (2, 5), (3, 5)]

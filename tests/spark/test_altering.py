"""Columns of any name, which are renamed and dropped, in Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import Table
from tests.spark.helpers import listed, read

pytestmark = pytest.mark.spark

ROWS = pa.table({"Nr.": [1, 2], "Total Sales": [1.5, 2.5], "Größe": ["s", "m"], "note": ["x", "y"]})


def test_spark_reads_writes_and_updates_under_the_names_that_people_see(spark: Any, tmp_path: Path) -> None:
    from crdt_mor.readers.spark import delete_where, update, upsert

    table = Table.create(tmp_path / "t", ROWS, key="Nr.", partition_by="Größe", buckets=1)
    upsert(spark.createDataFrame([(1, 1.5, "s", "x"), (2, 2.5, "m", "y")], ROWS.schema.names), table.uri)
    assert listed(read(spark, table.uri)) == listed(ROWS)
    before = table.version
    table.alter(rename={"Total Sales": "net sales", "Nr.": "order"}, drop=["note"])
    assert read(spark, table.uri).columns == ["order", "net sales", "Größe"]
    assert read(spark, table.uri, asOf=str(before)).columns == ["order", "net sales", "Größe"]
    then = read(spark, table.uri, asOf=str(before), names="then", filter='"Nr." = 1')
    assert listed(then) == listed(ROWS.slice(0, 1))
    then = read(spark, table.uri, changes="images", until=str(before), names="then")
    assert listed(then.drop("_change_type", "_commit_version", "_commit_timestamp")) == listed(ROWS)
    upsert(spark.createDataFrame([(3, 3.5, "s")], ["order", "net sales", "Größe"]), table.uri)
    update(spark, table.uri, {"net sales": '"net sales" * 2'}, where='"order" = 1')
    delete_where(spark, table.uri, '"net sales" = 2.5')
    expected = pa.table({"order": [1, 3], "net sales": [3.0, 3.5], "Größe": ["s", "s"]})
    assert listed(read(spark, table.uri)) == listed(expected) == listed(table.to_arrow())
    seen = read(spark, table.uri, filter='"net sales" > 3.2').select("order")
    assert listed(seen) == listed(pa.table({"order": [3]}))
    sold = pa.table({"order": [4], "net sales": [4.5], "Größe": ["m"], "sold": [[{"Total Sales": 4, "@t": "x"}]]})
    table.upsert(sold, schema_mode="merge")
    assert listed(read(spark, table.uri, filter='"order" = 4')) == listed(sold)
    upsert(read(spark, table.uri, filter='"order" = 4'), table.uri)
    assert listed(read(spark, table.uri, filter='"order" = 4').select("sold")) == listed(sold.select(["sold"]))
    changed = read(spark, table.uri, changes="merged", since=str(before))
    assert {"order", "net sales", "Größe"} < {*changed.columns}

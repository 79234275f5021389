"""Reading on a cluster of processes: workers have nothing of the driver's but what Spark brings them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.helpers import Stream, listed, read
from tests.spark.queried import QUERIES, TABLES, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", TABLES)
def test_a_cluster_reads_what_the_embedded_reader_reads(cluster: SparkSession, fast_path: Path, name: str) -> None:
    table = written(fast_path, name)
    for query in ("snapshot", "read optimized", "increment", "images", "raw, bounded"):
        options, embedded = QUERIES[query]
        assert listed(read(cluster, table.uri, **options)) == listed(embedded(table)), query


def test_a_stream_runs_on_a_cluster(cluster: SparkSession, fast_path: Path) -> None:
    table = written(fast_path, "counter")
    found = Stream(cluster, table, fast_path / "checkpoint", changes="images", maxCommitsPerTrigger=2).run()
    assert len(found) == 3
    assert sorted((row for batch in found.values() for row in batch), key=repr) == listed(table.changes(images=True))

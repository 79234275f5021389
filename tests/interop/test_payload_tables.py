"""What Hudi's readers are told of a table with payloads: its visible columns, and base files alone where they ask."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hudi import HudiReadOptions, HudiTableBuilder

from crdt_mor.columns.schema import META_COLUMNS
from crdt_mor.format.commit import decode_commit
from crdt_mor.format.log import BlockKind, read_log
from tests.interop.hudi_spark_server import plain
from tests.interop.readers import HudiSpark, Refused, Rows, by_key, hudi_rs, ours
from tests.interop.shapes import COUNTED, Maker, counted, payloads_compacted, payloads_compacted_and_written

READ_OPTIMIZED = {"hoodie.datasource.query.type": "read_optimized"}


def hudi_rs_read_optimized(path: Path) -> Rows:
    options = HudiReadOptions().with_hudi_option("hoodie.read.use.read_optimized.mode", "true")
    batches = HudiTableBuilder.from_base_uri(str(path)).build().read(options)
    return by_key([plain(row) for batch in batches for row in pa.record_batch(batch).to_pylist()])


def test_hudi_rs_reads_base_files_alone_while_logs_are_unmerged(make: Maker) -> None:
    table = payloads_compacted(make)
    before = ours(table)
    assert hudi_rs_read_optimized(make.root) == before
    table.upsert(counted(range(10), 4, "fourth", "third"))
    assert ours(table) != before
    assert hudi_rs_read_optimized(make.root) == before
    with pytest.raises(Refused, match="CUSTOM"):
        hudi_rs(make.root)
    table.maintenance.compact()
    assert hudi_rs_read_optimized(make.root) == hudi_rs(make.root) == ours(table)


@pytest.mark.spark
def test_spark_reads_base_files_alone_while_logs_are_unmerged(make: Maker, spark: HudiSpark) -> None:
    table = payloads_compacted(make)
    before = ours(table)
    assert spark.read(make.root, READ_OPTIMIZED) == before
    table.upsert(counted(range(10), 4, "fourth", "third"))
    assert ours(table) != before
    assert spark.read(make.root, READ_OPTIMIZED) == before
    with pytest.raises(Refused, match="No valid spark merger implementation"):
        spark.read(make.root)
    table.maintenance.compact()
    assert spark.read(make.root, READ_OPTIMIZED) == spark.read(make.root) == ours(table)


def test_states_are_in_the_files_and_in_no_schema_that_hudi_is_told(make: Maker) -> None:
    table = payloads_compacted_and_written(make)
    files = table.inspect.files()
    for path in files.filter(pc.field("kind") == "base")["path"].to_pylist():  # made while nothing was pending
        assert pq.read_schema(make.root / path).names == [*META_COLUMNS, *COUNTED.names]
    logs = files.filter(pc.field("kind") == "log")["path"].to_pylist()
    blocks = [block for path in logs for block in read_log((make.root / path).read_bytes(), path)]
    rows = [pq.read_schema(pa.BufferReader(b.content)).names for b in blocks if b.kind is BlockKind.PARQUET]
    assert rows
    assert all(set(names) == {*META_COLUMNS, *COUNTED.names, "_crdt_tags"} for names in rows)
    timeline = make.root / ".hoodie/timeline"
    commits = [path for path in timeline.iterdir() if path.suffix in (".deltacommit", ".commit")]
    assert len(commits) == table.inspect.timeline().num_rows == 7
    for commit in commits:
        schema = json.loads(decode_commit(commit.read_bytes(), commit.name).extra["schema"])
        assert [field["name"] for field in schema["fields"]] == COUNTED.names
    assert "_crdt_" not in (make.root / ".hoodie/hoodie.properties").read_text()
    theirs = HudiTableBuilder.from_base_uri(str(make.root)).build()
    assert pa.schema(theirs.get_schema()).names == COUNTED.names

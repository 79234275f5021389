"""Hudi's readers, `verify` and copies do not mind the files of mirrors."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from crdt_mor import Table
from tests.mirror.shapes import rows

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("text", pa.string()), ("region", pa.string())])


def placed(ids: list[int], n: int) -> pa.Table:
    regions = pa.array(["eu" if key % 2 else "ü p+1" for key in ids])
    return rows(ids, n).append_column("region", regions)


@pytest.mark.parametrize("partition_by", ["region", ()])
def test_hudi_rs_reads_a_table_with_mirrors(tmp_path: Path, partition_by: str | tuple[str, ...]) -> None:
    """hudi-rs lists hidden folders, too, and fails on names of another form than its own."""
    hudi = pytest.importorskip("hudi")
    table = Table.create(str(tmp_path / "table"), SCHEMA, key=["id", "region"], partition_by=partition_by, buckets=2)
    table.upsert(placed(list(range(20)), 1))
    table.maintenance.compact()
    for n in range(2, 5):
        table.upsert(placed([1, 2, 30], n))
        table.delete(placed([n], 1).select(["id", "region"]))
        table.mirror("delta", deletes="rewrite" if n == 3 else "vectors")
        table.mirror("iceberg")
        batches = hudi.HudiTableBuilder.from_base_uri(table.uri).build().read(hudi.HudiReadOptions())
        assert sorted(pa.Table.from_batches(batches)["id"].to_pylist()) == sorted(table.to_arrow()["id"].to_pylist())
    assert table.verify(deep=True).is_sound
